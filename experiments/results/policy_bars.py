"""Length policies beside plain decoding and beside the best fixed length, from sweeps of policies, as Markdown.

    python3 experiments/results/policy_bars.py RESULTS... [--program ./foretoken]

RESULTS are files of results, plain or compressed. A cell is a run but for its policy: target, drafter, verifier,
sampling, batch, workload with its load, machine. Figures and intervals are those of `foretoken show --json`; runs that
failed or are unfinished are left out, and named on standard error. What learns is measured cold and warm, which are two
policies here. Of one cell `foretoken compare` gives the ratio of two policies with an interval.
"""

import argparse
import json
import math
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "experiments"))
from result_tables import asked, measured_with, speedup, table  # noqa: E402

HINDSIGHT = ("The best fixed length of a cell is chosen in hindsight, on the cell itself. That is harder than the bar, "
             "a length that was chosen on other prompts.")


def filled(text):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def geometric_mean(values):
    if not values:
        return None
    return 0.0 if min(values) <= 0 else math.exp(sum(map(math.log, values)) / len(values))


def mean_of(values):
    return number(geometric_mean(values))


def number(value):
    return "-" if value is None else f"{value:.3f}"


def is_fixed(run):
    """Whether it drafts the same length in every round, whatever the draft's confidence."""
    policy = run["policy"]
    return policy["name"] == "fixed" and policy["confidence"] is None and policy["length"] > 0


def start_of(run):
    return run["workload"].get("start")


def policy_of(shown):
    """A policy's name with what tells it from others of the file, and the state it was measured from."""
    policy, name = shown["run"]["policy"], shown["names"]["policy"]
    if policy["name"] == "fixed":
        name = f"fixed {policy['length']}" + (f", {policy['nodes']} nodes" if policy["nodes"] else "")
        name += f", confidence {policy['confidence']:g}" if policy["confidence"] else ""
    return ", ".join(filter(None, (name, start_of(shown["run"]))))


def machine_of(shown):
    return shown["machine"].get("description") or shown["machine"]["cpu"]


def key_of(shown):
    run = {key: value for key, value in shown["run"].items() if key not in ("policy", "measure", "plugins")}
    run["workload"] = {key: value for key, value in run["workload"].items() if key != "start"}
    return json.dumps([run, machine_of(shown)], sort_keys=True)


def told(shown):
    """A run in words, with what is no part of its cell."""
    apart = {key: shown["run"][key] for key in ("policy", "measure", "plugins") if key in shown["run"]}
    return f"{shown['label']} ({json.dumps(apart, sort_keys=True)})"


def text_of(value):
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value, separators=(",", ":"))


def cells_of(runs):
    """[(labels, {policy: run})] of all cells, and the titles of the labels: the drafter, and what else differs."""
    pointers = sorted({pointer for shown in runs for pointer in shown["axes"]
                       if pointer.split("/")[1] not in ("policy", "drafter") and pointer != "/workload/start"})
    machines = len({machine_of(shown) for shown in runs}) > 1
    found = {}
    for shown in runs:
        if shown["run"]["drafter"]["name"] == "none":
            continue
        labels = (f"`{shown['names']['drafter']}`", *(text_of(shown["axes"].get(pointer)) for pointer in pointers),
                  *((machine_of(shown),) if machines else ()))
        of_policy, name = found.setdefault(key_of(shown), (labels, {}))[1], policy_of(shown)
        if name in of_policy:
            sys.exit(f"policy_bars.py: two runs of the policy {name} are one cell's: {told(of_policy[name])}; and "
                     f"{told(shown)}. Give the files of one of them.")
        of_policy[name] = shown
    titles = ("drafter", *(pointer.rpartition("/")[2].replace("temperature", "T") for pointer in pointers),
              *(("machine",) if machines else ()))
    return titles, list(found.values())


def best_fixed(of_policy, shown, value):
    """Of a cell's fixed lengths the greatest value, of those measured from the same state where the drafter learns."""
    values = [value(other) for other in of_policy.values()
              if is_fixed(other["run"]) and start_of(other["run"]) in (None, start_of(shown["run"]))]
    return max((v for v in values if v is not None), default=None)


def ratio(top, bottom):
    return None if top is None or not bottom else top / bottom


def with_figure(cells, value):
    """The cells' runs that have a figure."""
    found = [(labels, {name: shown for name, shown in of_policy.items() if value(shown) is not None})
             for labels, of_policy in cells]
    return [cell for cell in found if cell[1]]


def names_of(cells):
    """All policies, fixed ones first, in the order in which they are met."""
    names = {}
    for _, of_policy in cells:
        for name, shown in of_policy.items():
            names.setdefault(name, shown)
    return sorted(names, key=lambda name: not is_fixed(names[name]["run"]))


def place(titles, labels):
    """A cell in one line."""
    return ", ".join((labels[0], *(f"{title} {label}" for title, label in zip(titles[1:], labels[1:]))))


def worst(titles, ratios):
    """The least of (ratio, labels), as text."""
    if not ratios:
        return "-"
    value, labels = min(ratios)
    return f"{value:.3f}: {place(titles, labels)}"


