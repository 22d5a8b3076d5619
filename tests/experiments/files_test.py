"""Files of the program: named pipes, closed descriptors, foreign results, files that changed meanwhile."""

import gzip
import json
import lzma
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODELS = SOURCE / "experiments" / "models"
RUN = {
    "target": {"model": "model"},
    "drafter": {"name": "ngram"},
    "engine": {"batch": 1, "device": "cpu", "threads": 1},
    "workload": {"prompts": "prompts.jsonl", "repeats": 6, "max_new_tokens": 2},
    "measure": {"repeats": 1, "warmup": False},
}
FORMATS = {  # of compressed files, by the end of their names: what compresses, and the two tools
    ".gz": (gzip.compress, "gzip", "gunzip"),
    ".xz": (lzma.compress, "xz", "unxz"),
}
TEMPLATE = "{{ '<|im_start|>' }}"


class Files(InFolder):
    def setUp(self):
        super().setUp()
        self.model = self.here / "model"
        shutil.copytree(MODELS / "draft", self.model)
        (self.here / "prompts.jsonl").write_text('{"prompt": "The lamp had burned low"}\n')
        self.write("run.json", {"base": RUN, "axes": {"/sampling/seed": [1, 2]}})

    def start(self, *arguments, timeout=120, **how):
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return subprocess.run([PROGRAM, *arguments], cwd=self.here, text=True, timeout=timeout, **how)

    def run_it(self, *arguments, **how):
        done = self.start("run", "run.json", "--quiet", *arguments, **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, *arguments, words=(), **how):
        done = self.start(*arguments, **how)
        self.assertEqual((done.returncode, done.stdout), (1, ""), (arguments, done.stderr))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("foretoken: "), done.stderr)
        self.assertNotIn("should not happen", done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def lines(self, name="results/run.jsonl"):
        return [json.loads(line) for line in (self.here / name).read_text().splitlines()]

    def test_closed_descriptors_do_not_become_the_results_file(self):
        for closed in ((2,), (1, 2), (0, 1, 2)):
            with self.subTest(closed):
                close = lambda: [os.close(number) for number in closed]
                done = self.start("run", "run.json", "--results", "closed.jsonl", preexec_fn=close)
                self.assertEqual(done.returncode, 1 if 1 in closed else 0, "standard output cannot be written")
                self.assertEqual(len(self.lines("closed.jsonl")), 2)
                (self.here / "closed.jsonl").unlink()

    def test_named_pipes_are_refused_by_every_reader(self):
        """No reader waits for a writer that never comes, and a run's error names its prompts."""
        generate = ["generate", "--model", "model", "--device", "cpu", "--prompt", "x"]
        run = ["run", "run.json", "--quiet"]
        self.write("chat.json", {**RUN, "workload": {**RUN["workload"], "chat": "auto"}})
        model = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")
        shutil.copytree(self.model, self.here / "shards")
        shard = "model-00001-of-00001.safetensors"
        (self.here / "shards/model.safetensors").rename(self.here / "shards" / shard)
        with (self.here / "shards" / shard).open("rb") as file:
            names = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        index = {"weight_map": {name: shard for name in names if name != "__metadata__"}}
        self.write("shards/model.safetensors.index.json", index)
        sharded = ["generate", "--model", "shards", *generate[3:]]
        self.assertEqual(self.start(*sharded).returncode, 0, "the shards are a model")
        places = [
            *((f"model/{name}", generate) for name in model),
            ("shards/model.safetensors.index.json", sharded),
            (f"shards/{shard}", sharded),
            ("model/tokenizer_config.json", [*generate, "--set", "/workload/chat=auto"]),
            ("model/chat_template.jinja", [*generate, "--set", "/workload/chat=auto"]),
            ("prompts.jsonl", run),
            ("run.json", run),
            ("scenarios.json", ["bench", "--steps", "scenarios.json"]),
            ("soak.json", ["bench", "--soak", "soak.json"]),
            ("plugin.so", ["list", "--plugin", "plugin.so"]),
            ("r.jsonl", ["show", "r.jsonl"]),
            ("r.jsonl", ["compare", "r.jsonl", "r.jsonl"]),
            ("r.jsonl", [*run, "--results", "r.jsonl"]),
            ("r.jsonl", ["bench", "--results", "r.jsonl"]),
            ("r.jsonl", ["quickstart", "--results", "r.jsonl"]),
        ]
        for name, command in places:
            with self.subTest(name, command=command):
                file = self.here / name
                before = file.read_bytes() if file.exists() else None
                file.unlink(missing_ok=True)
                os.mkfifo(file)
                try:
                    more = ["--keep-going"] if name == "prompts.jsonl" else []  # each run's error is recorded
                    done = self.start(*command, *more, timeout=10)
                finally:
                    file.unlink()
                    if before is not None:
                        file.write_bytes(before)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(name, done.stderr)
                if name == "prompts.jsonl":
                    self.assertTrue(all("a pipe" in line["error"] for line in self.lines()))
                else:
                    self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)

    def test_an_open_pipe_is_shown(self):
        self.run_it()
        text = (self.here / "results/run.jsonl").read_text()
        shown = self.start("show", "results/run.jsonl", "--json").stdout
        done = subprocess.run(
            [PROGRAM, "show", "/dev/stdin", "--json"], input=text, capture_output=True, text=True, timeout=60
        )
        self.assertEqual((done.returncode, done.stdout), (0, shown), done.stderr)

    def test_compressed_results_are_read_like_plain_ones(self):
        self.run_it()
        plain, packed = "results/run.jsonl", "results/packed"  # by its bytes, not its name
        shown = self.start("show", plain, "--json").stdout
        for ending, (compress, _, _) in FORMATS.items():
            (self.here / packed).write_bytes(compress((self.here / plain).read_bytes()))
            for arguments in (["show", "{}", "--json"], ["compare", "{}", plain, "--json"], ["compare", plain, "{}"],
                              ["merge", "{}", "--out", f"merged_from{ending}.jsonl"]):
                wanted, found = (self.start(*[a.format(name) for a in arguments]) for name in (plain, packed))
                self.assertEqual(found.returncode, 0, found.stderr)
                self.assertEqual(found.stdout.count("\n"), wanted.stdout.count("\n"))
            self.assertEqual(self.start("show", packed, "--json").stdout, shown)
            with (self.here / packed).open("rb") as file:
                piped = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
                self.assertEqual(self.start("show", "/dev/stdin", "--json", stdin=piped.stdout).stdout, shown)
                piped.stdout.close()
                piped.wait()
            self.assertEqual(self.start("report", packed, "--out", "page.html").returncode, 0)

    def test_damaged_compressed_results_are_refused(self):
        self.run_it()
        for ending, (compress, packs, _) in FORMATS.items():
            whole = compress((self.here / "results/run.jsonl").read_bytes())
            (self.here / f"cut{ending}").write_bytes(whole[:-20])
            (self.here / f"tail{ending}").write_bytes(whole + b"\0")
            for command in ("show", "report", "tree-shape --nodes 8", "compare results/run.jsonl", "replay"):
                self.refused(*command.split(), f"cut{ending}", words=[f"cut{ending}", "is cut off", "copy it again"])
                self.refused(*command.split(), f"tail{ending}", words=[f"tail{ending}", "other bytes", packs])

    def test_nothing_is_measured_for_a_compressed_file(self):
        self.run_it()
        others = ["bench", "bench --soak run.json", "quality --model model"]
        for ending, (compress, _, unpacks) in FORMATS.items():
            packed = compress((self.here / "results/run.jsonl").read_bytes())
            (self.here / f"there{ending}").write_bytes(packed)
            (self.here / "named.jsonl").write_bytes(packed)
            for name in (f"new.jsonl{ending}", f"there{ending}", "named.jsonl"):
                for command in ["run run.json", "quickstart", *(others if name.endswith(ending) else [])]:
                    with self.subTest(command, file=name):
                        self.refused(*command.split(), "--results", name, words=[name, "plain files", unpacks],
                                     timeout=10)
            self.assertFalse((self.here / f"new.jsonl{ending}").exists())
            self.assertEqual((self.here / f"there{ending}").read_bytes(), packed)

    def test_ctrl_c_ends_the_reading_of_a_pipe(self):
        for which in (signal.SIGINT, signal.SIGTERM):
            pipe = subprocess.PIPE
            process = subprocess.Popen([PROGRAM, "show", "/dev/stdin"], stdin=pipe, stdout=pipe, stderr=pipe)
            time.sleep(0.5)
            self.assertIsNone(process.poll(), "it waits for what comes")
            process.send_signal(which)
            process.communicate(timeout=10)
            self.assertEqual(process.returncode, -which)

    def test_a_directory_as_standard_input_is_no_empty_prompt(self):
        folder = os.open(self.here, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        generate = ["generate", "--model", "model", "--device", "cpu", "--prompt", "-"]
        self.refused(*generate, words=["standard input", "Is a directory"], stdin=folder)

    def test_a_read_error_is_not_the_end_of_the_prompts(self):
        self.write("run.json", {**RUN, "workload": {**RUN["workload"], "prompts": "/proc/self/mem"}})
        self.assertEqual(self.start("run", "run.json", "--quiet", "--keep-going").returncode, 1)
        self.assertIn("Input/output error", self.lines()[0]["error"])
        self.refused("run", "/proc/self/mem", words=["/proc/self/mem", "Input/output error"])
        self.refused("show", "/proc/self/mem", words=["/proc/self/mem", "Input/output error"])

    def test_results_are_measured_again_where_a_model_changed(self):
        shutil.rmtree(self.model)
        shutil.copytree(MODELS / "target", self.model)
        self.write("model/chat_template.jinja", TEMPLATE)
        self.run_it()
        self.assertNotIn("again", self.run_it().stderr)
        weights = self.model / "model.safetensors"

        def flip():
            with weights.open("r+b") as file:
                file.seek(weights.stat().st_size // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 1]))
            os.utime(weights, ns=(0, 0))  # for any modification time

        changes = [flip, lambda: self.write("model/chat_template.jinja", TEMPLATE + " "),
                   lambda: self.write("model/generation_config.json", "{}"),
                   lambda: self.write("prompts.jsonl", '{"prompt": "The lamp had burned out"}\n')]
        for count, change in enumerate(changes, 2):
            change()
            self.assertIn("2 results in results/run.jsonl were measured with other contents of ", self.run_it().stderr)
            self.assertEqual(len(self.lines()), 2 * count, "all were measured again, and none is lost")
            self.assertNotIn("again", self.run_it().stderr)

    def test_what_stands_behind_the_results_is_not_cut_off(self):
        self.run_it()
        file = self.here / "results/run.jsonl"
        results = file.read_bytes()
        for note in (b"measured while another job ran", b'{"note": "x', b'{"axes":{"/policy'):
            file.write_bytes(results + note)
            self.refused("run", "run.json", "--quiet", words=["results/run.jsonl:3", "added by hand"])
            self.assertEqual(file.read_bytes(), results + note)
        for document in (b'{"axes":{"/policy/length":[1,2]},"base":{}', b'{"axes":'):
            self.here.joinpath("sweep.json").write_bytes(document)
            self.refused("run", "run.json", "--quiet", "--results", "sweep.json", words=["sweep.json:1"])
            self.assertEqual(self.here.joinpath("sweep.json").read_bytes(), document)

    def test_a_line_that_cannot_be_shown_is_measured_again(self):
        self.run_it()
        file = self.here / "results/run.jsonl"
        whole = file.read_text()
        self.assertEqual(self.start("show", "results/run.jsonl").returncode, 0)
        for field, value in (("requests", []), ("seconds", 99)):
            first, second = map(json.loads, whole.splitlines())
            second["repeats"][0]["speculative"][field] = value
            file.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
            shown = self.start("show", "results/run.jsonl", "--json")
            self.assertEqual((shown.returncode, len(json.loads(shown.stdout)["cells"])), (1, 2))
            self.assertRegex(shown.stderr, r"^foretoken: a line of results/run.jsonl has no figures: .*\n$")
            (self.here / "whole.jsonl").write_text(whole)
            compared = self.start("compare", "whole.jsonl", "results/run.jsonl")
            self.assertEqual(compared.returncode, 1, compared.stdout)
            self.assertIn("a line of results/run.jsonl has no figures", compared.stderr)
            self.assertIn("results/run.jsonl:2", self.run_it().stderr)
            self.assertEqual((len(self.lines()), self.start("show", "results/run.jsonl").returncode), (3, 0))

    def test_lines_that_were_edited_are_refused(self):
        self.run_it()
        file = self.here / "results/run.jsonl"
        first, second = map(json.loads, file.read_text().splitlines())
        for change in ({"failures": 5}, {"failures": [{}]}, {"repeats": [{}]}, {"repaets": []},
                       {"agreement": {**second["agreement"], "differing_texts": "x"}}):
            file.write_text(json.dumps(first) + "\n" + json.dumps({**second, **change}) + "\n")
            for command in (["run", "run.json", "--quiet"], ["show", "results/run.jsonl"]):
                self.refused(*command, words=["results/run.jsonl:2", f"'{next(iter(change))}", "remove"])

    def test_a_key_that_is_not_that_of_its_run_is_refused(self):
        self.run_it()
        file = self.here / "results/run.jsonl"
        first, second = map(json.loads, file.read_text().splitlines())
        first["key"], second["key"] = second["key"], first["key"]
        file.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
        for command in (["run", "run.json", "--quiet"], ["show", "results/run.jsonl"]):
            self.refused(*command, words=["results/run.jsonl:1", "'key'", "remove"])

    def test_lines_of_bench_go_to_files_of_their_kind_only(self):
        self.run_it()
        scenarios = {"engine": {"device": "cpu", "threads": 1, "memory_mib": 64},
                  "scenarios": [{"name": "short", "target": {"model": "model"}, "batch": 1, "context": 16, "steps": 2}]}
        self.write("scenarios.json", scenarios)
        self.write("soak.json", RUN)
        steps = ["bench", "--steps", "scenarios.json", "--results"]
        soak = ["bench", "--soak", "soak.json", "--requests", "20", "--results"]
        products = ["bench", "--repeats", "1", "--threads", "1", "--instructions", "scalar", "--results"]
        self.write("note.txt", "what I noted")
        for command in (steps, soak, products):
            for file in ("note.txt", "run.json", "results/run.jsonl"):
                with self.subTest(command=command, file=file):
                    before = (self.here / file).read_bytes()
                    self.refused(*command, file, words=[file + ":1", "name a file"])
                    self.assertEqual((self.here / file).read_bytes(), before)
        for command, key, other in ((steps, "scenario", soak), (soak, "soak", steps)):
            for count in (1, 2):
                self.assertEqual(self.start(*command, f"{key}.jsonl").returncode, 0)
                self.assertEqual([key in line for line in self.lines(f"{key}.jsonl")], [True] * count)
            self.refused(*other, f"{key}.jsonl", words=[f"{key}.jsonl:1"])
            self.refused("run", "run.json", "--results", f"{key}.jsonl", words=[f"{key}.jsonl:1"])

    def test_quickstart_leaves_other_files_alone(self):
        for text in ("older\n", "some notes", '{"base": {}}'):
            self.write("q.jsonl", text)
            quickstart = ["quickstart", "--seconds", "10", "--device", "cpu", "--results", "q.jsonl"]
            self.refused(*quickstart, words=["q.jsonl:1"], timeout=5)
            self.assertEqual((self.here / "q.jsonl").read_text(), text)
            self.assertFalse((self.here / "q.jsonl.1").exists())

    def test_quickstart_refuses_a_place_that_cannot_be_written_at_once(self):
        self.write("file", "")
        for results in ("file/q.jsonl", "/proc/none/q.jsonl"):
            quickstart = ["quickstart", "--seconds", "10", "--device", "cpu", "--results", results]
            self.refused(*quickstart, words=[results.split("/q")[0], "--results"], timeout=5)

    def test_ctrl_c_while_random_weights_are_made(self):
        random = {"random": "llama-3.2-3b", "seed": 1, "tokenizer": str(MODELS / "target")}
        self.write("run.json", {**RUN, "target": {"model": random}})
        process = subprocess.Popen(
            [PROGRAM, "run", "run.json", "--quiet"],
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.kill)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        _, err = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("interrupted", err)
        self.assertLess(time.monotonic() - sent, 3)
        self.assertEqual((self.here / "results/run.jsonl").read_text(), "")


if __name__ == "__main__":
    unittest.main()
