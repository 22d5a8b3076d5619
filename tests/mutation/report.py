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


def reasons():
    """Why slips are harmless, by what they are: file, line of source, and what is planted there."""
    return {(h["file"], h["text"], h["says"]): h["reason"] for h in json.loads(HARMLESS.read_text())}


def cell(text):
    return text.replace("|", "\\|")


def report(scratch, results, folders):
    """(page, whether a folder is below its bar, whether a slip was not run)."""
    harmless = reasons()
    rows, survivors, short, missing = [], [], False, False
    for folder in folders:
        planted = [s for s in scratch.slips() if s["folder"] == folder.name]
        ran = [results[s["number"]] for s in planted if s["number"] in results]
        killed = [r for r in ran if r["killed"]]
        lived = [r for r in ran if not r["killed"]]
        excused = [r for r in lived if (r["file"], r["text"], r["says"]) in harmless]
        counted = len(ran) - len(excused)
        score = 100 * len(killed) / counted if counted else 100
        short, missing = short or score < folder.bar, missing or len(ran) < len(planted)
        rows.append(f"| {folder.name} | {scratch.drawn[folder.name]['sites']} | {len(ran)} | {len(killed)} | "
                    f"{len(excused)} | {len(lived) - len(excused)} | {score:.0f} % | {folder.bar} % |")
        for r in sorted(lived, key=lambda r: (r["file"], r["line"])):
            reason = harmless.get((r["file"], r["text"], r["says"]))
            why = f"harmless: {reason}" if reason else "no test comes by" if not r["reached"] else \
                f"{r['run']} of {r['reached']} tests that come by ran"
            survivors.append(f"| {r['file']}:{r['line']} | `{cell(r['says'])}` | {cell(why)} |")
    commit = told("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*", cwd=scratch.root)
    page = [f"{time.strftime('%Y-%m-%d')}, commit {commit}, seed {scratch.seed}, {machine()}.", "",
            "| folder | sites | planted | killed | harmless | survived | killed of those that count | bar |",
            "|---|---|---|---|---|---|---|---|", *rows, "", "| survivor | slip | |", "|---|---|---|", *survivors, ""]
    return "\n".join(page), short, missing
