"""Makes the tables of README.md from the committed results.

    python3 experiments/readme_tables.py             # writes them
    python3 experiments/readme_tables.py --check     # exit code 1 where README.md has others

A table stands between the lines `<!-- table NAME -->` and `<!-- end of table -->`. Figures and intervals of sweeps are
those of `foretoken show --json`.
"""

import argparse
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "results"
PLACE = re.compile(r"(<!-- table (\w+) -->\n)(.*?)(<!-- end of table -->\n)", re.DOTALL)
STEPS_COMMIT = "7562db900830"
STEPS = {  # rows of the table: scenarios of steps.jsonl.gz
    "decode, batch 1": "8b decode, context 1k, batch 1",
    "decode, batch 64": "8b decode, context 1k, batch 64",
    "verify 8 rows, batch 1": "8b verifies 8 rows, context 1k, batch 1",
    "draft 4 tokens with a 1B shape and verify, batch 1": "round: 1b drafts 4, 8b verifies, batch 1",
    "the same, batch 32": "round: 1b drafts 4, 8b verifies, batch 32",
    "prompt of 2048 tokens": "8b prompt of 2048",
}


class Figures:
    """Runs of a committed sweep by what tells them apart."""

    def __init__(self, program, name, drafter=None):
        shown = subprocess.run([*program, "show", RESULTS / name, "--json"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True)
        if shown.returncode != 0:
            sys.exit(f"readme_tables.py: {' '.join(program)} cannot show {name}; see what it says above.")
        self.runs = {}
        for cell in json.loads(shown.stdout)["cells"]:
            run = cell["run"]
            if drafter in (None, run["drafter"].get("model")):
                self.runs[self.key(run)] = cell["figures"]

    @staticmethod
    def key(run):
        return run["drafter"]["name"], run["sampling"]["temperature"], run["policy"]["length"], run["engine"]["batch"]

    def all(self, place):
        return sorted({key[place] for key in self.runs})


def table(head, ruler, rows):
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, *rows)]
    return "\n".join([lines[0], ruler, *lines[1:]]) + "\n"


def speedup(figures, unclear=""):
    """Bold where it is slower, marked where the interval contains 1."""
    s = figures["speedup"]
    text = f"{s['value']:.2f} [{s['low']:.2f}, {s['high']:.2f}]"
    if s["high"] < 1:
        return f"**{text}**"
    return text + (unclear if s["low"] <= 1 else "")


def three_digits(ms):
    return f"{ms:.{2 if ms < 10 else 1}f}"


def steps(_):
    with gzip.open(RESULTS / "h200" / "steps.jsonl.gz", "rt") as file:
        lines = [line for line in map(json.loads, file) if line["commit"] == STEPS_COMMIT and "step_ms" in line]
    of = {line["scenario"]: line for line in reversed(lines)}  # of several the first
    rows = [(name, three_digits(of[scenario]["step_ms"]), three_digits(of[scenario]["roofline_ms"]),
             f"{of[scenario]['peer_ms']:g}") for name, scenario in STEPS.items()]
    return table(("", "Foretoken", "bound", "vLLM 0.23"), "|---|--:|--:|--:|", rows)


def inflated(program):
    figures = Figures(program, "h200/inflated.jsonl.gz", "experiments/models/draft")
    batches = figures.all(3)
    rows = []
    for length in figures.all(2):
        of = [figures.runs["draft_model", 0, length, batch] for batch in batches]
        rows.append((str(length), f"{of[0]['tau']['value']:.2f}", *map(speedup, of)))
    head = ("draft length", "tau", *(f"batch {batch}" for batch in batches))
    return table(head, "|--:|--:|" + "---|" * len(batches), rows)


def quickstart(program):
    figures = Figures(program, "cpu/quickstart.jsonl.gz")
    batches = figures.all(3)
    rows = []
    for drafter, temperature, length in sorted({key[:3] for key in figures.runs}):
        of = [figures.runs[drafter, temperature, length, batch] for batch in batches]
        means = [f"{of[0][name]['value']:.2f}" for name in ("alpha", "accept_rate", "tau")]
        theory = f"{of[0]['theory']['tau']:.2f}" + ("" if of[0]["theory"]["full_length"] else "~")
        rows.append((f"`{drafter}`", str(temperature), str(length), *means, theory,
                     *(speedup(run, " ?") for run in of)))
    head = ("drafter", "T", "length", "alpha", "accept", "tau", "tau by theory",
            *(f"speedup, batch {batch}" for batch in batches))
    return table(head, "|---|" + "--:|" * 6 + "---|" * len(batches), rows)


TABLES = {"steps": steps, "inflated": inflated, "quickstart": quickstart}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--page", type=Path, default=ROOT / "README.md", help="the page (default: README.md)")
    parser.add_argument("--program", default=str(ROOT / "foretoken"), help="what shows results (default: ./foretoken)")
    given = parser.parse_args()
    text = given.page.read_text()
    places = [found[2] for found in PLACE.finditer(text)]
    if sorted(places) != sorted(TABLES):
        sys.exit(f"readme_tables.py: {given.page} has places for the tables {', '.join(places) or 'none'}; give each of "
                 f"{', '.join(TABLES)} one, between <!-- table NAME --> and <!-- end of table -->.")
    made = PLACE.sub(lambda found: found[1] + TABLES[found[2]]([given.program]) + found[4], text)
    if made == text:
        return
    if given.check:
        sys.exit(f"readme_tables.py: {given.page} has other tables than the results give; "
                 "run python3 experiments/readme_tables.py, and commit what it writes.")
    given.page.write_text(made)


if __name__ == "__main__":
    main()
