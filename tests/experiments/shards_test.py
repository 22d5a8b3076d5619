"""Sweeps in shards: every run once, a killed process loses its run in flight alone, merged files are those of one."""

import fcntl
import gzip
import json
import lzma
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
BASE = {
    "target": {"model": "experiments/models/draft"},
    "drafter": {"name": "ngram"},
    "engine": {"batch": 1, "device": "cpu", "threads": 1},
    "workload": {"prompts": "experiments/prompts.jsonl", "limit": 6, "max_new_tokens": 4},
    "measure": {"repeats": 1, "warmup": False},
}
SEEDS = 16


class Shards(InFolder):
    def setUp(self):
        super().setUp()
        self.sweep = self.write("sweep.json", {"base": BASE, "axes": {"/sampling/seed": list(range(SEEDS))}})

    def start(self, *arguments, **environment):
        return subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.here, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **environment})

    def run_it(self, *arguments, code=0, **environment):
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, err)
        return out, err

    def keys(self, name):
        file = self.here / name
        return [json.loads(line)["key"] for line in file.read_text().splitlines(True) if line.endswith("\n")]

    def wait_for_lines(self, name, wanted):
        end = time.time() + 60
        while not (self.here / name).exists() or (self.here / name).read_text().count("\n") < wanted:
            self.assertLess(time.time(), end, f"{name} has no {wanted} lines")
            time.sleep(0.005)

    def part(self, number, count=4):
        return f"results/sweep.shard-{number}-of-{count}.jsonl"

    def slow(self):
        """The sweep with runs that take long enough to be killed in one."""
        workload = {**BASE["workload"], "limit": 60, "max_new_tokens": 32}
        base = {**BASE, "workload": workload}
        self.sweep = self.write("sweep.json", {"base": base, "axes": {"/sampling/seed": list(range(SEEDS))}})

    def test_four_processes_one_killed_give_the_runs_of_one(self):
        self.run_it("run", self.sweep, "--quiet", "--results", "single.jsonl")
        whole = self.keys("single.jsonl")
        self.slow()
        processes = [self.start("run", self.sweep, "--quiet", "--shard", f"{k}/4") for k in range(1, 5)]
        self.wait_for_lines(self.part(2), 1)
        processes[1].kill()
        for k, process in enumerate(processes):
            process.communicate(timeout=120)
            self.assertEqual(process.returncode, -signal.SIGKILL if k == 1 else 0)
        kept = (self.here / self.part(2)).read_bytes()
        self.assertLess(len(self.keys(self.part(2))), SEEDS // 4)
        parts = [self.part(k) for k in range(1, 5)]
        _, err = self.run_it("merge", *parts, "--out", "merged.jsonl", "--sweep", self.sweep, code=1)
        missing = SEEDS - sum(len(self.keys(part)) for part in parts)
        self.assertGreater(missing, 0)
        self.assertEqual(err.count("missing: seed "), missing, err)
        self.assertIn("--results merged.jsonl measures them", err)
        self.run_it("run", self.sweep, "--quiet", "--shard", "2/4")
        self.assertTrue((self.here / self.part(2)).read_bytes().startswith(kept[: kept.rfind(b"\n") + 1]))
        before = [(self.here / part).read_bytes() for part in parts]
        _, err = self.run_it("merge", *parts, "--out", "merged.jsonl", "--sweep", self.sweep)
        self.assertNotIn("missing", err)
        merged = self.keys("merged.jsonl")
        self.assertEqual(before, [(self.here / part).read_bytes() for part in parts])
        self.run_it("run", self.sweep, "--quiet", "--results", "slow.jsonl")
        self.assertEqual(merged, self.keys("slow.jsonl"), "the same runs, in the order of the sweep")
        self.assertEqual(len(whole), len(merged))
        bytes_once = (self.here / "merged.jsonl").read_bytes()
        self.run_it("merge", *parts, "--out", "merged.jsonl", "--sweep", self.sweep)
        self.assertEqual((self.here / "merged.jsonl").read_bytes(), bytes_once)
        for name, compress in (("merged.gz", gzip.compress), ("merged.xz", lzma.compress)):
            (self.here / name).write_bytes(compress(bytes_once))
            self.run_it("merge", name, parts[0], "--out", f"from_{name}.jsonl")
            self.assertEqual((self.here / f"from_{name}.jsonl").read_bytes(), bytes_once)

    def test_shards_are_as_long_as_one_another(self):
        for k in range(1, 4):
            self.run_it("run", self.sweep, "--quiet", "--shard", f"{k}/3")
        found = [self.keys(self.part(k, 3)) for k in range(1, 4)]
        self.assertEqual(sorted(map(len, found)), [5, 5, 6])
        self.assertEqual(len(set(sum(found, []))), SEEDS)

    def test_the_newest_line_of_a_run_counts(self):
        self.run_it("run", self.sweep, "--quiet", "--results", "a.jsonl")
        lines = [json.loads(line) for line in (self.here / "a.jsonl").read_text().splitlines()]
        dated = lambda line, date, **more: json.dumps({"schema": 1, "key": line["key"], **line, "date": date, **more})
        self.write("old.jsonl", dated(lines[0], "2001-01-01T00:00:00Z") + "\n")
        failed = dated(lines[1], "2901-01-01T00:00:00Z", error="no")
        self.write("new.jsonl", failed + "\n")
        self.run_it("merge", "new.jsonl", "a.jsonl", "old.jsonl", "--out", "m.jsonl", "--sweep", self.sweep)
        merged = {line["key"]: line for line in map(json.loads, (self.here / "m.jsonl").read_text().splitlines())}
        self.assertEqual(len(merged), SEEDS)
        self.assertEqual(merged[lines[0]["key"]], lines[0])
        self.assertEqual(merged[lines[1]["key"]], lines[1], "a failure replaces no measurement")
        self.write("others.jsonl", "".join(json.dumps(line) + "\n" for i, line in enumerate(lines) if i != 1))
        _, err = self.run_it("merge", "new.jsonl", "others.jsonl", "--out", "n.jsonl", "--sweep", self.sweep, code=1)
        self.assertIn("failed: seed 1 ", err)

    def test_results_of_no_run_of_the_sweep_are_dropped_and_listed(self):
        self.run_it("run", self.sweep, "--quiet", "--results", "a.jsonl", "--shard", "1/4")
        kept = self.keys("a.jsonl")
        other = self.write("other.json", {"base": BASE, "axes": {"/sampling/seed": [77, 78]}})
        self.run_it("run", other, "--quiet", "--results", "b.jsonl")
        both = (self.here / "a.jsonl").read_text() + (self.here / "b.jsonl").read_text()
        self.write("mixed.jsonl", both)
        out, err = self.run_it("show", "mixed.jsonl", "--sweep", self.sweep, "--json")
        self.assertEqual(len(json.loads(out)["cells"]), len(kept))
        self.assertEqual(err.count(f"not of {self.sweep}: seed 7"), 2, err)
        self.assertIn(f"2 of {len(kept) + 2} results in mixed.jsonl are of no run of", err)
        out, err = self.run_it("show", "a.jsonl", "--sweep", self.sweep, "--json")
        self.assertEqual(err, "")
        _, err = self.run_it("merge", "mixed.jsonl", "--out", "m.jsonl", "--sweep", self.sweep, code=1)
        self.assertIn("2 results are of no run of", err)
        self.assertEqual(self.keys("m.jsonl"), kept)
        self.assertFalse((self.here / "m.jsonl.dropped").exists(), "mixed.jsonl has them")
        _, err = self.run_it("merge", "a.jsonl", "--out", "mixed.jsonl", "--sweep", self.sweep, code=1)
        self.assertIn("in mixed.jsonl.dropped", err)
        self.assertEqual(self.keys("mixed.jsonl"), kept)
        self.assertEqual(self.keys("mixed.jsonl.dropped"), self.keys("b.jsonl"), "no result is lost")
        self.run_it("merge", "a.jsonl", "b.jsonl", "--out", "both.jsonl")
        self.assertEqual(self.keys("both.jsonl"), kept + self.keys("b.jsonl"))

    def test_orphans_of_the_sweep_are_removed_those_of_others_stay(self):
        self.run_it("run", self.sweep, "--quiet", "--results", "a.jsonl")
        folder = self.here / "a.jsonl.unfinished"
        folder.mkdir()
        name = lambda document, *settings: json.dumps([str(document), *settings], separators=(",", ":"))
        mine, other = name(Path(self.sweep).resolve()), name(self.here.resolve() / "other.json")
        left = {"aa": mine, "bb": other, "cc": None, "dd": name(Path(self.sweep).resolve(), "/engine/batch=2")}
        for key, sweep in left.items():
            (folder / f"{key}-0.json").write_text(json.dumps({"key": key, "alternation": 0, "sweep": sweep}))
        self.run_it("merge", "a.jsonl", "--out", "m.jsonl")
        self.assertEqual(len(list(folder.iterdir())), 4, "without a document nobody knows")
        _, err = self.run_it("merge", "a.jsonl", "--out", "m.jsonl", "--sweep", self.sweep)
        self.assertIn("1 alternations of runs that", err)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["bb-0.json", "cc-0.json", "dd-0.json"])

    def test_merge_writes_through_a_symbolic_link(self):
        self.run_it("run", self.sweep, "--quiet", "--results", "a.jsonl", "--shard", "1/8")
        (self.here / "far").mkdir()
        (self.here / "link.jsonl").symlink_to("far/real.jsonl")
        for _ in range(2):  # where the target is not there yet, and where it is
            self.run_it("merge", "a.jsonl", "--out", "link.jsonl")
            self.assertTrue((self.here / "link.jsonl").is_symlink())
            self.assertEqual((self.here / "far" / "real.jsonl").read_bytes(), (self.here / "a.jsonl").read_bytes())
        self.assertEqual([p.name for p in (self.here / "far").iterdir()], ["real.jsonl"])

    def test_merge_refuses_what_would_lose_something(self):
        self.run_it("run", self.sweep, "--quiet", "--results", "a.jsonl", "--shard", "1/8")
        text = (self.here / "a.jsonl").read_text()
        self.write("other.jsonl", '{"prompt": "x"}\n')
        os.link(self.here / "a.jsonl", self.here / "link.jsonl")
        for arguments, words in (
            (["a.jsonl", "--out", "a.jsonl"], ["a.jsonl is read", "--out"]),
            (["link.jsonl", "--out", "a.jsonl"], ["link.jsonl is read", "--out"]),
            (["other.jsonl", "--out", "b.jsonl"], ["other.jsonl:1", "schema"]),
            (["a.jsonl", "--out", "other.jsonl"], ["other.jsonl:1"]),
            (["a.jsonl", "missing.jsonl", "--out", "b.jsonl"], ["'missing.jsonl' does not exist"]),
            (["a.jsonl", "--out", "no/b.jsonl"], ["no/b.jsonl"]),
            (["a.jsonl", "--out", "b.jsonl.gz"], ["plain lines", "without .gz"]),
            (["a.jsonl", "--out", "b.jsonl.xz"], ["plain lines", "or .xz"]),
        ):
            out, err = self.run_it("merge", *arguments, code=1)
            self.assertEqual((out, err.count("\n")), ("", 1), err)
            for word in words:
                self.assertIn(word, err)
        with (self.here / "busy.jsonl").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _, err = self.run_it("merge", "a.jsonl", "--out", "busy.jsonl", code=1)
            self.assertIn("another process is writing to it; wait, or name another file with --out", err)
        self.assertEqual((self.here / "a.jsonl").read_text(), text)
        self.assertEqual((self.here / "other.jsonl").read_text(), '{"prompt": "x"}\n')
        self.assertFalse((self.here / "b.jsonl").exists())
        self.write("b.jsonl", "")
        self.run_it("merge", "b.jsonl", "--out", "c.jsonl")
        self.assertEqual((self.here / "c.jsonl").read_text(), "")
        for shard in ("0/4", "5/4", "1", "1/4x", "-1/4", "1/0", "/", "1/20001"):
            _, err = self.run_it("run", self.sweep, f"--shard={shard}", code=1)
            self.assertIn("--shard wants K/N", err)
            self.assertIn("N at most 20000", err)
        self.run_it("run", self.sweep, "--shard", "1/2", "--gpus", "0", code=2)

    def gpus(self, *arguments, code=0, visible="4,5,6,7"):
        """The device of the sweep is the CPU, so the processes need no GPU."""
        return self.run_it("run", self.sweep, "--quiet", *arguments, code=code, CUDA_VISIBLE_DEVICES=visible)

    def processes_of(self, parent):
        """{CUDA_VISIBLE_DEVICES: process} of the processes that a process started."""
        found = {}
        for process in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            found.update({v.split(b"=")[1].decode(): process for v in variables if v.startswith(b"CUDA_VISIBLE")})
        return found

    def files(self):
        return sorted(path.name for path in (self.here / "results").iterdir())

    def started_on_gpus(self, lines):
        self.slow()
        parent = self.start("run", self.sweep, "--quiet", "--gpus", "0,1,2,3", CUDA_VISIBLE_DEVICES="4,5,6,7")
        for k in range(1, 5):
            self.wait_for_lines(f"results/sweep.process-{k}.jsonl", lines)
        return parent

    def test_a_killed_process_of_a_gpu_loses_the_run_in_flight_alone(self):
        parent = self.started_on_gpus(1)
        processes = self.processes_of(parent.pid)
        self.assertEqual(sorted(processes), ["4", "5", "6", "7"], "numbers count within CUDA_VISIBLE_DEVICES")
        os.kill(processes["6"], signal.SIGKILL)
        out, err = parent.communicate(timeout=120)
        self.assertEqual(parent.returncode, 1, err)
        self.assertIn("the process of GPU 6 was ended by signal 9", err)
        self.assertIn(f"of {SEEDS} runs are not measured", err)
        self.assertIn("alpha", out)
        kept = (self.here / "results/sweep.jsonl").read_text()
        self.assertEqual(self.files(), ["sweep.jsonl"])
        self.assertTrue(SEEDS * 3 // 4 < kept.count("\n") < SEEDS)
        _, err = self.gpus("--gpus", "0,1")  # other GPUs than before: nothing is measured again
        self.assertNotIn("not measured", err)
        self.assertTrue((self.here / "results/sweep.jsonl").read_text().startswith(kept))
        self.assertEqual((len(self.keys("results/sweep.jsonl")), self.files()), (SEEDS, ["sweep.jsonl"]))
        self.assertEqual(len(set(self.keys("results/sweep.jsonl"))), SEEDS)

    def test_a_killed_sweep_goes_on_from_its_alternations(self):
        """Also where other processes go on: what was measured in rounds is not measured again."""
        self.slow()
        document = json.loads(Path(self.sweep).read_text())
        document["base"]["measure"]["repeats"] = 3
        document["axes"]["/sampling/seed"] = [1, 2, 3, 4]
        self.sweep = self.write("sweep.json", document)
        folder = self.here / "results" / "sweep.jsonl.unfinished"
        process = self.start("run", self.sweep, "--quiet")
        end = time.time() + 60
        while not folder.exists() or len(list(folder.glob("*.json"))) < 6:
            self.assertLess(time.time(), end, "no alternations are kept")
            time.sleep(0.005)
        process.kill()
        process.communicate(timeout=60)
        kept = [json.loads(path.read_text()) for path in folder.glob("*.json")]
        self.assertEqual({one["alternation"] for one in kept}, {0, 1}, "in rounds")
        self.assertEqual({json.loads(one["sweep"])[0] for one in kept}, {str(Path(self.sweep).resolve())})
        self.gpus("--gpus", "0,1")
        text = (self.here / "results/sweep.jsonl").read_text()
        lines = {line["key"]: line for line in map(json.loads, text.splitlines())}
        self.assertEqual((len(lines), self.files()), (4, ["sweep.jsonl"]))
        for one in kept:
            repeat = lines[one["key"]]["repeats"][one["alternation"]]
            for side in ("baseline", "speculative"):
                self.assertEqual(repeat[side], one[side]["record"])
        self.assertEqual({len(line["repeats"]) for line in lines.values()}, {3})
        self.assertEqual({line["interleaved"] for line in lines.values()}, {2}, "two processes, of two runs each")

    def test_ctrl_c_reaches_the_processes_of_all_gpus(self):
        for sent in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(sent):
                parent = self.started_on_gpus(1)
                processes = self.processes_of(parent.pid)
                parent.send_signal(sent)
                _, err = parent.communicate(timeout=60)
                self.assertEqual(parent.returncode, 130, err)
                self.assertTrue(4 <= len(self.keys("results/sweep.jsonl")) < SEEDS, err)
                self.assertEqual(self.files(), ["sweep.jsonl"])
                self.assertFalse([p for p in processes.values() if Path(f"/proc/{p}").exists()])
                (self.here / "results/sweep.jsonl").unlink()

    def test_nothing_is_lost_where_the_first_process_is_killed(self):
        parent = self.started_on_gpus(1)
        processes = self.processes_of(parent.pid)
        parent.kill()
        parent.communicate(timeout=60)
        end = time.time() + 60
        while [p for p in processes.values() if Path(f"/proc/{p}").exists()]:
            self.assertLess(time.time(), end, "its processes go on")
            time.sleep(0.01)
        self.assertEqual(len(self.files()), 5)
        finished = set(sum((self.keys(f"results/sweep.process-{k}.jsonl") for k in range(1, 5)), []))
        self.assertLess(len(finished), SEEDS, "they ended with it")
        parts = [json.loads(line) for k in range(1, 5) for line in
                 (self.here / f"results/sweep.process-{k}.jsonl").read_text().splitlines(True) if line.endswith("\n")]
        self.gpus("--gpus", "0,1")
        lines = [json.loads(line) for line in (self.here / "results/sweep.jsonl").read_text().splitlines()]
        self.assertEqual((len(lines), self.files()), (SEEDS, ["sweep.jsonl"]))
        self.assertEqual([line for line in lines if line["key"] in finished], parts, "as they were measured")

    def test_gpus_that_cannot_be(self):
        for named, visible, words in (("0,0", "4,5", "each once"), ("2", "4,5", "below 2"), ("0", "", "below 0")):
            out, err = self.gpus("--gpus", named, visible=visible, code=1)
            self.assertIn(words, err)
            self.assertFalse((self.here / "results").exists(), "before anything is made")
        base = {**BASE, "engine": {"batch": 1}}  # "auto", which would be the CPU
        self.sweep = self.write("sweep.json", {"base": base, "axes": {"/sampling/seed": [1, 2]}})
        _, err = self.gpus("--gpus", "0,1", visible="98,99", code=1)
        self.assertIn("--gpus names GPU 98, which this program cannot use", err)

    def test_runs_that_cannot_be_measured_are_refused_once_for_all_gpus(self):
        document = json.loads(Path(self.sweep).read_text())
        document["axes"] = {"/sampling/seed": [1, 2], "/target/model": ["experiments/models/draft", "nowhere"]}
        self.sweep = self.write("sweep.json", document)
        _, err = self.gpus("--gpus", "0,1", code=1)
        self.assertEqual(err.count("2 of 4 runs cannot be measured: "), 1, err)
        self.assertIn("measure the other 2 runs with --keep-going", err)
        self.assertFalse((self.here / "results").exists(), "no process was started for a part")
        _, err = self.gpus("--gpus", "0,1", "--keep-going", code=1)
        lines = [json.loads(line) for line in (self.here / "results/sweep.jsonl").read_text().splitlines()]
        self.assertEqual(sorted("error" in line for line in lines), [False, False, True, True])

    def test_the_example_for_slurm(self):
        self.write("srun", '#!/bin/sh\nexec "$@"\n')
        (self.here / "srun").chmod(0o755)
        scripts = SOURCE / "experiments" / "slurm"

        def batch(script, task="", code=0):
            environment = {**os.environ, "PATH": f"{self.here}:{os.environ['PATH']}", "FORETOKEN": str(PROGRAM),
                           "SLURM_ARRAY_TASK_ID": task}
            done = subprocess.run(["bash", scripts / script, self.sweep, "3"], cwd=self.here, env=environment,
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, code, done.stderr)
            return done.stderr

        batch("shards.sbatch", "1"), batch("shards.sbatch", "3")
        self.assertIn("missing: seed ", batch("merge.sbatch", code=1))
        batch("shards.sbatch", "2"), batch("merge.sbatch")
        self.assertEqual(len(self.keys("results/sweep.jsonl")), SEEDS)


if __name__ == "__main__":
    unittest.main()
