"""Step times of two groups of commits in the results h200/steps, as a Markdown table.

    python3 experiments/results/h200/ratios.py NOW[,COMMIT...] BEFORE[,COMMIT...]

The first commit of each group gives its column; the ratio is that of the medians over all runs of the groups. A row
whose code changed after an older commit of NOW is listed in CHANGED with the commits that still count.
"""
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from committed_results import file_of, lines_of  # noqa: E402

CHANGED = {  # rows whose kernels are those of the first commit of NOW alone
    "8b 16 rows of one sequence, context 1k",
    "8b 16 rows of one sequence, context 8k",
    "8b 16 rows of one sequence, context 32k",
    "8b invariant verifies 8 rows, context 1k, batch 64",
}


def shown(ms):
    return f"{ms:.3f}" if ms < 10 else f"{ms:.2f}"


def main(now, before):
    lines = [line for line in map(json.loads, lines_of(file_of("h200/steps"))) if "step_ms" in line]
    rows = [line for line in lines if line["commit"] == now[0]]
    for row in rows:
        def times(commits):
            return [line["step_ms"] for line in lines
                    if line["scenario"] == row["scenario"] and line["commit"] in commits]
        ours = times(now[:1] if row["scenario"] in CHANGED else now)
        theirs = times(before)
        bar, peer = row.get("bar_ms") or 0, row.get("peer_ms") or 0
        met = f"{bar:g}: {'met' if row['step_ms'] <= bar else 'missed'}" if bar else ""
        print(f"| {row['scenario']} | {shown(row['step_ms'])} | {shown(times(before[:1])[-1])} "
              f"| {statistics.median(ours) / statistics.median(theirs):.3f} ({len(ours)}, {len(theirs)}) "
              f"| {shown(row['roofline_ms'])} | {met} | {peer or ''} |")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1].split(","), sys.argv[2].split(","))
