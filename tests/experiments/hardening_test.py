"""The program with damaged files, full disks and folders without permission to write: one sentence that names the
file and the remedy, and exit code 1; earlier results are kept."""

import json
import os
import resource
import shutil
import struct
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODEL = SOURCE / "experiments" / "models" / "draft"
NOBODY = 65534
RUN = {
    "target": {"model": "model"},
    "drafter": {"name": "ngram"},
    "engine": {"batch": 1, "device": "cpu", "threads": 1},
    "workload": {"prompts": "prompts.jsonl", "repeats": 6, "max_new_tokens": 2},
    "measure": {"repeats": 1, "warmup": False},
}


class Hardening(InFolder):
    def setUp(self):
        super().setUp()
        self.here.chmod(0o755)
        self.model = self.here / "model"
        shutil.copytree(MODEL, self.model)
        (self.here / "prompts.jsonl").write_text('{"prompt": "The lamp had burned low"}\n')
        self.write_run()

    def write_run(self, **changes):
        (self.here / "run.json").write_text(
            json.dumps({"base": {**RUN, **changes}, "axes": {"/sampling/seed": list(range(3))}})
        )

    def start(self, *arguments, **how):
        return subprocess.run(
            [*how.pop("under", ()), str(how.pop("program", PROGRAM)), *arguments],
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            **how,
        )

    def refused(self, *arguments, words=(), **how):
        done = self.start(*arguments, **how)
        self.assertEqual(done.returncode, 1, (arguments, done.stdout, done.stderr))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("foretoken: "), done.stderr)
        self.assertNotIn("should not happen", done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def generate(self, *words, **how):
        self.refused(
            "generate", "--model", "model", "--device", "cpu", "--prompt", "x", *how.pop("more", ()), words=words
        )

    def lines(self, path="results/run.jsonl"):
        return (self.here / path).read_text().splitlines()

    def places(self):
        """Every kind of file that is read: its path, and the command that reads it."""
        (self.here / "results.jsonl").write_text("")
        generate = ["generate", "--model", "model", "--device", "cpu", "--prompt", "x"]
        yield from (
            (f"model/{name}", generate)
            for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")
        )
        yield "model/tokenizer_config.json", [*generate, "--set", "/workload/chat=auto"]
        yield "prompts.jsonl", ["run", "run.json", "--quiet"]
        yield "run.json", ["run", "run.json"]
        yield "scenarios.json", ["bench", "--steps", "scenarios.json"]
        yield "plugin.so", ["list", "--plugin", "plugin.so"]
        yield "results.jsonl", ["show", "results.jsonl"]

    def test_files_of_0_bytes(self):
        for name, command in self.places():
            with self.subTest(name):
                file = self.here / name
                before = file.read_bytes() if file.exists() else None
                file.write_bytes(b"")
                if name == "prompts.jsonl":  # an error of each run, which is recorded
                    done = self.start(*command, "--keep-going")
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("prompts.jsonl", json.loads(self.lines()[0])["error"])
                else:
                    self.refused(*command, words=[] if name == "results.jsonl" else [name])
                if before is not None:
                    file.write_bytes(before)

    def test_what_nobody_offers_is_not_to_be_downloaded(self):
        """Files that users make: results, runs, prompts, scenarios."""
        (self.here / "broken.json").write_text('{"a": ,}')
        (self.here / "deep.json").write_text("[" * 300)
        (self.here / "lacking.json").write_text('{"scenarios": [{"name": "x"}]}')
        (self.here / "plugin.so").write_text("")
        for name in ("none.json", "broken.json", "deep.json"):
            for command in (["show"], ["run"], ["bench", "--steps"]):
                done = self.start(*command, name)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
                self.assertIn(name, done.stderr)
                self.assertNotIn("download", done.stderr)
        for command, words in ((["bench", "--steps", "lacking.json"], ["has no", "add it"]),
                               (["list", "--plugin", "plugin.so"], ["plugin.so is empty", "replace it"])):
            done = self.start(*command)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)
            self.assertNotIn("download", done.stderr)
        for prompts in ("none.jsonl", "broken.json"):
            self.write_run(workload={"prompts": prompts})
            results = prompts + ".r"
            done = self.start("run", "run.json", "--quiet", "--keep-going", "--results", results)
            self.assertEqual(done.returncode, 1)
            error = json.loads(self.lines(prompts + ".r")[0])["error"]
            self.assertIn(prompts, error)
            self.assertNotIn("download", error)

    def test_shards_of_0_bytes(self):
        (self.model / "model.safetensors").unlink()
        (self.model / "model.safetensors.index.json").write_text("")
        self.generate("index.json", "empty")
        (self.model / "a.safetensors").write_text("")
        (self.model / "model.safetensors.index.json").write_text(
            '{"weight_map": {"model.norm.weight": "a.safetensors"}}'
        )
        self.generate("a.safetensors", "empty", "download")

    def test_symbolic_links_in_a_loop(self):
        for name, command in self.places():
            with self.subTest(name):
                file = self.here / name
                before = file.read_bytes() if file.exists() else None
                file.unlink(missing_ok=True)
                file.symlink_to(file.name)
                if name == "prompts.jsonl":
                    done = self.start(*command, "--keep-going")
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("symbolic links", json.loads(self.lines()[0])["error"])
                else:
                    self.refused(*command, words=[name, "symbolic link"])
                file.unlink()
                if before is not None:
                    file.write_bytes(before)
        (self.here / "loop").symlink_to("loop")
        self.refused("generate", "--model", "loop", "--prompt", "x", words=["loop", "symbolic links"])
        for place in ("loop", "loop/run.jsonl"):
            self.refused("run", "run.json", "--results", place, words=["symbolic links", "--results"])

    def test_headers_that_lie(self):
        def header(entries, data=b"", length=None):
            text = json.dumps(entries).encode()
            (self.model / "model.safetensors").write_bytes(
                struct.pack("<Q", len(text) if length is None else length) + text + data
            )

        entry = lambda shape, begin, end: {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        header({}, length=2**60)
        self.generate("model.safetensors", "1152921504606846976", "download")
        header({"a": entry([1000], 0, 4000)}, b"1234")
        self.generate("model.safetensors", "truncated", "'a'", "download")
        header({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12))
        self.generate("model.safetensors", "'b' overlaps tensor 'a'", "download")
        header({"a": entry([2**40, 2**40], 0, 2**62)}, b"1234")
        self.generate("model.safetensors", "'a'", "download")
        header({"a\n\x1b[2J": entry([2], 0, 4)}, b"1234")
        self.generate("model.safetensors")

    def expect_resumed(self):
        done = self.start("run", "run.json", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len({json.loads(line)["key"] for line in self.lines()}), 3)

    def test_a_limit_on_the_size_of_files(self):
        self.start("run", "run.json", "--quiet")
        first = self.lines()[0] + "\n"
        (self.here / "results/run.jsonl").write_text(first)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(first) + 100, resource.RLIM_INFINITY))
        self.refused(
            "run",
            "run.json",
            "--quiet",
            words=["results/run.jsonl", "make room", "finished runs are kept"],
            preexec_fn=limit,
        )
        self.assertEqual((self.here / "results/run.jsonl").read_text(), first)
        self.expect_resumed()

    def test_a_full_disk(self):
        mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=8k none results && exec "$@"', "sh"]
        (self.here / "results").mkdir()
        if (
            not shutil.which("unshare")
            or subprocess.run([*mount, "true"], cwd=self.here, capture_output=True).returncode != 0
        ):
            self.skipTest("no file system may be mounted here; the limit on the size of files stands for a full disk")
        self.write_run(
            drafter={"name": "ngram"},
            workload={"prompts": "prompts.jsonl", "repeats": 144, "max_new_tokens": 2, "categories": []},
            plugins=[],
            engine={**RUN["engine"], "batch": 24},
        )  # a line of some kB
        self.refused(
            "run", "run.json", "--quiet", words=["results/run.jsonl", "No space left", "make room"], under=mount
        )

    def test_a_folder_that_may_not_be_written(self):
        (self.here / "results").mkdir()
        (self.here / "results").chmod(0o555)
        how = {}
        if os.geteuid() == 0:  # root may write everywhere: another user, who cannot read the folders above the program
            how = {
                "user": NOBODY,
                "group": NOBODY,
                "extra_groups": [],
                "program": shutil.copy(PROGRAM, self.here / "foretoken"),
            }
            self.assertEqual(self.start("version", **how).returncode, 0)
        self.refused("run", "run.json", "--quiet", words=["results/run.jsonl", "Permission denied", "--results"], **how)
        self.refused(
            "run",
            "run.json",
            "--quiet",
            "--results",
            "results/new/run.jsonl",
            words=["results/new", "--results"],
            **how,
        )

    def test_too_many_runs(self):
        axes = {f"/sampling/{key}": list(range(1, 60)) for key in ("seed", "top_k", "temperature")}
        (self.here / "run.json").write_text(json.dumps({"base": RUN, "axes": axes}))
        self.refused("run", "run.json", words=["20000", "divide the sweep"])


if __name__ == "__main__":
    unittest.main()
