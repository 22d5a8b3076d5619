"""Stored results as pandas tables.

Every figure and every interval is the one that `foretoken show RESULTS --json` prints: they are defined once, in
experiments/report/summary.h. A file of result lines (JSON lines) is handed to the built program; a file that holds the
output of `show --json` already is read as it is, so that results can be looked at where nothing is built. Both may be
compressed with gzip or xz.
"""

import gzip
import json
import lzma
import os
import subprocess
import zlib
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
INTERVALS = ["alpha", "accept_rate", "tau", "speedup", "tokens_per_second"]


def default_path():
    """The results to look at: FORETOKEN_RESULTS, else those of `./foretoken quickstart`."""
    return Path(os.environ.get("FORETOKEN_RESULTS") or ROOT / "results" / "quickstart.jsonl")


def program():
    """The built program: FORETOKEN_PROGRAM, else the newest one under build/."""
    if os.environ.get("FORETOKEN_PROGRAM"):
        return Path(os.environ["FORETOKEN_PROGRAM"])
    built = [p for p in ROOT.glob("build/*/foretoken") if p.is_file() and os.access(p, os.X_OK)]
    if not built:
        raise FileNotFoundError(
            "there is no program under build/: run ./foretoken build, name one in FORETOKEN_PROGRAM, "
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


def short_names(found):
    """Of each model of the drafters the last part of its path, where that tells it from the others."""
    models = {str(cell["axes"]["/drafter/model"]) for cell in found["cells"] if cell["axes"].get("/drafter/model")}
    tails = [Path(model).name for model in models]
    return {model: Path(model).name if tails.count(Path(model).name) == 1 else model for model in models}


def told(pointer, value):
    """"verifier coupled" of an axis and its value."""
    words = pointer.strip("/").split("/")
    return f"{words[-2] if words[-1] == 'name' and len(words) > 1 else words[-1]} " + (
        value if isinstance(value, str) else json.dumps(value))


def settings(cell, names):
    """What tells runs apart: the usual four, and every field that differs, under its dotted name.

    `drafter` has all that differs but temperature, batch and policy, and `line` the policy too (but for its length):
    runs of one line are the points of a plot over length, batch or temperature. `names`: those of short_names().
    """
    run, axes = cell["run"], cell["axes"]
    drafter, policy = run["drafter"]["name"], ""
    for pointer, value in axes.items():
        if value is None or pointer in ("/drafter/name", "/sampling/temperature", "/engine/batch", "/policy/length"):
            continue
        if pointer == "/drafter/model":
            drafter += f" {names[str(value)]}"
        elif pointer.startswith("/policy/"):
            policy += f", {told(pointer, value)}"
        else:
            drafter += f", {told(pointer, value)}"
    found = {"drafter": drafter, "line": drafter + policy,
             "temperature": run.get("sampling", {}).get("temperature", 0),
             "batch": run.get("engine", {}).get("batch"), "length": number(run.get("policy", {}).get("length"))}
    found.update({pointer.strip("/").replace("/", "."): value for pointer, value in axes.items()})
    return found


def step_times(data):
    """Milliseconds of a step by phase, with speculation, and of the whole step of plain decoding (`plain_step_ms`)."""
    side, plain = data["speculative"], data["baseline"]
    ms = {name: 1000 * number(seconds) / side["steps"] for name, seconds in side["phases"].items()}
    found = {"draft_ms": ms["draft_forward"] + ms["draft_other"], "target_ms": ms["target_forward"],
             "verify_ms": ms["verify"]}
    found["host_ms"] = ms["total"] - sum(found.values())
    return {**found, "step_ms": ms["total"], "plain_step_ms": 1000 * number(plain["phases"]["total"]) / plain["steps"]}


def rates(data):
    """Tokens per second of one request after its first round, and those of plain decoding: of one and of all."""
    plain = data["baseline"]
    return {"request_tokens_per_second": number(data["speculative"]["decode_tokens_per_second"]),
            "plain_request_tokens_per_second": number(plain["decode_tokens_per_second"]),
            "plain_tokens_per_second": number(plain["tokens_per_second"])}


def cells(found):
    """One row per run that succeeded: settings, then figures; x_low and x_high bound the 95 % interval of x."""
    rows, names = [], short_names(found)
    for cell in found["cells"]:
        if "figures" not in cell:
            continue
        data = cell["figures"]
        row = settings(cell, names)
        for name in INTERVALS:
            row.update({name: number(data[name]["value"]), f"{name}_low": number(data[name]["low"]),
                        f"{name}_high": number(data[name]["high"])})
        row.update(
            {
                "tau_theory": data["theory"]["tau"],
                "speedup_theory": data["theory"]["speedup"],
                "decode_speedup": data["decode_speedup"]["value"],
                "ttft_ms": data["speculative"]["ttft_ms"],
                "engine_overhead": data["speculative"]["engine_overhead"],
                "promise": cell["promise"],
                "key": cell["key"],
                **step_times(data),
                **rates(data),
            }
        )
        rows.append(row)
    return pd.DataFrame(rows)


def lists(found, name):
    """One row per run and entry of a list of figures: "positions", "categories" or "by_prompt"."""
    rows, names = [], short_names(found)
    for cell in found["cells"]:
        for entry in cell.get("figures", {}).get(name, []):
            row = settings(cell, names)
            for key, value in entry.items():
                if isinstance(value, dict):
                    row.update({key: number(value["value"]), f"{key}_low": number(value["low"]),
                                f"{key}_high": number(value["high"])})
                else:
                    row[key] = number(value) if key in INTERVALS + ["rate", "reached"] else value
            rows.append(row)
    return pd.DataFrame(rows)


def fastest(rows):
    """Of the rows that differ only in their policy the one with the greatest speedup."""
    rows = rows.dropna(subset=["speedup"])
    names = list(rows.columns[:rows.columns.get_loc(INTERVALS[0])])
    outside = [name for name in names if name not in ("length", "line") and not name.startswith("policy.")]
    group = pd.Series([repr(values) for values in rows[outside].itertuples(index=False, name=None)], rows.index)
    return rows.loc[rows.groupby(group, sort=False).speedup.idxmax()]


def pareto_front(rows, x, y):
    """The rows that no other one exceeds in both columns, by x."""
    ordered = rows.dropna(subset=[x, y]).sort_values([x, y], ascending=False)
    return ordered[~ordered[y].cummax().duplicated()].iloc[::-1]


def failures(found):
    """The runs that failed, with their sentences."""
    names = short_names(found)
    return [(settings(cell, names), cell["error"]) for cell in found["cells"] if "figures" not in cell]