def speedup_of(shown):
    return shown["figures"]["speedup"]["value"]


def closed(titles, cells):
    """The tables of closed loops, whose speedups are ratios of tokens per second."""
    cells = with_figure(cells, speedup_of)
    if not cells:
        return ""
    names = names_of(cells)
    rows = [(*labels, *(said_speedup(of_policy.get(name)) for name in names)) for labels, of_policy in cells]
    said = ("Intervals are of 95 %; **bold**: wholly below 1, slower than plain decoding.\n\n"
            + table((*titles, *names), "|" + "---|" * (len(titles) + len(names)), rows))
    return f"## Speedup over plain decoding, by cell\n\n{said}\n{policies(titles, cells, names)}"


def policies(titles, cells, names):
    """Each policy over all of its cells, and its cells that are slower than plain decoding."""
    rows, slower = [], []
    for name in names:
        own = [(labels, of_policy[name], best_fixed(of_policy, of_policy[name], speedup_of))
               for labels, of_policy in cells if name in of_policy]
        below = [f"- {name}: {place(titles, labels)}: {said_speedup(shown)}\n" for labels, shown, _ in own
                 if (shown["figures"]["speedup"]["high"] or 1) < 1]
        ratios = [(speedup_of(shown) / best, labels) for labels, shown, best in own if best]
        rows.append((name, str(len(own)), str(len(below)), mean_of([speedup_of(shown) for _, shown, _ in own]),
                     mean_of([value for value, _ in ratios]), worst(titles, ratios)))
        slower += below
    head = ("policy", "cells", "wholly below 1", "speedup, geometric mean",
            "over the best fixed length, geometric mean", "worst cell")
    said = f"## Policies\n\n{filled(HINDSIGHT)}\n\n" + table(head, "|---|" + "--:|" * 4 + "---|", rows) + "\n"
    return said + ("Wholly below plain decoding:\n\n" + "".join(slower) if slower else
                   "No interval lies wholly below 1.\n")


def said_speedup(shown):
    if shown is None:
        return "-"
    figures = shown["figures"]
    return speedup(figures) if figures["speedup"]["low"] is not None else f"{speedup_of(shown):.2f}"


def goodput_of(shown, side="speculative"):
    load = shown["figures"]["load"]
    return load and load[side]["goodput"]["value"]


def said_goodput(shown, side):
    goodput = shown["figures"]["load"][side]["goodput"]
    bounds = "" if goodput["low"] is None else f" [{goodput['low']:.2f}, {goodput['high']:.2f}]"
    return f"{goodput['value']:.2f}{bounds}"


def opened(titles, cells):
    """The tables of open loops with limits, where requests arrive at a rate: their goodput."""
    cells = with_figure(cells, goodput_of)
    if not cells:
        return ""
    names, rows, ratios = names_of(cells), [], {}
    for labels, of_policy in cells:
        for name in (name for name in names if name in of_policy):
            shown = of_policy[name]
            over = (ratio(goodput_of(shown), goodput_of(shown, "baseline")),
                    ratio(goodput_of(shown), best_fixed(of_policy, shown, goodput_of)))
            ratios.setdefault(name, []).append((labels, over))
            rows.append((*labels, name, said_goodput(shown, "baseline"), said_goodput(shown, "speculative"),
                         *map(number, over)))
    head = (*titles, "policy", "plain decoding", "policy's goodput", "over plain", "over the best fixed length")
    said = filled("Requests per second within the limits of TTFT and TPOT, with intervals of 95 %. Plain decoding is "
                  f"the baseline of the same run, with the same arrivals. {HINDSIGHT}")
    said = f"## Goodput of open loops\n\n{said}\n\n{table(head, '|' + '---|' * len(head), rows)}\n"
    rows = []
    for name in names:
        row = [name, str(len(ratios[name]))]
        for which in (0, 1):
            known = [(over[which], labels) for labels, over in ratios[name] if over[which] is not None]
            row += [mean_of([value for value, _ in known]), worst(titles, known)]
        rows.append(row)
    head = ("policy", "cells", "over plain, geometric mean", "worst cell", "over the best fixed length, geometric mean",
            "worst cell")
    return said + table(head, "|---|--:|--:|---|--:|---|", rows)


def page(runs):
    """All tables of runs that have figures."""
    titles, cells = cells_of(runs)
    found = [part for part in (closed(titles, cells), opened(titles, cells)) if part]
    if not found:
        sys.exit("policy_bars.py: no run has a speedup, nor goodput under /workload/ttft_limit or tpot_limit.")
    return "\n".join([filled(measured_with(runs)) + "\n", *found])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="files of results")
    parser.add_argument("--program", default=str(ROOT / "foretoken"), help="what reads results (default: ./foretoken)")
    given = parser.parse_args()
    runs = asked((given.program,), "show", *given.results)["cells"]
    for shown in runs:
        if "figures" not in shown or "unfinished" in shown:
            print(f"policy_bars.py: left out: {shown['label']}: {shown.get('error', 'unfinished')}", file=sys.stderr)
    print(page([shown for shown in runs if "figures" in shown and "unfinished" not in shown]), end="")


if __name__ == "__main__":
    main()
