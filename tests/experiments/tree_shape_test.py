"""`foretoken tree-shape` on the demo models: a sweep of trees, the best shape from it, and a run with that shape."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
BASE = {"target": {"model": "experiments/models/target"},
        "drafter": {"name": "draft_tree", "model": "experiments/models/draft", "shape": [3, 2, 1, 1],
                    "cut": True},
        "policy": {"length": 4, "nodes": 22},
        "sampling": {"temperature": 1},
        "engine": {"batch": 2, "device": "cpu", "threads": 1},
        "workload": {"prompts": "experiments/prompts.jsonl", "limit": 12, "max_new_tokens": 24},
        "measure": {"repeats": 1, "warmup": False}}


class TreeShape(InFolder):
    def run_it(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.here, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    def test_a_shape_from_results_runs_and_emits_about_what_was_predicted(self):
        document = self.write("trees.json", {"base": BASE, "axes": {"/policy/nodes": [10, 22]}})
        status, _, err = self.run_it("run", document, "--quiet")
        self.assertEqual(status, 0, err)
        status, out, err = self.run_it("tree-shape", "results/trees.jsonl", "--nodes", "8", "--json")
        self.assertEqual(status, 0, err)
        found = json.loads(out)
        chosen = found["chosen"]
        self.assertLessEqual(chosen["nodes"], 8)
        self.assertEqual(len(found["document"]["drafter"]["shape"]) + 1, chosen["nodes"])
        self.assertTrue(all(tree["tokens_per_second"] > 0 for tree in found["trees"]))

        steps = [{"batch": 2, "rows": 2 * nodes, "depth": 4 * (nodes > 1), "seconds": 0.01,
                  **({"draft_seconds": 1e-6} if nodes > 1 else {})} for nodes in (1, 6)]
        costs = self.write("costs.json", {"kind": "step costs", "schema": 1, "steps": steps})
        status, out, err = self.run_it("tree-shape", "results/trees.jsonl", "--costs", costs, "--batch", "2", "--json")
        self.assertEqual(status, 0, err)
        free = json.loads(out)
        self.assertEqual(free["chosen"]["nodes"], 6, "as many as the costs know rows for, since rows are free")
        self.assertEqual(free["costs"]["batch"], 2)
        self.assertGreater(free["costs"]["context"], 12, "half of the output, and the prompts")
        for wrong, code in (((), 1), (("--batch", "2", "--nodes", "8"), 2)):
            self.assertEqual(self.run_it("tree-shape", "results/trees.jsonl", *wrong)[0], code, wrong)

        best = self.write("best.json", {**BASE, **found["document"]})
        status, _, err = self.run_it("run", best, "--quiet")
        self.assertEqual(status, 0, err)
        line = json.loads((self.here / "results/best.jsonl").read_text())
        side = line["repeats"][0]["speculative"]
        self.assertEqual(line["run"]["policy"]["nodes"], chosen["nodes"])
        tau = side["tokens"] / side["rounds"]
        # 12 prompts of 24 tokens, whose last rounds are cut by the length of the output.
        self.assertLess(abs(tau / chosen["tau"] - 1), 0.25, (tau, chosen))

    def test_results_without_trees_are_refused(self):
        chain = {**BASE, "drafter": {"name": "ngram"}, "policy": {"length": 2}}
        chain["workload"] = {**BASE["workload"], "limit": 2}
        status, _, err = self.run_it("run", self.write("chain.json", chain), "--quiet")
        self.assertEqual(status, 0, err)
        status, out, err = self.run_it("tree-shape", "results/chain.jsonl", "--nodes", "8")
        self.assertEqual((status, out, err.count("\n")), (1, "", 1))
        self.assertIn("no run of a drafter with a tree of a fixed shape", err)
        status, _, err = self.run_it("tree-shape", "results/chain.jsonl", "--nodes", "500")
        self.assertEqual(status, 2, err)


if __name__ == "__main__":
    unittest.main()
