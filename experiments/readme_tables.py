"""Makes the tables of README.md and of the pages of experiments/results from the committed results.

    python3 experiments/readme_tables.py             # writes them
    python3 experiments/readme_tables.py --check     # exit code 1 where a page has others

A table stands between the lines `<!-- table NAME -->` and `<!-- end of table -->`. Figures and intervals of sweeps are
those of `foretoken show --json`.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent / "peers")]
import llama_bench
import result_tables
from committed_results import RESULTS, file_of, lines_of
from result_tables import table

ROOT = Path(__file__).resolve().parents[1]
PLACE = re.compile(r"(<!-- table (\w+) -->\n)(.*?)(<!-- end of table -->\n)", re.DOTALL)
STEPS_COMMIT = "7562db900830"
STEPS = {  # rows of the table: scenarios of h200/steps
    "decode, batch 1": "8b decode, context 1k, batch 1",
    "decode, batch 64": "8b decode, context 1k, batch 64",
    "verify 8 rows, batch 1": "8b verifies 8 rows, context 1k, batch 1",
    "draft 4 tokens with a 1B shape and verify, batch 1": "round: 1b drafts 4, 8b verifies, batch 1",
    "the same, batch 32": "round: 1b drafts 4, 8b verifies, batch 32",
    "prompt of 2048 tokens": "8b prompt of 2048",
}


def three_digits(ms):
    return f"{ms:.{2 if ms < 10 else 1}f}"


def steps(_):
    lines = [line for line in map(json.loads, lines_of(file_of("h200/steps")))
             if line["commit"] == STEPS_COMMIT and "step_ms" in line]
    of = {line["scenario"]: line for line in reversed(lines)}  # of several the first
    rows = [(name, three_digits(of[scenario]["step_ms"]), three_digits(of[scenario]["roofline_ms"]),
             f"{of[scenario]['peer_ms']:g}") for name, scenario in STEPS.items()]
    return table(("", "Foretoken", "bound", "vLLM 0.23"), "|---|--:|--:|--:|", rows)


def heads(program):
    return result_tables.drafters(program, "h200/heads_inflated")


def quickstart(program):
    columns = [(f"{title}, ", result_tables.FIRST, result_tables.number_at(figure))
               for title, figure in (("alpha", "alpha"), ("accept", "accept_rate"), ("tau", "tau"))]
    columns += [("tau by theory, ", result_tables.FIRST, result_tables.marked("tau_theory")),
                ("speedup, ", result_tables.ALL, result_tables.speedup_at(" ?"))]
    return result_tables.across(program, ["cpu/quickstart"], "/engine/batch", columns,
                                ("alpha", "accept_rate", "tau", "tau_theory", "full_length", "speedup"), sources=False)


def peer_lines():
    """The lines of llama_bench.jsonl, and a sentence that says of what they are."""
    path = RESULTS / "cpu" / "llama_bench.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not lines:
        return [], "Nothing is recorded: `experiments/results/cpu/llama_bench.jsonl` is not there.\n"
    first = lines[0]
    return lines, (f"{first['machine']['cpu']}, {first['machine']['instructions']}, {max(x['threads'] for x in lines)} "
                   f"threads; {first['peer']}; commit {first['commit']}, {first['date'][:10]}; "
                   f"{len(first['llama_cpp_ms'])} turns:\n\n")


def peer_times(_):
    """Steps of llama.cpp and of this engine: times, bytes and rates of every model and format."""
    lines, said = peer_lines()
    rows = [(line["model"], f"{line['dtype']} / {line['type']}", line["step"], *llama_bench.shown(line)[:3],
             *(f"{line[side + '_bytes'] / 1e6:.1f}" for side in ("llama_cpp", "foretoken")),
             *llama_bench.shown(line)[3:], f"{statistics.median(line['read_bytes_per_second']) / 1e9:.0f}")
            for line in lines]
    head = ("model", "format", "step", "llama.cpp, ms", "Foretoken, ms", "ratio", "MB, llama.cpp", "MB, Foretoken",
            "GB/s, llama.cpp", "GB/s, Foretoken", "memory, GB/s")
    return said + (table(head, "|---|---|---|---|---|---|" + "--:|" * 5, rows) if lines else "")


PAGES = {
    "README.md": {"heads": heads},
    "experiments/results/cpu/README.md": {"quickstart": quickstart, "peer_times": peer_times},
    "experiments/results/tables.md": result_tables.TABLES,
    "experiments/results/h200/README.md": {
        "steps": steps,
        "predicted": lambda program: result_tables.predicted(program, "h200/inflated"),
    },
}


def text_of(path, name, tables):
    """The text of a page, which has a place for each of its tables."""
    text = path.read_text()
    places = [found[2] for found in PLACE.finditer(text)]
    if sorted(places) != sorted(tables):
        sys.exit(f"readme_tables.py: {path} has places for the tables {', '.join(places) or 'none'}; give each of "
                 f"{', '.join(tables)} one in {name}, between <!-- table NAME --> and <!-- end of table -->.")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--pages", type=Path, default=ROOT, help="the folder of README.md (default: this repository)")
    parser.add_argument("--program", default=str(ROOT / "foretoken"), help="what shows results (default: ./foretoken)")
    given = parser.parse_args()
    texts = {name: text_of(given.pages / name, name, tables) for name, tables in PAGES.items()}
    stale = {}
    for name, text in texts.items():
        made = PLACE.sub(lambda found: found[1] + PAGES[name][found[2]]((given.program,)) + found[4], text)
        if made != text:
            stale[given.pages / name] = made
    if stale and given.check:
        sys.exit(f"readme_tables.py: {', '.join(map(str, stale))}: other tables than the results give; "
                 "run python3 experiments/readme_tables.py, and commit what it writes.")
    for path, made in stale.items():
        path.write_text(made)


if __name__ == "__main__":
    main()
