"""The tables of experiments/results/tables.md: whole sweeps, from their committed results. Used by readme_tables.py."""

import functools
import json
import subprocess
import sys
import textwrap
from pathlib import Path

from committed_results import RESULTS, file_of


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


def asked(program, command, *arguments):
    """What the program says of results, as JSON."""
    said = subprocess.run([*program, command, *arguments, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True)
    if said.returncode != 0:
        sys.exit(f"readme_tables.py: {' '.join(program)} cannot {command} {' '.join(map(str, arguments))}; see what it "
                 "says above.")
    return json.loads(said.stdout)


@functools.cache
def shown(program, name):
    """What `show` says of a committed sweep."""
    return asked(program, "show", file_of(name))


def cells(program, name):
    """(run, figures) of every run of a committed sweep."""
    return [(cell["run"], cell["figures"]) for cell in shown(program, name)["cells"]]


def hardly_steady(found):
    """How many runs `show` marks as short, by batch, as a sentence; empty where there is none."""
    shares = {}
    for run, figures in found:
        if figures["steady_share"] is not None and figures["steady_share"] < 0.75:
            shares.setdefault(run["engine"]["batch"], []).append(figures["steady_share"])
    of = [f"{len(some)} runs of batch {batch} (least: {min(some):.2f})" for batch, some in sorted(shares.items())]
    return f" All places taken for less than 0.75 of the time: {', '.join(of)}." if of else ""


def source(program, name):
    """What a sweep was measured with, as sentences: the machine, the commit, how much, how much of it steady."""
    runs = shown(program, name)["cells"]
    machines = sorted({", ".join(filter(None, (run["machine"].get("description", ""), run["machine"]["cpu"],
                                               f"{run['machine']['cores']} cores"))) for run in runs})
    commits = sorted({run["commit"] for run in runs})
    dates = sorted({run["date"][:10] for run in runs})
    repeats = sorted({run["figures"]["repeats"] for run in runs})
    much = f"{' or '.join(map(str, repeats))} alternation{'s' if repeats != [1] else ''}"
    said = (f"`{file_of(name).relative_to(RESULTS)}`: {len(runs)} runs of {much}. {'; '.join(machines)}. "
            f"Commit {', '.join(commits)}, {', '.join(dates)}.{hardly_steady(cells(program, name))}")
    return textwrap.fill(said, 120, break_long_words=False, break_on_hyphens=False) + "\n\n"


def by(found, *pointers):
    """Figures by the values under these pointers of their runs."""
    def value(run, pointer):
        for key in pointer.split("/"):
            run = run[key]
        return json.dumps(run) if isinstance(run, (list, dict)) else run
    return {tuple(value(run, p) for p in pointers): figures for run, figures in found}


def number(figures, name):
    return f"{figures[name]['value']:.2f}"


def across(found, place):
    """The values at the last place of the keys, sorted; and for each key without it the figures at these, or None."""
    last = sorted({key[place] for key in found})
    return last, {key: [found.get((*key, value)) for value in last] for key in dict.fromkeys(k[:place] for k in found)}


def formats(program, name):
    """Speedup of a target that drafts for itself in another format, one column for each batch."""
    found = by(cells(program, name), "target/dtype", "drafter/dtype", "target/kv_dtype", "engine/batch")
    batches, figures = across(found, 3)
    rows = [(*key, number(of[0], "alpha"), number(of[0], "tau"), *map(speedup, of)) for key, of in figures.items()]
    first = f"batch {batches[0]}"
    head = ("target", "draft", "caches", f"alpha, {first}", f"tau, {first}", *(f"batch {batch}" for batch in batches))
    return source(program, name) + table(head, "|---|---|---|--:|--:|" + "---|" * len(batches), rows)


def trees_by_batch(program, *names):
    """Exact verifiers on draft trees, by temperature, nodes and batch."""
    rows, text = [], ""
    for name in names:
        found = by(cells(program, name), "verifier/name", "drafter/draws", "sampling/temperature", "policy/nodes",
                   "engine/batch")
        batches, figures = across(found, 4)
        text += source(program, name)
        for key, of in figures.items():
            rows.append((f"`{key[0]}`", key[1].replace("_", " "), str(key[2]), str(key[3]),
                         number(next(f for f in of if f), "tau"), *(speedup(f) if f else "-" for f in of)))
    head = ("verifier", "siblings", "T", "nodes", f"tau, batch {batches[0]}", *(f"batch {batch}" for batch in batches))
    return text + table(head, "|---|---|--:|--:|--:|" + "---|" * len(batches), rows)


def lengths(program, name):
    """Speedup of a chain by its length, one column for each batch."""
    found = by(cells(program, name), "sampling/temperature", "policy/length", "engine/batch")
    batches, figures = across(found, 2)
    rows = [(*map(str, key), *(number(of[0], name) if of[0] else "-" for name in ("alpha", "tau")),
             *(speedup(f) if f else "-" for f in of)) for key, of in figures.items()]
    head = ("T", "draft length", "alpha, batch 1", "tau, batch 1", *(f"batch {batch}" for batch in batches))
    return source(program, name) + table(head, "|--:|--:|--:|--:|" + "---|" * len(batches), rows)


def predicted(program, name):
    """Speedup of every drafter by its length beside the predicted one (table `theory` of `show`)."""
    rows = {}
    found = cells(program, name)
    batches = sorted({run["engine"]["batch"] for run, _ in found})
    for run, figures in found:
        drafter = " ".join(filter(None, (f"`{run['drafter']['name']}`", Path(run["drafter"].get("model") or "").name)))
        theory = figures["theory"]
        mark = "" if theory["full_length"] else "~"
        row = rows.setdefault((drafter, run["sampling"]["temperature"], run["policy"]["length"]), {})
        row[run["engine"]["batch"]] = figures["tau"], f"{speedup(figures)} / {theory['speedup']:.2f}{mark}"
    head = ("drafter", "T", "length", f"tau, batch {batches[0]}", *(f"batch {batch}" for batch in batches))
    lines = [(*map(str, key), f"{row[batches[0]][0]['value']:.2f}", *(row[batch][1] for batch in batches))
             for key, row in rows.items()]
    return source(program, name) + table(head, "|---|--:|--:|--:|" + "---|" * len(batches), lines)


def drafter_of(run):
    """A drafter and its model's directory, without how it grows."""
    drafter = run["drafter"]
    return " ".join(filter(None, (f"`{drafter['name']}`", Path(drafter.get("model") or "").name)))


def growth_of(run):
    """A chain with its length, or a tree with its nodes and levels."""
    policy = run["policy"]
    return f"chain {policy['length']}" if policy["nodes"] is None else f"tree {policy['nodes']}, {policy['length']}"


def drafters(program, name):
    """Speedup of every drafter in the growth that was chosen for it, one column for each batch."""
    rows = {}
    for run, figures in cells(program, name):
        batch = run["engine"]["batch"]
        rows.setdefault((drafter_of(run), run["sampling"]["temperature"]), {})[batch] = run, figures
    batches = sorted({batch for row in rows.values() for batch in row})
    lines = [(drafter, str(temperature), number(row[batches[0]][1], "tau"),
              *(f"{speedup(row[batch][1])}; {growth_of(row[batch][0])}" if batch in row else "-" for batch in batches))
             for (drafter, temperature), row in sorted(rows.items(), key=lambda item: (item[0][1], item[0][0]))]
    first = f"batch {batches[0]}"
    return source(program, name) + table(("drafter", "T", f"tau, {first}", *(f"batch {batch}" for batch in batches)),
                                         "|---|--:|--:|" + "---|" * len(batches), lines)


def drafters_costs(program, name):
    """Where the tokens and the time of the same rounds go: acceptance by position, phases of a round, memory."""
    def per_round(figures, *phases):
        said = figures["speculative"]
        return f"{sum(said['phases'][phase] for phase in phases) / said['rounds'] * 1e3:.2f}"

    found = [(run, figures) for run, figures in cells(program, name)
             if run["engine"]["batch"] == min(run["engine"]["batch"] for run, _ in cells(program, name))]
    rows = [(drafter_of(run), str(run["sampling"]["temperature"]), growth_of(run),
             " ".join(f"{at['rate']:.2f}" for at in figures["positions"]), number(figures, "tau"),
             per_round(figures, "draft_forward", "draft_other"), per_round(figures, "target_forward"),
             per_round(figures, "verify", "schedule", "deliver"),
             f"{figures['speculative']['memory']['draft_weights'] / 1e6:.0f}",
             f"{(figures['speculative']['memory']['scratch'] - figures['baseline']['memory']['scratch']) / 1e6:.0f}")
            for run, figures in sorted(found, key=lambda cell: (cell[0]["sampling"]["temperature"],
                                                                drafter_of(cell[0])))]
    head = ("drafter", "T", "growth", "accepted at positions", "tau", "draft, ms", "target, ms", "other, ms",
            "weights, MB", "more scratch, MB")
    return source(program, name) + table(head, "|---|--:|---|---|" + "--:|" * 6, rows)


TABLES = {
    "heads": lambda program: drafters(program, "cpu/heads"),
    "heads_costs": lambda program: drafters_costs(program, "h200/heads_inflated"),
    "lengths_inflated": lambda program: lengths(program, "h100/inflated"),
    "trees_greedy_inflated": lambda program: trees_by_batch(program, "h100/trees_greedy_inflated"),
    "formats": lambda program: formats(program, "cpu/formats"),
}
