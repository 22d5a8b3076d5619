"""`foretoken quickstart` from end to end, with short outputs: the whole sweep, with correct figures and complete. Its
workload does not depend on the machine."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
sys.path.insert(0, str(SOURCE / "experiments"))
from committed_results import file_of, lines_of  # noqa: E402


class Quickstart(unittest.TestCase):
    def test_measures_the_whole_sweep(self):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            (here / "results").mkdir()
            older = lines_of(file_of("cpu/quickstart"))[0] + "\n"
            (here / "results" / "quickstart.jsonl").write_text(older)
            (here / "results" / "quickstart.jsonl.1").write_text("somebody's\n")
            done = subprocess.run(
                [PROGRAM, "quickstart", "--seconds", "1", "--device", "cpu", "--set", "/workload/max_new_tokens=3"],
                cwd=here, capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((here / "results" / "quickstart.jsonl.1").read_text(), "somebody's\n")
            self.assertEqual((here / "results" / "quickstart.jsonl.2").read_text(), older)
            lines = [json.loads(line) for line in (here / "results" / "quickstart.jsonl").read_text().splitlines()]
        cells = {
            (r["drafter"]["name"], r["policy"]["length"], r["sampling"]["temperature"], r["engine"]["batch"])
            for r in (line["run"] for line in lines)
        }
        self.assertEqual(
            cells,
            {(d, n, t, b) for d in ("draft_model", "ngram") for n in (1, 2, 4, 8) for t in (0, 1) for b in (1, 4)},
        )
        self.assertEqual(len(lines), 32)
        for line in lines:
            self.check(line)
        for word in ("alpha", "tau", "speedup", "draft_model", "ngram", "Best draft length"):
            self.assertIn(word, done.stdout)
        self.assertIn("results/quickstart.jsonl", done.stderr)
        self.assertIn("every greedy output equals plain decoding's, token for token", done.stderr)

    def test_the_workload_does_not_depend_on_the_machine(self):
        document = json.loads((SOURCE / "experiments" / "configs" / "quickstart.json").read_text())["base"]
        self.assertEqual(document["workload"]["limit"] % 6, 0, "as many prompts of each category")
        self.assertGreaterEqual(document["workload"]["max_new_tokens"], 32)
        self.assertGreaterEqual(document["measure"]["repeats"], 3)

    def check(self, line):
        self.assertEqual((line["run"]["workload"]["limit"], line["run"]["workload"]["max_new_tokens"]), (24, 3))
        self.assertGreaterEqual(len(line["repeats"]), 3)
        greedy = line["run"]["sampling"]["temperature"] == 0
        for repeat in line["repeats"]:
            requests = repeat["speculative"]["requests"]
            self.assertEqual(len(requests), len(repeat["baseline"]["requests"]))
            self.assertGreaterEqual(len(requests), 4 * line["run"]["engine"]["batch"])
            families = Counter(request["category"] for request in requests)
            self.assertEqual((len(families), len(set(families.values()))), (6, 1), families)
        texts = sum(len(repeat["speculative"]["requests"]) for repeat in line["repeats"])
        self.assertEqual(
            line["agreement"], {"compared": greedy, "compared_texts": texts if greedy else 0, "differing_texts": 0}
        )


if __name__ == "__main__":
    unittest.main()
