"""Plants slips in a scratch copy of the repository and counts those that the tests see.

usage: python3 tests/mutation.py [--folders NAME,...] [--scratch DIR] [--out FILE] [--seed N] [--each N] [--jobs N]
                                 [--seconds S] [--patience S] [--tests FOLDER,...] [--again] [--only NUMBER,...]

A slip is an operator, a bound, a constant that is one off, two arguments that are swapped, a call or an assignment that
is dropped, or a condition that always or never holds. Slips are drawn by chance (--seed) from the syntax tree, --each
for each folder of tests/mutation/folders.py, and compiled once: the environment variable FORETOKEN_SLIP turns one of
them on. Every test is run without a slip, which shows which slips it comes by; then every slip is run with its tests,
the fastest first, until one fails, crashes or takes too long. Tests that take more than --patience seconds in sum
without a slip are left out, the slowest first.

A slip that changes nothing that a user can observe is named, with the reason, in tests/mutation/harmless.json, and does
not count; survivors.json in the scratch folder has those that survived in that form, without a reason. --again runs
those that survived once more (after a test was added), --only single slips. --tests takes of the tests only those of
some folders, so that fewer are compiled first. What was run before with the same sources is not run again: it lies in
the scratch folder, as does what was built.

Needs libclang (pip install libclang). Exit codes: 0 every folder is at its bar; 1 one is below, or a test fails without
a slip; 2 time was over before every slip was run.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "mutation"))
from folders import FOLDERS
from planting import Scratch
from report import report
from running import Runner


def arguments():
    said = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    said.add_argument("--folders", default=",".join(f.name for f in FOLDERS), help="names, separated by commas")
    said.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "foretoken-mutation")
    said.add_argument("--out", type=Path, help="a Markdown file for the scores and survivors")
    said.add_argument("--seed", type=int, default=1)
    said.add_argument("--each", type=int, default=20)
    said.add_argument("--jobs", type=int, default=os.cpu_count())
    said.add_argument("--seconds", type=float, default=7200)
    said.add_argument("--patience", type=float, default=60)
    said.add_argument("--tests", default="", help="tests/..., separated by commas")
    said.add_argument("--again", action="store_true")
    said.add_argument("--only", default="")
    return said.parse_args()


def with_tests(folder, tests):
    return dataclasses.replace(folder, tests=tuple(t for t in folder.tests if t in tests))


def main():
    asked, began = arguments(), time.monotonic()
    names = asked.folders.split(",")
    unknown = sorted(set(names) - {f.name for f in FOLDERS})
    if unknown:
        raise SystemExit(f"mutation: no folder {', '.join(unknown)}; known: {', '.join(f.name for f in FOLDERS)}")
    folders = [with_tests(f, asked.tests.split(",")) if asked.tests else f for f in FOLDERS if f.name in names]
    scratch = Scratch(ROOT, asked.scratch.resolve(), asked.seed, asked.each, asked.jobs)
    runner = Runner(scratch, began + asked.seconds, asked.patience)
    scratch.plant()
    scratch.configure()
    with concurrent.futures.ProcessPoolExecutor(asked.jobs) as pool:
        scratch.draw(folders, pool)
    scratch.compile(folders)
    print(f"mutation: {len(scratch.slips())} slips compiled after {time.monotonic() - began:.0f} s", flush=True)
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        runner.run_clean(folders, pool)
        print(f"mutation: without a slip all pass, after {time.monotonic() - began:.0f} s", flush=True)
        done, only = runner.results(), {int(n) for n in asked.only.split(",") if n}
        waiting = [s for s in scratch.slips() if s["folder"] in names and (
            s["number"] in only or s["number"] not in done or (asked.again and not done[s["number"]]["killed"]))]
        waiting = [s for s in waiting if not only or s["number"] in only]
        by_name = {f.name: f for f in folders}
        for result in pool.map(lambda s: runner.one(s, by_name[s["folder"]]), waiting):
            if result:
                print(f"{result['number']} {result['killed'] or 'SURVIVED'} | {result['file']}:{result['line']}: "
                      f"{result['says'][:100]}", flush=True)
    text, short, missing = report(scratch, runner.results(), folders)
    if asked.out:
        asked.out.write_text(text)
    print(text)
    return 2 if missing else 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
