"""Executes the notebooks on stored figures where Jupyter, pandas and matplotlib are installed; exit code 77 (skipped)
elsewhere."""

import gzip
import json
import lzma
import os
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "notebooks"
FIGURES, RESULTS = HERE / "figures.json", HERE / "results.jsonl"

try:
    import ipykernel  # noqa: F401 (the kernel that nbclient starts)
    import matplotlib  # noqa: F401
    import nbclient
    import nbformat
    import pandas
except ImportError as missing:
    print(f"skipped: the notebooks were not executed, since Jupyter is missing here (the Python module {missing.name}; "
          "notebooks/README.md says what to install)")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.insert(0, str(FOLDER))
import results  # noqa: E402

PICTURES = 7  # speedup and tau over the length, speedup over batch and temperature, positions, times, Pareto curves

# Answers `show PATH --json` with the stored figures, and nothing else.
STAND_IN = """#!/bin/sh
[ "$1" = show ] && [ "$2" = "{results}" ] && [ "$3" = --json ] && [ $# = 3 ] && exec cat "{figures}"
echo "unknown command: $*" >&2
exit 1
"""


class Execution(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        program = Path(self.folder.name) / "foretoken"
        program.write_text(STAND_IN.format(results=RESULTS, figures=FIGURES))
        program.chmod(0o755)
        os.environ["FORETOKEN_PROGRAM"] = str(program)
        self.addCleanup(os.environ.pop, "FORETOKEN_PROGRAM")

    def execute(self, path):
        os.environ["FORETOKEN_RESULTS"] = str(path)
        self.addCleanup(os.environ.pop, "FORETOKEN_RESULTS", None)
        notebook = nbformat.read(FOLDER / "first_look.ipynb", as_version=4)
        nbformat.validate(notebook)
        nbclient.NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
        ).execute()
        return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]

    def test_first_look_draws_its_pictures(self):
        outputs = self.execute(FIGURES)
        pictures = [o for o in outputs if "image/png" in o.get("data", {})]
        self.assertEqual(len(pictures), PICTURES)
        printed = "".join(o.get("text", "") for o in outputs)
        self.assertIn("6 runs of figures.json", printed)
        self.assertIn("the draft has another vocabulary", printed)

    def test_result_lines_are_handed_to_the_program(self):
        self.assertEqual(results.figures(RESULTS), json.loads(FIGURES.read_text()))

    def test_compressed_figures_are_read(self):
        path = Path(self.folder.name) / "figures"
        for compress in (gzip.compress, lzma.compress):
            path.write_bytes(compress(FIGURES.read_bytes()))
            self.assertEqual(results.figures(path), json.loads(FIGURES.read_text()))
            path.write_bytes(path.read_bytes()[:100])
            with self.assertRaisesRegex(RuntimeError, "unknown command"):  # the program's to refuse
                results.figures(path)

    def test_a_program_that_fails_is_heard(self):
        lines = Path(self.folder.name) / "other.jsonl"
        lines.write_text('{"schema": 1}\n{"schema": 1}\n')
        with self.assertRaisesRegex(RuntimeError, "unknown command"):
            results.figures(lines)

    def test_missing_results_name_the_remedy(self):
        with self.assertRaisesRegex(FileNotFoundError, "quickstart"):
            results.figures(Path(self.folder.name) / "nowhere.jsonl")

    def test_tables(self):
        found = results.figures(FIGURES)
        cells = results.cells(found)
        self.assertEqual(list(cells.method), ["draft_model"] * 4 + ["ngram"] * 2)
        self.assertEqual(sorted(cells.length.unique()), [2, 8])
        self.assertTrue((cells.speedup_low <= cells.speedup).all() and (cells.speedup <= cells.speedup_high).all())
        self.assertEqual(cells["policy.length"].tolist(), cells.length.tolist())
        self.assertEqual(len(results.lists(found, "positions")), 3 * (2 + 8))
        self.assertEqual(set(results.lists(found, "categories").category), {"story", "math"})
        self.assertIn("alpha_low", results.lists(found, "categories"))
        self.assertEqual(len(results.failures(found)), 1)

    def test_times_of_a_step_add_up(self):
        cells = results.cells(results.figures(FIGURES))
        parts = cells[["draft_ms", "target_ms", "verify_ms", "host_ms"]].sum(axis=1)
        self.assertTrue(((parts - cells.step_ms).abs() < 1e-9).all())
        self.assertAlmostEqual(cells.step_ms[0], 1000 * 3.08 / 240)
        self.assertAlmostEqual(cells.baseline_step_ms[0], 1000 * 4.84 / 480)

    def test_the_fastest_policy_of_each_group(self):
        found = results.figures(FIGURES)
        cells = results.cells(found)
        best = results.fastest(found, cells)
        self.assertEqual(list(zip(best.method, best.batch)), [("draft_model", 1), ("draft_model", 4), ("ngram", 1)])
        for _, row in best.iterrows():
            alike = cells[(cells.method == row.method) & (cells.batch == row.batch)]
            self.assertEqual(row.speedup, alike.speedup.max())

    def test_a_policy_may_have_no_length(self):
        found = json.loads(FIGURES.read_text())
        for cell in found["cells"][:2]:
            cell["run"]["policy"] = {"name": "adaptive"}
            cell["names"]["line"] += ", adaptive"
        path = Path(self.folder.name) / "several.json"
        path.write_text(json.dumps(found))
        self.assertEqual(len([o for o in self.execute(path) if "image/png" in o.get("data", {})]), PICTURES)
        self.assertEqual(list(results.cells(found).line.unique()), ["draft_model, adaptive", "draft_model", "ngram"])

    def test_a_front_holds_what_nothing_exceeds(self):
        rows = pandas.DataFrame({"x": [1, 2, 2, 1, 4, 3], "y": [9, 8, 3, 5, 1, 1]})
        front = results.pareto_front(rows, "x", "y")
        self.assertEqual(list(zip(front.x, front.y)), [(1, 9), (2, 8), (4, 1)])

    def test_unknown_bounds_are_drawn_as_none(self):
        found = json.loads(FIGURES.read_text())
        for cell in found["cells"]:
            for name in cell.get("values", {}):
                if name.endswith(("_low", "_high")):
                    cell["values"][name] = None
        path = Path(self.folder.name) / "unbounded.json"
        path.write_text(json.dumps(found))
        self.assertTrue(results.cells(found).speedup_low.isna().all())
        self.assertEqual(len([o for o in self.execute(path) if "image/png" in o.get("data", {})]), PICTURES)


if __name__ == "__main__":
    unittest.main()
