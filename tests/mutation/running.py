"""Runs tests: once without a slip, which also shows which slips each test comes by, then every slip with its tests."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time

from folders import executable
from planting import NUMBERS, digest

MEMORY = 6 << 30  # bytes of one test: a loop that a slip made endless must not take those of the machine
PATIENCE_FACTOR, PATIENCE_LEAST = 8, 20  # seconds that a test may take: of those without a slip, and at least


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Runner:
    def __init__(self, scratch, deadline, patience):
        self.scratch, self.deadline, self.patience = scratch, deadline, patience
        self.clean_file, self.results_file = scratch.folder / "clean.json", scratch.folder / "results.jsonl"
        self.clean = json.loads(self.clean_file.read_text()) if self.clean_file.exists() else {}
        self.lock = threading.Lock()

    def over(self):
        return time.monotonic() > self.deadline

    def run(self, test, name, limit, **environment):
        """None where the tests of a filter pass, else how they end; and the seconds that they took."""
        program, pattern = test
        folder = self.scratch.folder / "tmp" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        began = time.monotonic()
        process = subprocess.Popen([self.scratch.build / "tests" / program, f"--gtest_filter={pattern}"],
                                   cwd=self.scratch.tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limit_memory,
                                   env={**os.environ, "GTEST_FAIL_FAST": "1", "TMPDIR": str(folder), **environment})
        try:
            said = process.communicate(timeout=limit)[0]
            ended = None if process.returncode == 0 else f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            said, ended = b"", "time"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)
        failed = re.search(rb"\[  FAILED  \] (\S+?)[,\s]", said)
        return (f"{failed[1].decode()}" if failed else ended) if ended else None, time.monotonic() - began

    def tests_of(self, program):
        """The filters into which the tests of an executable are divided: suites, in tests/laws single tests."""
        said = subprocess.run([self.scratch.build / "tests" / program, "--gtest_list_tests"], cwd=self.scratch.tree,
                              stdout=subprocess.PIPE, check=True, text=True).stdout
        found, suite = [], None
        for line in said.splitlines():
            if line and not line.startswith(" ") and line.split()[0].endswith("."):
                suite = line.split()[0]
                if program != "test_laws" or "/" in suite:
                    found.append(suite + "*")
            elif line.startswith(" ") and program == "test_laws" and "/" not in suite:
                found.append(suite + line.split()[0])
        return [(program, pattern) for pattern in found]

    def stamp(self, tests, folders):
        """What the outcome without a slip depends on: the tests themselves and the slips that they may come by."""
        files = sorted(p for p in (self.scratch.root / tests).glob("*") if p.is_file())
        slips = [s["number"] for s in self.scratch.slips() if any(s["folder"] == f.name for f in folders)]
        states = [self.scratch.drawn[f.name]["state"] for f in folders]
        return digest(slips, states, *(p.read_bytes() for p in files))

    def run_clean(self, folders, pool):
        """Every test without a slip; all must pass."""
        wanted = []
        for tests in dict.fromkeys(t for f in folders for t in f.tests):
            stamp = self.stamp(tests, [f for f in folders if tests in f.tests])
            for test in self.tests_of(executable(tests)):
                known = self.clean.get(" ".join(test))
                if not known or known["stamp"] != stamp:
                    wanted.append((test, stamp))
        for problem in pool.map(lambda w: self.one_clean(*w), wanted):
            if problem:
                raise SystemExit(f"mutation: without a slip: {problem}")

    def one_clean(self, test, stamp):
        key, name = " ".join(test), digest(*test)
        seen = self.scratch.folder / f"seen.{name}"
        seen.write_bytes(bytes(NUMBERS))
        failed, seconds = self.run(test, name, 900, FORETOKEN_SEEN=str(seen))
        reached = [n for n, byte in enumerate(seen.read_bytes()) if byte]
        seen.unlink()
        if failed:
            return f"{key}: {failed}"
        with self.lock:
            self.clean[key] = {"seconds": round(seconds, 3), "reached": reached, "stamp": stamp}
            self.clean_file.write_text(json.dumps(self.clean, indent=0))
        return None

    def tests_for(self, slip, folder):
        """Those of the folder's tests that come by the slip, the fastest first, as long as patience lasts."""
        programs = {executable(t) for t in folder.tests}
        tests = sorted((known["seconds"], key) for key, known in self.clean.items()
                       if key.split(" ", 1)[0] in programs and slip["number"] in known["reached"])
        spent, chosen = 0.0, []
        for seconds, key in tests:
            spent += seconds
            if chosen and spent > self.patience:
                break
            chosen.append((tuple(key.split(" ", 1)), seconds))
        return chosen, len(tests)

    def one(self, slip, folder):
        """The result of one slip, or None where time is over."""
        tests, all_tests = self.tests_for(slip, folder)
        result = {key: slip[key] for key in ("number", "folder", "file", "line", "kind", "text", "says")}
        result.update(state=self.scratch.drawn[folder.name]["state"], reached=all_tests, run=len(tests), killed=None)
        for test, seconds in tests:
            if self.over():
                return None
            limit = max(PATIENCE_LEAST, PATIENCE_FACTOR * seconds)
            failed, _ = self.run(test, str(slip["number"]), limit, FORETOKEN_SLIP=str(slip["number"]))
            if failed:
                result["killed"] = f"{test[0]} {test[1]}: {failed}"
                break
        with self.lock, self.results_file.open("a") as out:
            out.write(json.dumps(result) + "\n")
        return result

    def results(self):
        """The last result of each slip that is still planted."""
        found = {}
        if self.results_file.exists():
            for line in self.results_file.read_text().splitlines():
                result = json.loads(line)
                found[result["number"]] = result
        return {s["number"]: found[s["number"]] for s in self.scratch.slips()
                if s["number"] in found and found[s["number"]]["state"] == self.scratch.drawn[s["folder"]]["state"]}
