"""`foretoken tune`, `calibrate` and `predict` on the demo models: a small sweep, lengths and costs from it, and runs
whose policies read these files."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
BASE = {"target": {"model": "experiments/models/target"},
        "drafter": {"name": "draft_model", "model": "experiments/models/draft"},
        "policy": {"length": 2},
        "sampling": {"temperature": 0},
        "engine": {"batch": 1, "device": "cpu", "threads": 1},
        "workload": {"prompts": "experiments/prompts.jsonl", "limit": 8, "max_new_tokens": 16},
        "measure": {"repeats": 2, "warmup": False, "seconds": 0.1}}


class Costs(InFolder):
    def run_it(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.here, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    def done(self, *arguments):
        status, out, err = self.run_it(*arguments)
        self.assertEqual(status, 0, err)
        return out

    def refused(self, *arguments, words, lines=1):
        status, out, err = self.run_it(*arguments)
        self.assertEqual((status, out, err.count("\n")), (1, "", lines), err)
        for word in words:
            self.assertIn(word, err)

    def calibrated(self, document, name):
        """A file of costs of batches 1 and 2 and lengths 0, 1 and 3."""
        return json.loads(self.done("calibrate", document, "--out", name, "--seconds", "4", "--batches", "1,2",
                                    "--lengths", "1,3", "--contexts", "48", "--quiet", "--json"))

    def test_from_a_sweep_to_tuned_lengths_and_predictions(self):
        sweep = self.write("sweep.json", {"base": BASE, "axes": {"/policy/length": [1, 2, 3]}})
        found = self.calibrated(sweep, "costs.json")
        self.assertEqual(found, json.loads((self.here / "costs.json").read_text()))
        self.assertEqual({(s["batch"], s["depth"]) for s in found["steps"]},
                         {(b, d) for b in (1, 2) for d in (0, 1, 3)})
        for step in found["steps"]:
            self.assertEqual(step["rows"], step["batch"] * (1 + step["depth"]))
            self.assertLess(step["draft_seconds"], step["seconds"])
            self.assertGreaterEqual(step["context"], 48 * step["batch"])
        token = found["prompt_token"]  # from one context, which does not tell the two apart
        self.assertGreater(token["seconds"] + token["position_seconds"], 0)
        self.assertGreater(found["error"]["worst"], 0)

        blind = json.loads(self.done("predict", sweep, "--costs", "costs.json", "--json"))
        self.assertEqual([c["speedup"]["value"] for c in blind["cells"]], [None] * 3)
        self.assertTrue(all(c["break_even"] is None or 0 < c["break_even"] <= 1 for c in blind["cells"]))
        told = json.loads(self.done("predict", sweep, "--costs", "costs.json", "--acceptance", "0.9", "--json"))
        for cell, length in zip(told["cells"], (1, 2, 3)):
            tau = sum(0.9**k for k in range(length + 1))
            self.assertLess(abs(cell["tau"]["value"] / tau - 1), 0.15, "the ends of outputs have less room")
            self.assertLess(cell["speedup"]["low"], cell["speedup"]["high"])

        self.done("run", sweep, "--quiet")
        beside = json.loads(self.done("predict", "results/sweep.jsonl", "--compare", "--costs", "costs.json",
                                      "--acceptance", "results/sweep.jsonl", "--json"))
        self.assertEqual(beside["errors"]["cells"], 3)
        self.assertLess(beside["errors"]["tau"]["worst"], 0.1, "acceptance is that of the same runs")
        self.assertLess(beside["errors"]["speedup"]["median"], 0.5, "of a busy machine")
        self.assertIn("Predicted and measured", self.done(
            "predict", "results/sweep.jsonl", "--compare", "--costs", "costs.json", "--acceptance", "0.8"))

        tuned = json.loads(self.done("tune", "results/sweep.jsonl", "--out", "policy.json", "--json"))
        self.assertEqual(tuned, json.loads((self.here / "policy.json").read_text()))
        self.assertEqual([batch for batch, _ in tuned["lengths"]], [1])
        # goodput learns, so it is run cold and warm: two runs, and a second line of what to do.
        for policy, lines in (({"name": "table", "file": "policy.json"}, 1),
                              ({"name": "goodput", "most": 3, "costs": "costs.json"}, 2)):
            run = self.write("run.json", {**BASE, "policy": policy})
            self.done("run", run, "--quiet", "--results", f"results/{policy['name']}.jsonl")
            other = {**BASE, "policy": policy, "drafter": {"name": "ngram"}}
            self.refused("run", self.write("other.json", other), "--quiet", lines=lines, words=[
                "'/drafter/name'", "these models"])
            key = "file" if "file" in policy else "costs"
            inline = {**policy, key: json.loads((self.here / policy[key]).read_text())}
            self.refused("run", self.write("other.json", {**other, "policy": inline}), "--quiet", lines=lines, words=[
                f"the option '{key}' of the policy '{policy['name']}'", "'/drafter/name'", "these models"])

    def costs_of_rows(self, name, seconds, **more):
        """A file of costs: what a step takes by its rows; drafting takes next to nothing."""
        steps = [{"batch": batch, "rows": batch * (1 + depth), "depth": depth,
                  "seconds": seconds(batch * (1 + depth)), **({"draft_seconds": 1e-6} if depth else {})}
                 for batch in (1, 2, 4) for depth in (0, 1, 2, 4, 8)]
        return self.write(name, {"kind": "step costs", "schema": 1, "source": "made up", "steps": steps, **more})

    def tuned(self, document, costs, *more):
        return json.loads(self.done("tune", document, "--costs", costs, "--acceptance", "0.8", "--json", *more))

    def test_lengths_are_predicted_from_costs(self):
        run = self.write("run.json", {**BASE, "workload": {**BASE["workload"], "max_new_tokens": 60}})
        free = self.costs_of_rows("free.json", lambda rows: 0.01)
        dear = self.costs_of_rows("dear.json", lambda rows: 0.01 * rows)
        mixed = self.costs_of_rows("mixed.json", lambda rows: 0.01 * max(1, rows - 7))
        self.assertEqual(self.tuned(run, free, "--lengths", "1,2,8")["lengths"], [[1, 8], [2, 8], [4, 8]])
        self.assertEqual(self.tuned(run, dear)["lengths"], [[1, 0], [2, 0], [4, 0]])
        found = self.tuned(run, mixed, "--batches", "1,4", "--out", "policy.json")
        self.assertEqual(found, json.loads((self.here / "policy.json").read_text()))
        self.assertGreaterEqual(found["lengths"][0][1], 5, "up to 8 rows are free")
        self.assertEqual(found["lengths"][1], [4, 1])
        self.assertEqual(found["choices"][0]["candidates"], 8)
        self.assertGreater(found["choices"][0]["speedup"]["value"], 3)
        self.assertEqual(found["made_from"], {"costs": mixed, "acceptance": "0.8", "run": run})
        self.assertEqual((found["kind"], found["machine"]), ("tuned lengths", "made up"))
        shown = self.done("tune", run, "--costs", mixed, "--acceptance", "0.8", "--batches", "8", "--lengths", "2")
        self.assertIn("Predicted for made up from", shown)
        self.assertIn("~", shown, "a batch of 8 is beyond these costs")

        # The policy reads the file, and its speedup is the one that was predicted for its length.
        length, speedup = found["lengths"][0][1], found["choices"][0]["speedup"]["value"]
        table = self.write("table.json", {**json.loads((self.here / run).read_text()),
                                          "policy": {"name": "table", "file": "policy.json"}})
        cell = json.loads(self.done("predict", table, "--costs", mixed, "--acceptance", "0.8", "--json"))["cells"][0]
        self.assertLess(abs(cell["speedup"]["value"] / speedup - 1), 0.05, f"of {length} levels")

    def test_a_policys_file_is_beside_the_run_and_of_its_pair(self):
        (self.here / "there").mkdir()
        lengths = {"lengths": [[1, 3]], "drafter": BASE["drafter"]}
        self.write("there/policy.json", lengths)
        policy = {"name": "table", "file": "policy.json"}
        run = self.write("there/run.json", {**BASE, "policy": policy})
        costs = self.costs_of_rows("costs.json", lambda rows: 0.01)
        given = ("--costs", costs, "--acceptance", "1", "--json")
        self.assertGreater(json.loads(self.done("predict", run, *given))["cells"][0]["tau"]["value"], 3)
        found = json.loads(self.done("calibrate", run, "--seconds", "4", "--batches", "1", "--contexts", "48",
                                     "--quiet", "--json"))
        self.assertEqual({s["depth"] for s in found["steps"]}, {0, 1, 2, 3}, "up to the longest of the file")
        for name, file in (("policy.json", "policy.json"), ("the option 'file'", lengths)):
            other = self.write("there/other.json", {**BASE, "drafter": {"name": "ngram"},
                                                    "policy": {**policy, "file": file}})
            status, out, err = self.run_it("predict", other, *given)
            self.assertEqual(status, 1, err)
            sentence = json.loads(out)["cells"][0]["error"]
            self.assertIn(name, sentence)
            self.assertIn("'/drafter/name'", sentence)

    def test_policies_that_follow_past_rounds_are_simulated(self):
        run = self.write("run.json", {"base": {**BASE, "workload": {**BASE["workload"], "max_new_tokens": 100}},
                                      "axes": {"/policy": [{"name": "fixed", "length": 1},
                                                           {"name": "gamma_tune", "start": 1, "most": 8}]}})
        costs = self.costs_of_rows("costs.json", lambda rows: 0.01)
        tau = {}
        for acceptance in ("0", "1"):
            given = ("--costs", costs, "--acceptance", acceptance, "--json")
            cells = json.loads(self.done("predict", run, *given))["cells"]
            for cell in cells:
                tau[cell["run"]["policy"]["name"], acceptance] = cell["tau"]["value"]
                self.assertEqual(cell["break_even"] is None, (cell["run"]["policy"]["name"], acceptance)
                                 == ("gamma_tune", "1"), "drafts of one length have it")
        self.assertEqual((tau["fixed", "0"], tau["gamma_tune", "0"]), (1, 1))
        self.assertLessEqual(tau["fixed", "1"], 2)
        self.assertGreater(tau["gamma_tune", "1"], 3, "drafts grow where all is accepted")

    def test_what_the_costs_say_of_other_runs_is_named(self):
        run = self.write("run.json", BASE)
        verifier = {"name": "naive_sampling", "an_option": 1}
        costs = self.costs_of_rows("costs.json", lambda rows: 0.01, engine={"device": "cpu", "threads": 3},
                                   sampling={"temperature": 1, "seed": 7}, verifier=verifier)
        given = ("--costs", costs, "--acceptance", "0.8")
        cell = json.loads(self.done("predict", run, *given, "--json"))["cells"][0]
        found = {one["key"]: (one["costs"], one["run"]) for one in cell["costs_differ"]}
        self.assertEqual(found, {"/engine/threads": (3, 1), "/sampling/temperature": (1, 0),
                                 "/verifier/name": ("naive_sampling", cell["run"]["verifier"]["name"])})
        self.assertEqual(self.tuned(run, costs, "--batches", "1")["costs_differ"], cell["costs_differ"])
        for command in ("predict", "tune"):
            text = " ".join(self.done(command, run, *given).split())
            self.assertIn("'/engine/threads' is 3 in the costs, and 1 here.", text)
        same = self.costs_of_rows("same.json", lambda rows: 0.01, engine={"threads": 1})
        self.assertNotIn("costs_differ", self.tuned(run, same, "--batches", "1"))

    def test_lengths_cannot_be_predicted_from_bad_input(self):
        run = self.write("run.json", BASE)
        costs = self.costs_of_rows("costs.json", lambda rows: 0.01)
        given = ("--costs", costs, "--acceptance", "0.8")
        other = self.costs_of_rows("other.json", lambda rows: 0.01, drafter={"name": "ngram"})
        plain = self.write("plain.json", {"kind": "step costs", "schema": 1,
                                          "steps": [{"batch": 1, "rows": 1, "seconds": 0.01}]})
        self.refused("tune", run, "--costs", other, "--acceptance", "0.8", words=["'/drafter/name'", "these models"])
        self.refused("tune", run, "--costs", plain, "--acceptance", "0.8", words=["no step with a draft"])
        self.refused("tune", run, run, *given, words=["one document"])
        self.refused("tune", run, *given, "--batches", "4,2", words=["--batches has 2 after 4", "rising"])
        self.refused("tune", run, "--costs", costs, "--acceptance", "2", words=["--acceptance '2'"])
        self.refused("tune", run, "--costs", run, "--acceptance", "1", words=["step costs", "foretoken calibrate"])
        self.refused("tune", run, *given, "--out", run, words=["is no file of foretoken tune"])
        narrow = self.write("narrow.json", {**BASE, "engine": {**BASE["engine"], "step_rows": 20}})
        self.refused("tune", narrow, *given, words=[
            "'/engine/step_rows' is 20", "9 nodes in a batch of 4", "set it to 0"])
        self.assertEqual(len(self.tuned(narrow, costs, "--batches", "1,2")["lengths"]), 2)
        status, out, _ = self.run_it("predict", narrow, *given, "--set", "/engine/batch=7", "--json")
        self.assertEqual(status, 1)
        self.assertIn("which cuts drafts of 3 nodes in a batch of 7", json.loads(out)["cells"][0]["error"])
        self.done("predict", narrow, *given, "--set", "/engine/batch=6")
        several = self.write("several.json", {"base": BASE, "axes": {"/sampling/temperature": [0, 1]}})
        self.refused("tune", several, *given, words=["differ in /sampling/temperature", "--set"])
        for wrong in (("--costs", costs), ("--acceptance", "0.8"), ("--batches", "1"), ("--set", "/a=1"),
                      (*given, "--where", "/engine/batch=1")):
            self.assertEqual(self.run_it("tune", run, *wrong)[0], 2, wrong)

    def test_bad_input_is_refused(self):
        plain = self.write("plain.json", {"kind": "step costs", "schema": 1,
                                          "steps": [{"batch": 1, "rows": 1, "seconds": 0.01}]})
        run = self.write("run.json", BASE)
        status, _, err = self.run_it("predict", run, "--costs", plain, "--acceptance", "0.8")
        self.assertEqual(status, 1, err)
        risen = self.write("risen.json", {**BASE, "workload": {**BASE["workload"], "rates": [[1, 2], [1, 4]]}})
        status, out, err = self.run_it("predict", risen, "--costs", plain, "--acceptance", "0.8")
        self.assertEqual(status, 1, err)
        self.assertIn("an open loop ('/workload/rates') has no speedup to predict", out)
        self.refused("predict", run, "--costs", run, words=["step costs", "foretoken calibrate"])
        self.refused("predict", run, "--costs", plain, "--acceptance", "2", words=["--acceptance '2'"])
        self.refused("calibrate", run, "--out", run, words=["is no file of costs"])
        self.refused("calibrate", run, "--out", "nowhere/costs.json", words=["does not exist"])
        self.refused("calibrate", run, "--contexts", "1048576", words=["--contexts"])
        drafters = self.write("drafters.json", {"base": BASE, "axes": {"/sampling/temperature": [0, 1]}})
        self.refused("calibrate", drafters, words=["differ in /sampling/temperature", "--set"])
        self.refused("tune", plain, words=[plain])
        self.assertEqual(self.run_it("calibrate", run, "--seconds", "121")[0], 2)


if __name__ == "__main__":
    unittest.main()
