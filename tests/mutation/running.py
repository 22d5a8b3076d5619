"""Runs tests: once without a slip, which also shows which slips each test comes by, then every slip with its tests."""

import ast
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

from folders import executable
from planting import NUMBERS, digest

MEMORY = 6 << 30  # bytes of one test: a loop that a slip made endless must not take those of the machine
FACTOR, LEAST = 6, 10  # seconds of a processor that a test may take: of those without a slip, and at least
LONGEST = 40           # a test that takes more without a slip is left out
SLOWNESS = 10          # of these, seconds of the clock

# What proves that laws see faults, each by a fault of its own.
PROOFS = re.compile(r"(\w+/)?\w*Mutants\b|Check\b|CheckFaults\b|CheckInner\b|Enumerator\b|MutantNames\b")


def limits(seconds):
    """What the process of a test may use: a loop that a slip made endless must not take the machine."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return limit


def wait(process, seconds):
    """(exit status, or None where time is over; seconds of a processor), in the time of the clock."""
    began, pause = time.monotonic(), 0.005
    while True:
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, used.ru_utime + used.ru_stime
        if time.monotonic() - began > seconds:
            return None, seconds
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


class Runner:
    def __init__(self, scratch, deadline, patience):
        self.scratch, self.deadline, self.patience = scratch, deadline, patience
        self.clean_file, self.results_file = scratch.folder / "clean.json", scratch.folder / "results.jsonl"
        self.clean = json.loads(self.clean_file.read_text()) if self.clean_file.exists() else {}
        self.lock = threading.Lock()

    def over(self):
        return time.monotonic() > self.deadline

    def run(self, test, name, limit, **environment):
        """None where the tests of a filter pass, else how they end; and the seconds of a processor that they took."""
        program, pattern = test
        folder = self.scratch.folder / "tmp" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        said = folder / "said"
        with said.open("wb") as out:
            process = subprocess.Popen(
                self.command(program, pattern), cwd=self.scratch.tree, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limits(limit),
                env={**os.environ, "GTEST_FAIL_FAST": "1", "TMPDIR": str(folder),
                     "FORETOKEN_BUILD_DIR": str(self.scratch.build), **environment})
        code, seconds = wait(process, SLOWNESS * limit)  # others may use the machine too
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if code is None:
            process.wait()
        failed = re.search(rb"(?:\[  FAILED  \]|^(?:FAIL|ERROR):) (\S+?)[,\s]", said.read_bytes(), re.MULTILINE)
        shutil.rmtree(folder, ignore_errors=True)
        ended = failed[1].decode() if failed else "out of time" if code in (None, -signal.SIGXCPU) else f"exit {code}"
        return (None if code == 0 else ended), seconds

    def command(self, program, pattern):
        if program.endswith(".py"):
            return [sys.executable, program, "-f", pattern]
        return [self.scratch.build / "tests" / program, f"--gtest_filter={pattern}"]

    def tests_of(self, program):
        """The filters into which the tests of an executable are divided: suites, in tests/laws and scripts single
        tests."""
        if program.endswith(".py"):
            script = ast.parse((self.scratch.tree / program).read_text())
            return [(program, f"{group.name}.{test.name}") for group in script.body if isinstance(group, ast.ClassDef)
                    for test in group.body if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")]
        said = subprocess.run([self.scratch.build / "tests" / program, "--gtest_list_tests"], cwd=self.scratch.tree,
                              stdout=subprocess.PIPE, check=True, text=True).stdout
        found, suite = [], ""
        for line in said.splitlines():
            if line and not line.startswith(" ") and line.split()[0].endswith("."):
                suite = line.split()[0]
                if program != "test_laws" or "/" in suite:
                    found.append(suite + "*")
            elif line.startswith(" ") and program == "test_laws" and "/" not in suite:
                found.append(suite + line.split()[0])
        return [(program, pattern) for pattern in found if not PROOFS.match(pattern)]

    def stamp(self, tests, folders):
        """What the outcome without a slip depends on: the tests themselves and the slips that they may come by."""
        at = self.scratch.root / tests
        files = [at] if at.is_file() else sorted(p for p in at.glob("*") if p.is_file())
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
        failed, seconds = self.run(test, name, LONGEST, FORETOKEN_SEEN=str(seen))
        reached = [n for n, byte in enumerate(seen.read_bytes()) if byte]
        seen.unlink()
        if failed and failed != "out of time":
            return f"{key}: {failed}"
        if failed:
            reached = []
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
            limit = max(LEAST, FACTOR * seconds)
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
