"""The tables of experiments/results/tables.md: whole sweeps, from their committed results. Used by readme_tables.py, and
in part by results/policy_bars.py."""

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
        sys.exit(f"{Path(sys.argv[0]).name}: {' '.join(program)} cannot {command} {' '.join(map(str, arguments))}; see what it "
                 "says above.")
    return json.loads(said.stdout)


@functools.cache
def shown(program, *names, options=()):
    """What `show` says of committed sweeps."""
    return asked(program, "show", *map(file_of, names), *options)


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


def measured_with(runs):
    """How much was measured, on which machines, of which commits, as sentences."""
    machines = sorted({", ".join(filter(None, (run["machine"].get("description", ""), run["machine"]["cpu"],
                                               f"{run['machine']['cores']} cores"))) for run in runs})
    commits = sorted({run["commit"] for run in runs})
    dates = sorted({run["date"][:10] for run in runs})
    repeats = sorted({run["figures"]["repeats"] for run in runs})
    much = f"{' or '.join(map(str, repeats))} alternation{'s' if repeats != [1] else ''}"
    return f"{len(runs)} runs of {much}. {'; '.join(machines)}. Commit {', '.join(commits)}, {', '.join(dates)}."


def source(program, name):
    """What a sweep was measured with, as sentences: the machine, the commit, how much, how much of it steady."""
    said = (f"`{file_of(name).relative_to(RESULTS)}`: {measured_with(shown(program, name)['cells'])}"
            f"{hardly_steady(cells(program, name))}")
    return textwrap.fill(said, 120, break_long_words=False, break_on_hyphens=False) + "\n\n"


def number(figures, name):
    return f"{figures[name]['value']:.2f}"


FIRST, ALL = slice(0, 1), slice(None)


def number_at(figure):
    """Of a row of across() and a value the figure there."""
    return lambda row, value: text_of(row[f"{figure}_at_{value}"]).split(" [")[0]


def speedup_at(unclear=""):
    def said(row, value):
        cell = row[f"speedup_at_{value}"]
        bounds = dict(zip(("value", "low", "high"), cell[1:])) if isinstance(cell, list) else None
        return speedup({"speedup": bounds}, unclear) if bounds else cell
    return said


def marked(figure):
    """A figure of theory, marked where drafts are often shorter than their length."""
    def said(row, value):
        short = row[f"full_length_at_{value}"][1] == 0
        return number_at(figure)(row, value) + ("~" if short else "")
    return said


def text_of(cell):
    return cell if isinstance(cell, str) else cell[0]


def across(program, names, pointer, columns, figures=("alpha", "tau", "speedup"), sources=True):
    """`show --across pointer` of sweeps as one: its axes, then `columns`: (title, values as a slice, text)."""
    found = shown(program, *names, options=("--across", pointer, "--figures", ",".join(figures)))["across"]
    axes = [column for column in found["columns"] if "_at_" not in column["name"]]
    values = [column["name"].rpartition("_at_")[2] for column in found["columns"]
              if column["name"].startswith(f"{figures[0]}_at_")]
    unit, chosen = pointer.rpartition("/")[2], [(title, value, said) for title, of, said in columns
                                                for value in values[of]]
    rows = []
    for cells in (row["cells"] for row in found["rows"]):
        row = {column["name"]: cell for column, cell in zip(found["columns"], cells)}
        named = [f"`{text_of(cell)}`" if axis["name"] in ("drafter", "verifier") else text_of(cell)
                 for axis, cell in zip(axes, cells)]
        rows.append((*named, *(said(row, value) for _, value, said in chosen)))
    head = (*(axis["title"] for axis in axes), *(f"{title}{unit} {value}" for title, value, _ in chosen))
    ruler = [axis["kind"] == "number" for axis in axes] + [title not in ("", "speedup, ") for title, _, _ in chosen]
    said = "".join(source(program, name) for name in names) if sources else ""
    return said + table(head, "|" + "".join("--:|" if right else "---|" for right in ruler), rows)


ALPHA, TAU = ("alpha, ", FIRST, number_at("alpha")), ("tau, ", FIRST, number_at("tau"))
SPEEDUPS = ("", ALL, speedup_at())


def by_batch(program, *names):
    """Speedup, one column for each batch."""
    return across(program, names, "/engine/batch", [ALPHA, TAU, SPEEDUPS])


def predicted(program, name):
    """Speedup of every drafter by its length beside the predicted one (table `theory` of `show`)."""
    columns = [TAU, ("", ALL, lambda row, value: f"{speedup_at()(row, value)} / "
                                                 f"{marked('speedup_theory')(row, value)}")]
    return across(program, [name], "/engine/batch", columns, ("tau", "speedup", "speedup_theory", "full_length"))


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
    "lengths_inflated": lambda program: by_batch(program, "h100/inflated"),
    "trees_greedy_inflated": lambda program: by_batch(program, "h100/trees_greedy_inflated"),
    "formats": lambda program: by_batch(program, "cpu/formats"),
}
