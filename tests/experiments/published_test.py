"""The documents of experiments/configs/published: each runs with stand-ins, and its results stand beside the paper's."""

import csv
import io
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
FOLDER = SOURCE / "experiments" / "configs" / "published"
DOCUMENTS = sorted(FOLDER.glob("*.json"))
CPU = ["--set", "/engine/device=cpu", "--set", "/engine/threads=1"]
TINY = [*CPU, "--set", "/workload/limit=6", "--set", "/workload/max_new_tokens=4", "--set", "/measure/repeats=1",
        "--set", "/measure/warmup=false"]


class Published(InFolder):
    def run_it(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.here, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    def succeeds(self, *arguments):
        status, out, err = self.run_it(*arguments)
        self.assertEqual(status, 0, err)
        return out

    def refused(self, words, *arguments):
        status, out, err = self.run_it(*arguments)
        self.assertEqual((status, out, err.count("\n")), (1, "", 1), err)
        for word in words:
            self.assertIn(word, err)

    def test_every_document_runs_with_stand_ins(self):
        self.assertEqual(len(DOCUMENTS), 10)
        for document in DOCUMENTS:
            with self.subTest(document.name):
                self.succeeds("run", str(document), "--stand-ins", "--rehearse", "--quiet", *CPU)

    def test_a_dry_run_lists_the_runs_of_models_that_are_not_there(self):
        runs = json.loads(self.succeeds("run", str(FOLDER / "spec_bench.json"), "--dry-run", "--json", *CPU))
        self.assertIn("FasterDecoding/medusa-vicuna-7b-v1.3", json.dumps(runs))

    def test_models_that_are_not_there_are_named_with_where_they_come_from(self):
        status, _, err = self.run_it("run", str(FOLDER / "block_verification.json"), "--rehearse", *CPU)
        self.assertEqual(status, 1)
        self.assertIn("lmsys/vicuna-7b-v1.3 does not exist", err)
        self.assertIn("a name on the Hugging Face hub, download the model to this path", err)

    def measured(self, name, *more):
        self.succeeds("run", str(FOLDER / f"{name}.json"), "--stand-ins", "--quiet", *TINY, *more)
        return f"results/{name}.jsonl", str(FOLDER / f"{name}.json")

    def test_spec_bench_by_its_categories(self):
        """Six prompts of the demo models under the names of Spec-Bench's categories."""
        texts = [json.loads(line)["prompt"] for line in (SOURCE / "experiments/prompts.jsonl").read_text().splitlines()]
        names = ["writing", "translation", "summarization", "qa", "math_reasoning", "rag"]
        prompts = self.write("prompts.jsonl", "".join(
            json.dumps({"category": name, "turns": [text]}) + "\n" for name, text in zip(names, texts)))
        pair = self.measured("spec_bench", "--set", f"/names/prompts={prompts}")
        found = json.loads(self.succeeds("compare", "--published", *pair, "--json"))
        speedups, tokens = found["tables"]
        self.assertEqual((speedups["metric"], tokens["metric"]), ("question_speedup", "tokens_per_step"))
        self.assertEqual(len(tokens["rows"]), 8)
        for row in speedups["rows"] + tokens["rows"]:
            self.assertEqual(row["models"], "stand-ins", row)
            self.assertGreater(row["here"]["value"], 0, row)
            self.assertAlmostEqual(row["ratio"], row["here"]["value"] / row["paper"])
        # #Mean Accepted Tokens counts the target's own token, as tau does.
        for row in tokens["rows"]:
            self.assertAlmostEqual(row["here"]["value"], row["ours"]["value"])
            self.assertGreaterEqual(row["here"]["value"], 1)
        # One prompt each: the ratio of its own speeds.
        lines = [json.loads(line) for line in (self.here / pair[0]).read_text().splitlines()]
        line = next(line for line in lines if line["run"]["drafter"]["name"] == "ngram")
        sides = [next(r for r in line["repeats"][0][side]["requests"] if r["category"] == "rag")
                 for side in ("speculative", "baseline")]
        fast, plain = (side["tokens"] / side["share_seconds"] for side in sides)
        row = next(r for r in speedups["rows"] if r["row"] == "PLD" and r.get("categories") == ["rag"])
        self.assertAlmostEqual(row["here"]["value"], fast / plain, places=6)

    def test_vllms_acceptance_in_every_format(self):
        pair = self.measured("vllm_acceptance")
        compare = lambda form: self.succeeds("compare", "--published", *pair, "--format", form)
        found = json.loads(compare("json"))
        side = next(json.loads(line) for line in (self.here / pair[0]).read_text().splitlines())
        row = found["tables"][0]["rows"][0]
        self.assertEqual(row["key"], side["key"])
        side = side["repeats"][0]["speculative"]
        self.assertAlmostEqual(row["here"]["value"], 1 + side["accepted"] / side["drafted_at"][0])
        second = found["tables"][1]["rows"][1]
        self.assertEqual(second["position"], 2)
        self.assertAlmostEqual(second["here"]["value"], side["accepted_at"][1] / side["drafted_at"][0])
        rows = list(csv.DictReader(io.StringIO(compare("csv"))))
        self.assertEqual(len(rows), sum(len(table["rows"]) for table in found["tables"]))
        self.assertEqual(rows[0]["published"], "2.6")
        words = {"markdown": "| llama3-8b-eagle3 |", "latex": r"\toprule", "terminal": "stand-in models"}
        for form, word in words.items():
            self.assertIn(word, compare(form))

        # Its runs are those of the document with stand-ins, and none of those without.
        with_stand_ins = ("--sweep", pair[1], "--stand-ins", *TINY)
        shown = json.loads(self.succeeds("show", pair[0], *with_stand_ins, "--json"))
        self.assertEqual(len(shown["cells"]), 2)
        self.succeeds("merge", pair[0], "--out", "merged.jsonl", *with_stand_ins)
        self.assertEqual((self.here / "merged.jsonl").read_text(), (self.here / pair[0]).read_text())
        status, _, err = self.run_it("show", pair[0], "--sweep", pair[1], *TINY)
        self.assertEqual(status, 1)
        self.assertIn(f"none of the 2 results in {pair[0]} is of a run of", err)

    def test_mistakes_are_one_sentence(self):
        document = str(FOLDER / "leviathan.json")
        plain = self.write("plain.json", {"base": {"target": {"model": "m"}, "workload": {"prompts": "p"}}})
        self.refused(["no \"stand_ins\""], "run", plain, "--stand-ins")
        self.refused(["no \"stand_ins\""], "merge", plain, "--out", "m.jsonl", "--sweep", plain, "--stand-ins")
        self.refused(["sets none of its names", "did you mean 'target'"], "run", document, "--set", "/names/targets=x")
        self.refused(["holds no result"], "compare", "--published", self.write("none.jsonl", ""), document)
        self.refused(["no \"published\" figures"], "compare", "--published", "none.jsonl", plain)
        line = json.dumps(next(iter(json.loads(Path(document).read_text()).values())))
        self.refused(["none.json"], "compare", "--published", self.write("none.json", line + "\n"), document)


class Converter(InFolder):
    def convert(self, *arguments, **environment):
        script = SOURCE / "experiments" / "models" / "convert_checkpoint.py"
        done = subprocess.run([sys.executable, script, *arguments], cwd=self.here, capture_output=True, text=True,
                              timeout=300, env={**os.environ, **environment})
        return done.returncode, done.stderr

    def test_what_cannot_be_converted_is_one_sentence(self):
        (self.here / "empty").mkdir()
        (self.here / "shards").mkdir()
        self.write("shards/pytorch_model.bin.index.json", {"weight_map": {"a": "one.bin", "b": "two.bin"}})
        for arguments, word in ((("none", "out"), "no directory"), (("empty", "out"), "nothing to convert"),
                                (("shards", "out"), "one.bin, two.bin"), (("empty", "shards"), "not empty")):
            status, err = self.convert(*arguments)
            self.assertEqual((status, err.count("\n")), (1, 1), err)
            self.assertIn(word, err)

    def test_shards_and_the_index_without_pytorch(self):
        """With modules of their names that read and write JSON: which tensors go where."""
        modules = self.here / "modules"
        (modules / "safetensors").mkdir(parents=True)
        (modules / "torch.py").write_text(
            "import json\n\nclass Tensor:\n    nbytes = 8\n    contiguous = clone = lambda self: self\n\n"
            "def load(file, map_location, weights_only, mmap=False):\n"
            "    return {name: Tensor() for name in json.load(open(file))}\n")
        (modules / "safetensors" / "__init__.py").write_text("")
        (modules / "safetensors" / "torch.py").write_text(
            "import json\n\ndef save_file(weights, file, metadata):\n    json.dump(sorted(weights), open(file, 'w'))\n")
        (self.here / "in").mkdir()
        self.write("in/config.json", {}), self.write("in/tokenizer.json", {})
        self.write("in/one.bin", ["a", "x.rotary_emb.inv_freq"]), self.write("in/two.bin", ["b"])
        self.write("in/pytorch_model.bin.index.json", {"weight_map": {"a": "one.bin", "b": "two.bin"}})
        status, err = self.convert("in", "out", PYTHONPATH=str(modules))
        self.assertEqual(status, 0, err)
        index = json.loads((self.here / "out/model.safetensors.index.json").read_text())
        self.assertEqual(index["weight_map"], {"a": "model-00001-of-00002.safetensors",
                                               "b": "model-00002-of-00002.safetensors"})
        self.assertEqual(index["metadata"]["total_size"], 16)
        self.assertEqual(sorted(file.name for file in (self.here / "out").iterdir()),
                         ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json", "tokenizer.json"])
        self.write("in/two.bin", ["a"])
        status, err = self.convert("in", "again", PYTHONPATH=str(modules))
        self.assertEqual((status, err.count("\n")), (1, 1), err)
        self.assertIn("both have the tensor 'a'", err)

    def test_shards_become_safetensors(self):
        try:
            import torch
            from safetensors.torch import load_file
        except ImportError:
            self.skipTest("PyTorch or safetensors is missing")
        folder = self.here / "in"
        folder.mkdir()
        self.write("in/config.json", {}), self.write("in/tokenizer.json", {})
        first, second = {"a": torch.ones(2, 3), "x.rotary_emb.inv_freq": torch.ones(2)}, {"b": torch.zeros(4)}
        torch.save(first, folder / "one.bin"), torch.save(second, folder / "two.bin")
        self.write("in/pytorch_model.bin.index.json", {"weight_map": {"a": "one.bin", "b": "two.bin"}})
        status, err = self.convert("in", "out")
        self.assertEqual(status, 0, err)
        index = json.loads((self.here / "out/model.safetensors.index.json").read_text())["weight_map"]
        self.assertEqual(sorted(index), ["a", "b"])
        self.assertTrue(torch.equal(load_file(self.here / "out" / index["a"])["a"], first["a"]))
        self.assertTrue((self.here / "out/tokenizer.json").is_file())


if __name__ == "__main__":
    unittest.main()
