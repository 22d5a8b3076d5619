"""One request of a run cannot be served: it is recorded with its reason, and the others are measured as without it. The
model is the demo target, but for one token whose embedding is NaN."""

import json
import os
import struct
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
TARGET = SOURCE / "experiments" / "models" / "target"
PROMPTS = ["The lamp had burned low when", "A sign ~ of the times", "She counted one, two, three, one, two,"]


def poisoned_model(folder):
    """The head gets an embedding of its own, so that the token can still be counted among the logits."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((TARGET / name).read_bytes())
    config = json.loads((TARGET / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    weights = (TARGET / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", weights[:8])[0]
    header, data = json.loads(weights[8:8 + length]), bytearray(weights[8 + length:])
    begin, end = header["model.embed_tokens.weight"]["data_offsets"]
    offsets = [len(data), len(data) + end - begin]
    header["lm_head.weight"] = {**header["model.embed_tokens.weight"], "data_offsets": offsets}
    data += data[begin:end]
    row = (end - begin) // config["vocab_size"]
    token = json.loads((TARGET / "tokenizer.json").read_text())["model"]["vocab"]["~"]
    data[begin + token * row:begin + (token + 1) * row] = b"\xc0\x7f" * (row // 2)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    return folder


def done_by(requests):
    return {(r["tokens"], r["rounds"], r["drafted"], r["accepted"], r["finish"]) for r in requests}


class FailedRequests(InFolder):
    def setUp(self):
        super().setUp()
        self.model = poisoned_model(self.here / "model")

    def run_it(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.here, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def measured(self, name, prompts, **keys):
        (self.here / f"{name}.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
        (self.here / f"{name}.json").write_text(json.dumps({
            "target": {"model": str(self.model)}, "drafter": {"name": "ngram"},
            "engine": {"batch": 2, "device": "cpu", "threads": 1, "check": True}, "measure": {"repeats": 1},
            "workload": {"prompts": f"{name}.jsonl", "repeats": 12, "lengths": "equal", "max_new_tokens": 8}, **keys}))
        status, out, err = self.run_it("run", f"{name}.json", "--results", f"{name}-results.jsonl")
        return status, out, err, json.loads((self.here / f"{name}-results.jsonl").read_text().splitlines()[-1])

    def test_a_run_records_them_and_goes_on(self):
        status, out, err, line = self.measured("some", PROMPTS)
        self.assertEqual(status, 1, err)
        self.assertRegex(err, r"\d+ requests failed .* of prompt 2 \(baseline\): the logits at position \d+ hold a NaN")
        self.assertNotIn("error", line)
        failures = line["failures"]
        self.assertEqual({(f["prompt"], f["side"], f["repeat"]) for f in failures},
                         {(1, "baseline", 0), (1, "speculative", 0)})
        for failure in failures:
            request = line["repeats"][0][failure["side"]]["requests"][failure["request"]]
            self.assertEqual((request["prompt"], request["finish"]), (1, "failed"))
            self.assertEqual(request["failure"], failure["failure"])
            self.assertEqual((request["tokens"], request["rounds"]), (0, 0))
        requests = len(line["repeats"][0]["speculative"]["requests"])
        self.assertEqual(line["agreement"], {"compared": True, "compared_texts": requests - len(failures) // 2,
                                             "differing_texts": 0})
        self.assertRegex(out, rf"{len(failures)} failed")
        shown = json.loads(self.run_it("show", "some-results.jsonl", "--json")[1])["cells"][0]["figures"]
        for side in ("baseline", "speculative"):
            served = [r for r in line["repeats"][0][side]["requests"] if r["prompt"] != 1]
            for key in ("tokens", "rounds", "drafted", "accepted", "prompt_tokens"):
                self.assertEqual(shown[side][key], sum(r[key] for r in served), key)
        self.assertEqual((shown["failed_requests"], shown["prompts"], shown["positions"]), (len(failures), 2, []))
        # The other requests give what they give without it.
        _, _, _, without = self.measured("others", [PROMPTS[0], PROMPTS[2]])
        for side in ("baseline", "speculative"):
            served = [r for r in line["repeats"][0][side]["requests"] if r["finish"] != "failed"]
            self.assertEqual(done_by(served), done_by(without["repeats"][0][side]["requests"]))

    def test_a_traced_run_is_measured_as_without_a_trace(self):
        _, _, _, without = self.measured("without", PROMPTS)
        for dense in (False, True):
            name = f"traced{int(dense)}"
            status, _, err, line = self.measured(name, PROMPTS, trace={"file": f"{name}-trace.jsonl", "dense": dense})
            self.assertEqual(status, 1, err)
            self.assertNotIn("error", line)
            self.assertEqual(line["failures"], without["failures"])
            failed = len(line["failures"]) // 2
            self.assertRegex(err, rf"{failed} of \d+ requests failed while {name}-trace.jsonl was recorded")
            for side in ("baseline", "speculative"):
                served = [done_by(other["repeats"][0][side]["requests"]) for other in (line, without)]
                self.assertEqual(*served)
        status, out, err = self.run_it("replay", "traced1-trace.jsonl", "--format", "json")
        self.assertEqual(status, 0, err)

    def test_a_run_in_which_all_failed_has_an_error(self):
        status, _, err, line = self.measured("all", [PROMPTS[1]])
        self.assertEqual(status, 1, err)
        self.assertRegex(line["error"], r"^all \d+ requests failed \(baseline\); the first: the logits at position")
        self.assertEqual(line["repeats"], [])

    def test_generate_says_so(self):
        arguments = ("generate", "--model", str(self.model), "--device", "cpu", "--max-new-tokens", "4", "--prompt")
        for samples in ((), ("--samples", "2", "--temperature", "1")):
            status, _, err = self.run_it(*arguments, PROMPTS[1], *samples)
            self.assertEqual((status, err.count("\n")), (1, 1), err)
            self.assertRegex(err, r"^foretoken: the logits at position \d+ hold a NaN")
        self.assertEqual(self.run_it(*arguments, PROMPTS[0])[0], 0)


if __name__ == "__main__":
    unittest.main()
