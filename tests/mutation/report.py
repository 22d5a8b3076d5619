"""The scores by folder and the survivors, as a page."""

import json
import platform
import subprocess
import time
from pathlib import Path

HARMLESS = Path(__file__).resolve().parent / "harmless.json"


def told(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True).stdout.strip()


def machine():
    lines = dict(line.split(":", 1) for line in told("lscpu").splitlines() if ":" in line)
    return f"{lines.get('Model name', platform.machine()).strip()}, {lines.get('CPU(s)', '?').strip()} processors"


def identity(root, slip):
    """What a slip is, whatever the number of its line: the line, which of the lines with this text, and the place."""
    text, begin = (root / slip["file"]).read_bytes(), slip["edits"][0][0]
    start = text.rfind(b"\n", 0, begin) + 1
    before = [line.strip() for line in text[:start].split(b"\n")]
    return {"file": slip["file"], "line": slip["text"], "of equal lines": before.count(slip["text"].encode()),
            "column": begin - start, "slip": slip["says"]}


def reasons():
    """Why slips are harmless, by their identity."""
    return {json.dumps({k: v for k, v in h.items() if k != "reason"}, sort_keys=True): h["reason"]
            for h in json.loads(HARMLESS.read_text())}


def cell(text):
    return text.replace("|", "\\|")


def report(scratch, results, folders):
    """(page, whether a folder is below its bar, whether a slip was not run)."""
    known, unknown = reasons(), []
    rows, survivors, short, missing = [], [], False, False
    for folder in folders:
        planted = [s for s in scratch.slips() if s["folder"] == folder.name]
        ran = [results[s["number"]] for s in planted if s["number"] in results]
        killed = [r for r in ran if r["killed"]]
        lived = [(s, results[s["number"]]) for s in planted
                 if s["number"] in results and not results[s["number"]]["killed"]]
        excused = 0
        for slip, result in sorted(lived, key=lambda both: (both[0]["file"], both[0]["line"])):
            what = identity(scratch.root, slip)
            reason = known.get(json.dumps(what, sort_keys=True))
            excused += reason is not None
            if reason is None:
                unknown.append({**what, "reason": ""})
            why = f"harmless: {reason}" if reason else "no test comes by" if not result["reached"] else \
                f"{result['run']} of {result['reached']} groups of tests that come by ran"
            survivors.append(f"| {slip['file']}:{slip['line']} | `{cell(slip['says'])}` | {cell(why)} |")
        counted = len(ran) - excused
        score = 100 * len(killed) / counted if counted else 100
        short, missing = short or score < folder.bar, missing or len(ran) < len(planted)
        rows.append(f"| {folder.name} | {scratch.drawn[folder.name]['sites']} | {len(ran)} | {len(killed)} | "
                    f"{excused} | {len(lived) - excused} | {score:.0f} % | {folder.bar} % |")
    (scratch.folder / "survivors.json").write_text(json.dumps(unknown, indent=2))
    commit = told("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*", cwd=scratch.root)
    page = ["# Mutation scores", "", "What `python3 tests/mutation.py` found (CONTRIBUTING.md, Tests): of slips that are "
            "planted by chance,", "how many the tests see.", "",
            f"{time.strftime('%Y-%m-%d')}, commit {commit}, seed {scratch.seed}, {machine()}.", "",
            "| folder | sites | planted | killed | harmless | survived | killed of those that count | bar |",
            "|---|---|---|---|---|---|---|---|", *rows, "", "| survivor | slip | |", "|---|---|---|", *survivors, ""]
    return "\n".join(page), short, missing
