"""`foretoken quantize` as a user runs it: what it prints, Ctrl-C and going on, a full disk, and bad input."""

import json
import os
import re
import resource
import signal
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODELS = SOURCE / "experiments" / "models"

# Errors of the outputs of the draft's two layers rounded to nearest in int4, over the first 600 tokens of the prompts,
# computed apart from the program.
NEAREST = (0.0975, 0.1015)


class Quantize(InFolder):
    def command(self, *arguments, model="draft", form="int4"):
        return [PROGRAM, "quantize", "--model", str(MODELS / model), "--format", form, *arguments]

    def run_it(self, *arguments, limit=None, **options):
        def bounded():
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        done = subprocess.run(self.command(*arguments, **options), cwd=self.here, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, preexec_fn=bounded)
        return done.returncode, done.stdout, done.stderr

    def names(self):
        return sorted(path.name for path in self.here.iterdir())

    def test_report(self):
        status, out, err = self.run_it("--out", "a", "--json")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual((report["format"], len(report["layers"])), ("int4", 2))
        for layer in report["layers"]:
            self.assertTrue(0.01 < layer["error"] < 0.2)
            self.assertGreaterEqual(layer["worst"], layer["error"])
            self.assertIn("_proj", layer["matrix"])
        self.assertEqual(self.names(), ["a"])
        config = json.loads((self.here / "a" / "config.json").read_text())
        self.assertEqual(config["quantization_config"]["format"], "pack-quantized")
        self.assertEqual((self.here / "a" / "tokenizer.json").read_bytes(),
                         (MODELS / "draft" / "tokenizer.json").read_bytes())
        stored = sum(path.stat().st_size for path in (self.here / "a").glob("*.safetensors"))
        self.assertLess(stored, 0.7 * (MODELS / "draft" / "model.safetensors").stat().st_size)
        status, out, err = self.run_it("--out", "b", form="nf4")
        self.assertEqual(status, 0, err)
        for word in ("Rounding to nf4 by rtn", "layer", "error", "_proj"):
            self.assertIn(word, out)
        rows = re.findall(r"^ *(\d+) +(0\.\d{5}) +- +(0\.\d{5}) +\w+\.\w+_proj$", out, re.MULTILINE)
        self.assertEqual([layer for layer, _, _ in rows], ["0", "1"], out)
        for _, error, worst in rows:
            self.assertLessEqual(error, worst)

    def test_calibrated(self):
        """Each method by a text: outputs are nearer to the dense ones than weights are, or as near in 8 bits."""
        text = ["--calibrate", str(SOURCE / "experiments" / "prompts.jsonl"), "--tokens", "600", "--device", "cpu",
                "--json"]
        for form, arguments, actorder, inputs in (
            ("int4", ["--method", "gptq"], None, None),
            ("int4", ["--method", "gptq", "--act-order"], "static", None),
            ("int4", ["--method", "awq"], None, None),
            ("int8", ["--method", "smoothquant", "--alpha", "0.6"], None, "token"),
        ):
            out_name = "-".join([form, *arguments]).replace("--", "")
            status, out, err = self.run_it("--out", out_name, *arguments, *text, form=form)
            self.assertEqual(status, 0, err)
            for layer, nearest in zip(json.loads(out)["layers"], NEAREST):
                self.assertTrue(0 < layer["outputs"] < (0.02 if form == "int8" else 0.95 * nearest), layer)
            config = json.loads((self.here / out_name / "config.json").read_text())["quantization_config"]
            group = config["config_groups"]["group_0"]
            self.assertEqual(group["weights"]["actorder"], actorder)
            self.assertEqual((group["input_activations"] or {}).get("strategy"), inputs)
        self.assertFalse([name for name in self.names() if "partial" in name])

    def test_sparse(self):
        """2:4 by magnitude and by the inputs of a text; what is written is read again."""
        text = ["--method", "wanda", "--calibrate", str(SOURCE / "experiments" / "prompts.jsonl"), "--tokens", "600",
                "--device", "cpu"]
        for name, arguments in (("size", []), ("inputs", text)):
            status, out, err = self.run_it("--out", name, *arguments, "--json", form="sparse24")
            self.assertEqual(status, 0, err)
            for layer in json.loads(out)["layers"]:
                self.assertTrue(0.2 < layer["error"] < 0.5, layer)
                self.assertEqual(layer["outputs"] is None, name == "size", layer)
            config = json.loads((self.here / name / "config.json").read_text())["quantization_config"]
            self.assertEqual(config["sparsity_config"]["format"], "sparse-24-bitmask")
            done = subprocess.run([PROGRAM, "generate", "--model", name, "--prompt", "Once", "--max-new-tokens", "4",
                                   "--device", "cpu"], cwd=self.here, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_interrupt(self):
        process = subprocess.Popen(self.command("--out", "a", model="target"), cwd=self.here, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stderr.readline()  # the first layer begins
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, ""), err)
        self.assertNotIn("a", self.names())
        status, out, err = self.run_it("--out", "a", "--json", model="target")
        self.assertEqual(status, 0, err)
        self.assertEqual(len(json.loads(out)["layers"]), 8)
        self.assertEqual(self.names(), ["a"])

    def test_full_disk(self):
        """The limit of a file's size stands for it: no shard fits."""
        status, out, err = self.run_it("--out", "a", "--quiet", limit=50_000)
        self.assertEqual((status, out), (1, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn("cannot be written", err)
        self.assertEqual(self.names(), [])

    def test_bad_input(self):
        (self.here / "there").mkdir()
        for arguments, options, words in (
            (["--out", "there"], {}, ["there", "exists already"]),
            (["--out", "a"], {"form": "int3"}, ["int3", "int4"]),
            (["--out", "a"], {"model": "absent"}, ["absent", "does not exist"]),
            (["--out", "no/such/folder/a"], {"model": "training"}, ["config.json"]),
            (["--out", "a", "--method", "awq"], {}, ["awq", "--calibrate"]),
            (["--out", "a", "--method", "smoothquant", "--calibrate", "x"], {}, ["smoothquant", "--format int8"]),
            (["--out", "a", "--method", "smoothquant", "--calibrate", "x", "--alpha", "2"], {"form": "int8"},
             ["alpha", "0 to 1"]),
            (["--out", "a", "--method", "gptq", "--calibrate", "x"], {"form": "sparse24"},
             ["gptq", "sparse24", "wanda"]),
            (["--out", "a", "--method", "wanda", "--calibrate", "x"], {}, ["wanda", "--format sparse24"]),
            (["--out", "a", "--act-order"], {}, ["rtn", "--act-order"]),
            (["--out", "a", "--device", "cpu"], {}, ["rtn", "leave --device out"]),
            (["--out", "a", "--tokens", "99"], {}, ["rtn", "leave --tokens out"]),
            (["--out", "a"], {"model": "draft/model.safetensors"}, ["is a file", "directories"]),
            (["--out", "a", "--method", "gptq", "--calibrate", str(SOURCE / "LICENSE"), "--tokens", "99"], {},
             ["too few", "128"]),
        ):
            status, out, err = self.run_it(*arguments, **options)
            self.assertEqual((status, out), (1, ""), err)
            self.assertEqual(err.count("\n"), 1, err)
            for word in words:
                self.assertIn(word, err)
        self.assertEqual(self.names(), ["there"])
        for arguments in (["--method", "magic"], ["--method", "awq", "--calibrate", "x", "--device", "gpu"]):
            self.assertEqual(self.run_it("--out", "a", *arguments)[0], 2)


if __name__ == "__main__":
    unittest.main()
