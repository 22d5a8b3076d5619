"""`foretoken quality` as a user runs it: figures of the demo models, files of results, Ctrl-C, and bad input."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
DRAFT = str(SOURCE / "experiments" / "models" / "draft")
FEW = ["--tokens", "200", "--limit", "3", "--max-new-tokens", "8", "--device", "cpu", "--threads", "1"]


class Quality(InFolder):
    def command(self, *arguments):
        model = [] if "--model" in arguments else ["--model", DRAFT]
        return [PROGRAM, "quality", *model, *arguments]

    def run_it(self, *arguments):
        done = subprocess.run(self.command(*arguments), cwd=self.here, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def refused(self, *arguments, words, code=1):
        status, out, err = self.run_it(*arguments)
        self.assertEqual((status, out), (code, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        for word in words:
            self.assertIn(word, err)

    def test_rows_of_types(self):
        status, out, err = self.run_it("--dtype", "bf16,int8", *FEW, "--json", "--results", "q.jsonl")
        self.assertEqual(status, 0, err)
        same, coarse = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([same, coarse], [json.loads(s) for s in (self.here / "q.jsonl").read_text().splitlines()])
        for line in (same, coarse):
            for key in ("commit", "machine", "date", "seconds", "sources", "run", "reference"):
                self.assertIn(key, line)
            self.assertEqual(line["quality"]["predictions"]["tokens"], 200)
            self.assertEqual(line["quality"]["outputs"]["prompts"], 3)
        self.assertEqual(same["run"]["target"]["dtype"], "bf16")
        self.assertEqual(same["reference"]["target"]["dtype"], "auto")  # bf16 is as it is stored
        nothing = {"value": 0, "low": None, "high": None}  # nothing varies, which says nothing of other texts
        figures = same["quality"]["predictions"]
        self.assertEqual((figures["kl"], figures["excess_loss"], figures["kl_greatest"]), (nothing, nothing, 0))
        self.assertEqual((figures["same_top"]["value"], figures["same_top"]["high"]), (1, 1))
        self.assertEqual(same["quality"]["outputs"]["equal"]["value"], 1)
        self.assertEqual(same["quality"]["outputs"]["common_prefix_share"]["value"], 1)
        figures = coarse["quality"]["predictions"]
        self.assertGreater(figures["kl"]["low"], 0)
        self.assertLess(figures["overlap"]["high"], 1)
        self.assertNotEqual(figures["perplexity"], same["quality"]["predictions"]["perplexity"])
        self.assertEqual(figures["reference_perplexity"], same["quality"]["predictions"]["perplexity"])
        self.assertLess(coarse["quality"]["weight_bytes"], same["quality"]["weight_bytes"])

    def test_rows_of_cache_types(self):
        status, out, err = self.run_it("--kv-dtype", "bf16,int8,fp8", *FEW, "--json")
        self.assertEqual(status, 0, err)
        same, int8, fp8 = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(same["reference"]["target"]["kv_dtype"], "auto")  # bf16 on this device
        self.assertEqual(same["quality"]["predictions"]["kl"]["value"], 0)
        for line, name, most in ((int8, "int8", 0.01), (fp8, "fp8", 0.2)):  # of e4m3, 3 bits of the mantissa remain
            self.assertEqual(line["run"]["target"]["kv_dtype"], name)
            self.assertGreater(line["quality"]["predictions"]["kl"]["value"], 0)
            self.assertLess(line["quality"]["predictions"]["kl"]["value"], most)
            self.assertEqual(line["quality"]["weight_bytes"], same["quality"]["weight_bytes"])
            # 2 layers, keys and values of 2 heads of 32 numbers: codes and a scale instead of bf16
            self.assertEqual((line["quality"]["kv_bytes"], same["quality"]["kv_bytes"]), (8 * 36, 8 * 64))
        self.refused("--kv-dtype", "int4", "--device", "cpu", words=["kv_dtype", "int4", "fp8"])
        self.refused("--thin", "4", "--device", "cpu", words=["'4' of --thin", "4+256"])
        for option, value in (("--max-new-tokens", "9"), ("--limit", "3"), ("--prompts", "absent.jsonl")):
            self.refused("--thin", "4+64", option, value, words=["--thin", "compares no outputs", option, "leave one of them out"])

    def test_tables(self):
        status, out, err = self.run_it("--dtype", "int8", *FEW)
        self.assertEqual(status, 0, err)
        for word in ("Perplexity", "KL", "same top token", "overlap", "Greedy outputs", "200 predicted tokens"):
            self.assertIn(word, out)
        status, out, err = self.run_it("--tokens", "50", "--device", "cpu", "--format", "csv")  # without a reference
        self.assertEqual(status, 0, err)
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual(len(rows), 1)
        self.assertGreater(float(rows[0]["perplexity"]), 1)
        self.assertNotIn("kl", rows[0])
        self.assertEqual(rows[0]["type"], "auto")

    def test_a_stored_type_is_named(self):
        smoothed = ["--method", "smoothquant", "--calibrate", str(SOURCE / "experiments" / "prompts.jsonl"), "--tokens",
                    "600"]
        for name, how in (("int4", []), ("nf4", []), ("int8", smoothed)):
            subprocess.run([PROGRAM, "quantize", "--model", DRAFT, "--format", name, "--out", name, *how],
                           cwd=self.here, check=True, capture_output=True, timeout=120)
            self.assertEqual(self.types_of(name), [f"auto ({'w8a8' if how else name})"])

    def types_of(self, model):
        status, out, err = self.run_it("--model", model, "--tokens", "50", "--device", "cpu", "--format", "csv")
        self.assertEqual(status, 0, err)
        return [row["type"] for row in csv.DictReader(io.StringIO(out))]

    def test_a_stored_type_names_how_each_group_rounds_inputs(self):
        rounded = {"num_bits": 8, "symmetric": True, "strategy": "token", "dynamic": True}
        for name, numbers, targets, shown in (("fp8_tensor", "float", [], "fp8_tensor, inputs fp8"),
                                              ("int8", "int", ["re:.*self_attn.*"], "int8; w8a8")):
            subprocess.run([PROGRAM, "quantize", "--model", DRAFT, "--format", name, "--out", name], cwd=self.here,
                           check=True, capture_output=True, timeout=120)
            config = json.loads((self.here / name / "config.json").read_text())
            groups = config["quantization_config"]["config_groups"]
            if targets:
                groups["a"] = groups["group_0"] | {"targets": targets}
            groups["group_0"]["input_activations"] = rounded | {"type": numbers}
            (self.here / name / "config.json").write_text(json.dumps(config))
            self.assertEqual(self.types_of(name), [f"auto ({shown})"])

    def test_texts(self):
        text = self.write("text.txt", "The lamp had burned low when the captain came down. " * 30)
        lines = self.write("text.jsonl", json.dumps({"text": "The lamp had burned low."}) + "\n")
        for file, window in ((text, "32"), (lines, "16")):
            status, out, err = self.run_it("--text", file, "--window", window, "--device", "cpu", "--json")
            self.assertEqual(status, 0, err)
            line = json.loads(out)
            self.assertEqual(line["quality"]["window"], int(window))
            self.assertEqual(line["quality"]["stride"], int(window) // 2)
            self.assertIn(file, line["sources"])
            self.assertIsNone(line["reference"])
            self.assertIsNone(line["quality"]["outputs"])

    def test_documents_of_json_lines_are_predicted_each_for_itself(self):
        said = "The lamp had burned low when the captain came down."
        def tokens(file):
            status, out, err = self.run_it("--text", file, "--window", "8", "--device", "cpu", "--json")
            self.assertEqual(status, 0, err)
            return json.loads(out)["quality"]["predictions"]["tokens"]
        one = tokens(self.write("one.txt", said))
        self.assertGreater(one, 4)
        self.assertEqual(tokens(self.write("two.jsonl", 2 * (json.dumps({"text": said}) + "\n"))), 2 * one)

    def test_shares_of_outputs_are_of_the_references_tokens(self):
        """The target ends one of its texts early, the draft none."""
        target = str(SOURCE / "experiments" / "models" / "target")
        prompts = self.write("p.jsonl", "".join(json.dumps({"prompt": p}) + "\n" for p in
                                                ("The lamp had burned low when", "one two three")))
        written = 0
        for line in Path(prompts).read_text().splitlines():
            done = subprocess.run([PROGRAM, "generate", "--model", target, "--device", "cpu", "--threads", "1",
                                   "--max-new-tokens", "240", "--prompt", json.loads(line)["prompt"]],
                                  capture_output=True, text=True, timeout=120)
            written += int(re.match(r"foretoken: (\d+) tokens ", done.stderr)[1])
        self.assertTrue(240 < written < 480, written)
        status, out, err = self.run_it("--reference", target, "--prompts", prompts, "--tokens", "50", "--limit", "0",
                                       "--max-new-tokens", "240", "--device", "cpu", "--threads", "1", "--json")
        self.assertEqual(status, 0, err)
        found = json.loads(out)["quality"]["outputs"]
        common = 2 * found["common_prefix"]["value"]
        self.assertGreater(common, 0)
        self.assertEqual(found["prompts"], 2)
        self.assertAlmostEqual(found["common_prefix_share"]["value"], common / written)

    def test_bad_input(self):
        empty, short = self.write("empty.txt", ""), self.write("short.txt", "a")
        pipe = str(self.here / "pipe")
        os.mkfifo(pipe)
        self.refused("--text", empty, words=[empty, "is empty", "--text"])
        self.refused("--text", short, words=["too short"])
        self.refused("--text", pipe, words=[pipe, "regular file"])
        self.refused("--text", str(self.here), words=["directory", "regular file"])
        self.refused("--text", "absent.txt", words=["absent.txt", "does not exist"])
        self.refused("--prompts", empty, "--dtype", "int8", words=["no prompts"])
        self.refused("--dtype", "int3", words=["int3", "int8"])
        self.refused("--reference", '{"random": "llama-3.2-1b"}', words=["different vocabularies", "llama-3.2-1b"])
        self.refused("--reference", "{", words=["--reference", "not valid JSON"])
        self.refused("--reference", "absent", words=["absent", "does not exist"])
        self.refused("--model", "absent", words=["absent", "does not exist"])
        self.refused("--window", "100000", words=["longer than the context", "--window"])
        self.refused("--window", "16", "--stride", "16", words=["--stride"])
        self.refused("--device", "gpu", words=["gpu"])
        self.refused("--results", short, words=["short.txt:1"])
        self.refused("--tokens", "0", words=["--tokens"], code=2)
        self.refused("--text", "", words=["--text", "empty"], code=2)

    def test_interrupt(self):
        process = subprocess.Popen(self.command("--dtype", "int8", "--device", "cpu", "--threads", "1", "--limit", "0",
                                                "--max-new-tokens", "1000"),
                                   cwd=self.here, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        process.stderr.readline()  # progress: it is measuring
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, ""), err)
        self.assertIn("foretoken: interrupted", err)


if __name__ == "__main__":
    unittest.main()
