"""Stored results as pandas tables.

Every figure and every interval is the one that `foretoken show RESULTS --json` prints: they are defined once, in
experiments/report/summary.h. A file of result lines (JSON lines) is read by the package foretoken where it is installed
(pip install .), else by the built program; a file that holds the output of `show --json` already is read as it is, so
that results can be looked at where nothing is built. Both may be compressed with gzip or xz.
"""

import gzip
import json
import lzma
import os
import shutil
import subprocess
import zlib
from pathlib import Path

import pandas as pd

try:
    import foretoken
except ImportError:  # then the program reads results
    foretoken = None

ROOT = Path(__file__).resolve().parents[1]


def default_path():
    """The results to look at: FORETOKEN_RESULTS, else those of `./foretoken quickstart`."""
    return Path(os.environ.get("FORETOKEN_RESULTS") or ROOT / "results" / "quickstart.jsonl")


def program():
    """The built program: FORETOKEN_PROGRAM, else the newest one under build/, else an installed one on the path."""
    if os.environ.get("FORETOKEN_PROGRAM"):
        return Path(os.environ["FORETOKEN_PROGRAM"])
    built = [p for p in ROOT.glob("build/*/foretoken") if p.is_file() and os.access(p, os.X_OK)]
    if not built and (installed := shutil.which("foretoken")):
        return Path(installed)
    if not built:
        raise FileNotFoundError(
            "there is no program under build/: run ./foretoken build, or pip install ., name one in FORETOKEN_PROGRAM, "
            "or read a file made by ./foretoken show RESULTS --json > figures.json"
        )
    return max(built, key=lambda p: p.stat().st_mtime)


def text_of(path):
    """The text of a file, plain or compressed with gzip or xz, whatever its name."""
    found = path.read_bytes()
    if found.startswith(b"\x1f\x8b"):
        found = gzip.decompress(found)
    elif found.startswith(b"\xfd7zXZ\0"):
        found = lzma.decompress(found)
    return found.decode()


def figures(path):
    """The object that `show --json` prints: "cells" (one per run, with all figures) and "best"."""
    path = Path(path).resolve()
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there: ./foretoken quickstart writes results/quickstart.jsonl; another file is "
            "named in FORETOKEN_RESULTS"
        )
    try:
        found = json.loads(text_of(path))
        if "cells" in found:
            return found
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError):
        pass  # several lines: results as they are stored; what is damaged the program refuses with its reason
    if foretoken and not os.environ.get("FORETOKEN_PROGRAM"):
        return foretoken.results(path, raw=True)
    done = subprocess.run(
        [program(), "show", path, "--json"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{program()} show failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def number(value):
    """A figure; what is unknown is null in JSON and NaN here."""
    return float("nan") if value is None else value


def settings(cell):
    """What tells runs apart, as the program names it: `method` has all but temperature, batch and policy, `line` the
    policy too (but for its length), so that runs of one line are the points of a plot over length, batch or
    temperature; and every axis under its dotted name."""
    run, names = cell["run"], cell["names"]
    found = {"method": names["method"], "line": names["line"], "temperature": run["sampling"]["temperature"],
             "batch": run["engine"]["batch"], "length": number(run["policy"].get("length"))}
    found.update({pointer.strip("/").replace("/", "."): value for pointer, value in cell["axes"].items()})
    return found


def cells(found):
    """One row per run that succeeded: settings, then figures; x_low and x_high bound the 95 % interval of x."""
    rows = []
    for cell in found["cells"]:
        if "values" in cell:
            values = {name: value if isinstance(value, str) else number(value)
                      for name, value in cell["values"].items()}
            rows.append({**settings(cell), **values, "promise": cell["promise"], "key": cell["key"]})
    return pd.DataFrame(rows)


def lists(found, name):
    """One row per run and entry of a list of figures: "positions", "categories" or "by_prompt"."""
    rows = []
    for cell in found["cells"]:
        for entry in cell.get("figures", {}).get(name, []):
            row = settings(cell)
            for key, value in entry.items():
                if isinstance(value, dict):
                    row.update({key: number(value["value"]), f"{key}_low": number(value["low"]),
                                f"{key}_high": number(value["high"])})
                else:
                    row[key] = number(value)
            rows.append(row)
    return pd.DataFrame(rows)


def fastest(found, rows):
    """Of the rows that differ only in their policy the one with the greatest speedup, as the program picked it."""
    return rows[rows.key.isin([best["key"] for best in found["best"]])]


def pareto_front(rows, x, y):
    """The rows that no other one exceeds in both columns, by x."""
    ordered = rows.dropna(subset=[x, y]).sort_values([x, y], ascending=False)
    return ordered[~ordered[y].cummax().duplicated()].iloc[::-1]


def failures(found):
    """The runs that failed, with their sentences."""
    return [(cell["label"], cell["error"]) for cell in found["cells"] if "figures" not in cell]
