"""experiments/peers/llama_bench.py with programs that print known times, and the models that it writes."""

import json
import os
import random
import struct
import subprocess
import sys
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PEERS = SOURCE / "experiments" / "peers"
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
sys.path.insert(0, str(PEERS))
import gguf_models
import llama_bench

BENCH = """#!/usr/bin/env python3
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
tokens, prompt = int(given["-n"]), int(given["-p"])
for depth in map(int, given.get("-d", "0").split(",")):
    ms = 500 if prompt else (10 if given["-t"] == "1" else 4) + depth / 1000
    print(json.dumps({"n_gen": tokens, "n_depth": depth, "build_commit": "abc",
                      "samples_ns": [ms * max(tokens, 1) * 1e6 * late for late in (1, 1, 9)][:int(given["-r"])]}))
"""
BATCHED = """#!/usr/bin/env python3
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("a line of a log")
for batch in map(int, given["-npl"].split(",")):
    assert int(given["-c"]) >= batch * (int(given["-npp"]) + int(given["-ntg"]))
    print(json.dumps({"t_tg": batch * int(given["-ntg"]) / 1000, "tg": int(given["-ntg"]), "pl": batch}), file=sys.stderr)
"""
OURS = """#!/usr/bin/env python3
import json, sys
for scenario in json.load(open(sys.argv[sys.argv.index("--steps") + 1]))["scenarios"]:
    print(json.dumps({"step_ms": 2.0, "bytes": 7e6, "read_bytes_per_second": 5e10, "commit": "def",
                      "machine": {"cpu": "C", "instructions": "I"}, "scenario": scenario["name"]}))
"""


def bf16(numbers):
    return b"".join(struct.pack("<f", x)[2:] for x in numbers)


class LlamaBench(InFolder):
    def setUp(self):
        super().setUp()
        home, llama_bench.HOME = llama_bench.HOME, self.here
        self.addCleanup(setattr, llama_bench, "HOME", home)

    def program(self, name, text):
        path = Path(self.write(name, text))
        path.chmod(0o755)
        return path

    def options(self, ours=None, turns=3):
        self.program("llama-bench", BENCH)
        self.program("llama-batched-bench", BATCHED)
        (self.here / "demo-Q4_0.gguf").write_bytes(bytes(1000))
        return type("Options", (), {"binaries": self.here, "turns": turns, "threads": 2,
                                    "program": ours or self.program("foretoken", OURS)})()

    def test_times_of_a_step_are_those_that_the_programs_print(self):
        lines = {line["step"]: line for line in llama_bench.measure(self.options(), "demo", "w4a8")}
        for step, ms in (("decode at context 32", 4.032), ("decode at context 1024", 5.024),
                         ("decode at context 256, one thread", 10.256), ("decode, 8 sequences at context 256", 8),
                         ("decode, 32 sequences at context 256", 32), ("prompt of 512", 500)):
            for found in lines[step]["llama_cpp_ms"]:
                self.assertAlmostEqual(found, ms, msg=step)
            self.assertEqual(lines[step]["foretoken_ms"], [2.0] * 3, step)
        self.assertEqual(lines["decode at context 256, one thread"]["threads"], 1)
        self.assertEqual(len(lines), 7)
        self.assertEqual((lines["prompt of 512"]["peer"], lines["prompt of 512"]["commit"]), ("llama.cpp abc", "def"))

    def test_a_ratio_is_of_one_turn(self):
        line = {"step": "decode at context 32", "llama_cpp_ms": [2, 30, 8], "foretoken_ms": [1, 10, 2],
                "llama_cpp_bytes": 8e6, "foretoken_bytes": 4e6}
        self.assertEqual(llama_bench.shown(line), ["8 [2, 30]", "2 [1, 10]", "3.00 [2.00, 4.00]", "1", "2"])

    @unittest.skipUnless(PROGRAM.exists(), "the program is not built")
    def test_the_scenarios_are_those_that_the_program_takes(self):
        options = self.options(PROGRAM)
        work = dict(llama_bench.WORK["demo"], contexts=[32], batches=[2], of_batch=16, steps=2, prompts=1)
        self.addCleanup(llama_bench.WORK.update, demo=llama_bench.WORK["demo"])
        llama_bench.WORK["demo"] = work
        lines = llama_bench.ours(options, "demo", "w4a8")
        self.assertEqual([line["scenario"] for line in lines],
                         [name for name, _ in llama_bench.steps_of("demo", options.threads)])
        self.assertEqual([line["batch"] for line in lines], [1, 1, 2, 1])
        self.assertEqual([line["run"]["engine"]["threads"] for line in lines], [2, 1, 2, 2])

    def test_what_is_missing_is_one_sentence(self):
        done = subprocess.run([sys.executable, PEERS / "llama_bench.py", self.here], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("llama-bench is not there: build it", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        options = self.options()
        self.program("llama-bench", "#!/bin/sh\nkill -ILL $$\n")
        with self.assertRaisesRegex(SystemExit, "instructions that this processor lacks"):
            llama_bench.theirs(options, "demo", "Q4_0")


class Models(InFolder):
    def test_rounding_is_to_the_nearest_code(self):
        draw = random.Random(1)
        numbers = gguf_models.floats_of(bf16(draw.gauss(0, 1) for _ in range(320)))
        raw = bf16(numbers)
        for kind, of_bytes in (("Q8_0", lambda b: struct.unpack("<32b", b)),
                               ("Q4_0", lambda b: [(x & 15) - 8 for x in b] + [(x >> 4) - 8 for x in b])):
            coded = gguf_models.rounded(raw, kind)
            size = gguf_models.TYPES[kind][1]
            self.assertEqual(len(coded), 10 * size)
            for i in range(10):
                block = coded[i * size:(i + 1) * size]
                scale, wanted = struct.unpack("<e", block[:2])[0], numbers[32 * i:32 * i + 32]
                most = max(map(abs, wanted))
                # half a code, but 4 bits end at 7 where a number may ask for 8; the scale has 11 bits
                near = abs(scale) * (1.01 if kind == "Q4_0" else .51) + most / 500
                for code, x in zip(of_bytes(block[2:]), wanted):
                    self.assertLessEqual(abs(code * scale - x), near)
        self.assertEqual(gguf_models.rounded(raw, "F32"), numbers.tobytes())

    def test_rows_are_permuted_from_halves_to_neighbours(self):
        rows = b"".join(bytes([r, r]) for r in range(8))  # two heads of four rows
        self.assertEqual(list(gguf_models.with_neighbouring_pairs(rows, 2, 2))[::2], [0, 2, 1, 3, 4, 6, 5, 7])

    def test_the_file_holds_the_weights_of_the_checkpoint(self):
        path = self.here / "demo-BF16.gguf"
        size = gguf_models.write(path, "demo", "BF16")
        raw = path.read_bytes()
        self.assertEqual(struct.unpack("<4sIQQ", raw[:24]), (b"GGUF", 3, 74, 14))
        self.assertEqual(size, 28337664)
        wanted = [data if len(shape) == 2 else gguf_models.floats_of(data).tobytes()
                  for _, shape, data in gguf_models.checkpoint_tensors()]
        at = len(raw) - sum(-(-len(data) // 32) * 32 for data in wanted)
        self.assertEqual(at % 32, 0)
        for data in wanted:
            self.assertEqual(raw[at:at + len(data)], data)
            at += -(-len(data) // 32) * 32


if __name__ == "__main__":
    unittest.main()
