"""Tables, comparisons and reports of a researcher's own: `--where`, `--by`, `--across`, several files, LaTeX, plots."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
RESULTS = SOURCE / "experiments" / "results"
QUICK, LOOKUPS = RESULTS / "cpu" / "quickstart.jsonl.xz", RESULTS / "h200" / "lookups_inflated.jsonl.xz"
SOME = ("--where", "/policy/length=4", "--tables", "main")


class Tables(InFolder):
    def said(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.here, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_where_and_by(self):
        found = json.loads(self.said("show", QUICK, "--where", "/drafter/name=ngram", "--where", "/engine/batch=4",
                                     "--by", "/sampling/temperature", "--json"))
        self.assertEqual([section["title"] for section in found["sections"]], ["T 0", "T 1"])
        self.assertEqual({cell["run"]["drafter"]["name"] for section in found["sections"] for cell in section["cells"]},
                         {"ngram"})
        self.assertIn("/engine/batch is 1, 4", self.said("show", QUICK, "--where", "/engine/batch=7", code=1))
        self.assertIn("named by --by", self.said("show", QUICK, "--by", "/engine/bach", code=1))

    def test_several_files_are_one(self):
        both = json.loads(self.said("show", QUICK, LOOKUPS, QUICK, "--json"))["cells"]
        self.assertEqual(len(both), 32 + 34)
        self.assertIn("Measured on 2 machines", self.said("show", QUICK, LOOKUPS, *SOME))

    def test_formats(self):
        latex = self.said("show", QUICK, *SOME, "--format", "latex")
        self.assertEqual(latex.count(r"\begin{tabular}"), 1)
        self.assertIn(r"draft\_model & 0 & 1 & \textbf{0.74 {\scriptsize {}[0.68, 0.81]}}", latex)
        rows = list(csv.DictReader(io.StringIO(self.said("show", QUICK, *SOME, "--format", "csv"))))
        self.assertEqual(len(rows), 8)
        self.assertLess(float(rows[0]["speedup_low"]), float(rows[0]["speedup"]))
        table = self.said("show", QUICK, "--across", "/engine/batch", "--figures", "tau,speedup", "--format", "csv")
        self.assertIn("speedup_at_4_low", table.splitlines()[0])
        self.assertIn("no figure 'tua'", self.said("show", QUICK, "--across", "/engine/batch", "--figures", "tua",
                                                   code=1))

    @unittest.skipUnless(shutil.which("pdflatex"), "pdflatex is missing")
    def test_latex_compiles(self):
        tables = self.said("show", LOOKUPS, "--format", "latex")
        self.write("t.tex", "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + tables +
                   "\\end{document}\n")
        subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=self.here, check=True, capture_output=True)

    def test_comparisons_are_of_some_runs(self):
        found = json.loads(self.said("compare", QUICK, QUICK, "--where", "/drafter/name=ngram", "--json"))
        self.assertEqual(len(found["matched"]), 16)
        self.assertIn("/drafter/name is draft_model, ngram",
                      self.said("compare", QUICK, QUICK, "--where", "/drafter/name=x", code=1))

    def test_a_plot_of_ones_own(self):
        self.said("report", QUICK, LOOKUPS, "--where", "/sampling/temperature=0", "--x", "/engine/batch", "--y", "tau",
                  "--colour", "/drafter/name", "--columns", "/target/inflate", "--out", "r.html")
        page = (self.here / "r.html").read_text()
        payload = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1])
        self.assertEqual(payload["plots"][0]["title"], "tau over batch")
        self.assertEqual(len(payload["plots"][0]["figures"][0]["panels"]), 2)
        self.assertTrue(payload["verdict"]["lines"][0].startswith("Best: first_hit (ngram, draft_model)"))
        self.assertIn("--columns /target/inflate", payload["commands"]["lines"][-1]["text"])
        self.assertIn("there is no figure 'taus' for --y", self.said("report", QUICK, "--y", "taus", code=1))

    def test_names_of_nested_drafters_fit_a_terminal(self):
        text = subprocess.run(["script", "-qec", f"stty cols 120; {PROGRAM} show --tables main {LOOKUPS}", "/dev/null"],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL).stdout
        self.assertIn("bandit (ngram, suffix, draft_model) ", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 120)


if __name__ == "__main__":
    unittest.main()
