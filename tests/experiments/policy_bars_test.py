"""Length policies beside plain decoding and the best fixed length: experiments/results/policy_bars.py."""

import json
import lzma
import math
import os
import subprocess
import sys
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
SCRIPT = SOURCE / "experiments" / "results" / "policy_bars.py"
QUICK = SOURCE / "experiments" / "results" / "cpu" / "quickstart.jsonl.xz"
sys.path.insert(0, str(SCRIPT.parent))
import policy_bars  # noqa: E402


def rows_of(text, title):
    """The rows of the table below a heading, as lists of cells."""
    lines = text.split(title, 1)[1].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:end] if "--" not in line]


def as_policy(shown, policy, start=None):
    """What `show` says of a run, as if another policy had been measured."""
    shown = json.loads(json.dumps(shown))
    shown["run"]["policy"] = policy
    shown["names"]["policy"] = policy["name"]
    shown["axes"]["/policy"] = policy
    if start:
        shown["run"]["workload"]["start"] = start
    return shown


def as_load(shown, goodput, plain, rates):
    """The same as if its requests had arrived in an open loop, with so many per second within the limits."""
    shown = json.loads(json.dumps(shown))
    shown["run"]["workload"].update({"rates": rates, "ttft_limit": 1, "tpot_limit": 1})
    shown["axes"]["/workload/rates"] = rates
    shown["figures"]["speedup"] = {"value": None, "low": None, "high": None}
    shown["figures"]["load"] = {side: {"goodput": {"value": value, "low": value and value - 1,
                                                   "high": value and value + 1}}
                                for side, value in (("speculative", goodput), ("baseline", plain))}
    return shown


class PolicyBars(InFolder):
    def said(self, *files, code=0):
        done = subprocess.run([sys.executable, SCRIPT, *files, "--program", PROGRAM], cwd=self.here,
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        self.said_aside = done.stderr
        return done.stdout if code == 0 else done.stderr

    def shown(self):
        """What `show` says of the committed sweep's runs of the draft model, by batch and length, at temperature 0."""
        done = subprocess.run([PROGRAM, "show", QUICK, "--where", "/drafter/name=draft_model", "--where",
                               "/sampling/temperature=0", "--json"], check=True, capture_output=True, text=True)
        return {(s["run"]["engine"]["batch"], s["run"]["policy"]["length"]): s
                for s in json.loads(done.stdout)["cells"]}

    def test_cells_are_those_of_show(self):
        text = self.said(QUICK)
        shown = json.loads(subprocess.run([PROGRAM, "show", QUICK, "--json"], check=True, capture_output=True,
                                          text=True).stdout)["cells"]
        cells = {(f"`{s['names']['drafter']}`", str(s["run"]["engine"]["batch"]),
                  str(s["run"]["sampling"]["temperature"]), s["run"]["policy"]["length"]):
                 s["figures"]["speedup"] for s in shown}
        head, *rows = rows_of(text, "## Speedup over plain decoding")
        self.assertEqual(head, ["drafter", "batch", "T", "fixed 1", "fixed 2", "fixed 4", "fixed 8"])
        self.assertEqual(len(rows), 8)
        below = 0
        for drafter, batch, temperature, *speedups in rows:
            for length, text_of in zip((1, 2, 4, 8), speedups):
                found = cells[drafter, batch, temperature, length]
                self.assertIn(f"{found['value']:.2f} [{found['low']:.2f}, {found['high']:.2f}]", text_of)
                self.assertEqual(text_of.startswith("**"), found["high"] < 1)
                below += found["high"] < 1
        self.assertEqual(below, text.split("Wholly below plain decoding:")[1].count("\n- "))
        policies = {row[0]: row[1:] for row in rows_of(text, "## Policies")[1:]}
        fours = [found["value"] for cell, found in cells.items() if cell[3] == 4]
        best = [max(cells[*cell[:3], length]["value"] for length in (1, 2, 4, 8)) for cell in cells if cell[3] == 4]
        mean = math.exp(sum(map(math.log, fours)) / 8)
        over = [four / most for four, most in zip(fours, best)]
        self.assertEqual(policies["fixed 4"][2:4],
                         [f"{mean:.3f}", f"{math.exp(sum(map(math.log, over)) / 8):.3f}"])
        self.assertTrue(policies["fixed 4"][4].startswith(f"{min(over):.3f}: `draft_model`, batch 4, T 1"))
        self.assertIn("chosen in hindsight", text)

    def test_policies_that_learn_are_two(self):
        of = self.shown()
        goodput = {"name": "goodput", "most": 8, "width": 1, "start": 4, "costs": None}
        sure = {"name": "fixed", "length": 4, "nodes": None, "confidence": 0.3}
        text = policy_bars.page([*of.values(), as_policy(of[1, 2], goodput, "warm"),
                                 as_policy(of[1, 8], goodput, "cold"), as_policy(of[4, 8], goodput, "warm"),
                                 as_policy(of[4, 1], sure)])
        head, *rows = rows_of(text, "## Speedup over plain decoding")
        self.assertEqual(head[:2], ["drafter", "batch"])
        self.assertEqual(sorted(head[2:]), sorted(["fixed 1", "fixed 2", "fixed 4", "fixed 8", "goodput, warm",
                                                   "goodput, cold", "fixed 4, confidence 0.3"]))
        self.assertEqual([row[:2] for row in rows], [["`draft_model`", "1"], ["`draft_model`", "4"]])
        self.assertEqual(rows[1][head.index("goodput, cold")], "-")
        policies = {row[0]: row[1:] for row in rows_of(text, "## Policies")[1:]}
        self.assertEqual(policies["goodput, warm"][:2], ["2", "1"], "length 8 at batch 4 is wholly below 1")
        self.assertEqual(policies["goodput, cold"][0], "1")
        self.assertIn("\n- goodput, warm: `draft_model`, batch 4: **0.76 ", text)
        speedups = {key: s["figures"]["speedup"]["value"] for key, s in of.items()}
        best = {batch: max(speedups[batch, length] for length in (1, 2, 4, 8)) for batch in (1, 4)}
        ratio = math.sqrt(speedups[1, 2] / best[1] * speedups[4, 8] / best[4])
        self.assertEqual(policies["goodput, warm"][2], f"{math.sqrt(speedups[1, 2] * speedups[4, 8]):.3f}")
        self.assertEqual(policies["goodput, warm"][3], f"{ratio:.3f}")
        self.assertTrue(policies["goodput, warm"][4].endswith("`draft_model`, batch 4"))
        self.assertEqual(policies["fixed 4, confidence 0.3"][3], f"{speedups[4, 1] / best[4]:.3f}")

    def test_a_drafter_that_learns_is_compared_from_the_same_state(self):
        of = self.shown()
        fixed = of[1, 1]["run"]["policy"]
        text = policy_bars.page([as_policy(of[1, 1], fixed, "cold"), as_policy(of[1, 2], fixed, "warm"),
                                 as_policy(of[1, 1], {"name": "goodput"}, "cold")])
        policies = {row[0]: row[1:] for row in rows_of(text, "## Policies")[1:]}
        self.assertEqual(set(policies), {"fixed 1, cold", "fixed 1, warm", "goodput, cold"})
        self.assertEqual(policies["goodput, cold"][3], "1.000")

    def test_open_loops_have_goodput(self):
        of, slow, quick = self.shown(), [[1, 2], [1, 20]], [[1, 2], [1, 40]]
        bandit = {"name": "bandit_length"}
        text = policy_bars.page([as_load(of[1, 2], 8, 4, slow), as_load(of[1, 4], 5, 5, slow),
                                 as_load(as_policy(of[1, 2], bandit, "cold"), 6, 4, slow),
                                 as_load(as_policy(of[1, 2], bandit, "cold"), 9, 10, quick)])
        self.assertNotIn("## Speedup", text, "an open loop has none")
        head, *rows = rows_of(text, "## Goodput of open loops")
        self.assertEqual(head, ["drafter", "batch", "rates", "policy", "plain decoding", "policy's goodput",
                                "over plain", "over the best fixed length"])
        of = {(row[2], row[3]): row[4:] for row in rows}
        self.assertEqual(of["[[1,2],[1,20]]", "bandit_length, cold"],
                         ["4.00 [3.00, 5.00]", "6.00 [5.00, 7.00]", "1.500", "0.750"])
        self.assertEqual(of["[[1,2],[1,40]]", "bandit_length, cold"][2:], ["0.900", "-"],
                         "no fixed length met that load")
        marked = "## Policies" + text[text.index("| policy | cells |") - 1:]
        policies = {row[0]: row[1:] for row in rows_of(marked, "## Policies")[1:]}
        self.assertEqual(policies["bandit_length, cold"],
                         ["2", f"{math.sqrt(1.5 * 0.9):.3f}", "0.900: `draft_model`, batch 1, rates [[1,2],[1,40]]",
                          "0.750", "0.750: `draft_model`, batch 1, rates [[1,2],[1,20]]"])
        self.assertEqual(policies["fixed 2"][1], "2.000")

    def test_what_has_no_figures_is_named(self):
        lines = [json.loads(line) for line in lzma.open(QUICK, "rt")][:2]
        lines[1]["repeats"] = []
        lines[1]["error"] = "it went wrong"
        self.said(self.write("r.jsonl", "".join(json.dumps(line) + "\n" for line in lines)))
        self.assertIn("left out", self.said_aside)
        self.assertIn("it went wrong", self.said_aside)
        self.assertIn("nowhere.jsonl", self.said("nowhere.jsonl", code=1))

    def test_two_runs_of_one_policy_and_cell_are_refused(self):
        of = self.shown()
        for key, value in (("measure", {**of[1, 2]["run"]["measure"], "repeats": 77}), ("plugins", ["other.so"])):
            again = as_policy(of[1, 2], of[1, 2]["run"]["policy"])
            again["label"] = "the other one"
            again["run"][key] = value
            with self.assertRaises(SystemExit) as ended:
                policy_bars.page([*of.values(), again])
            sentence = str(ended.exception)
            self.assertIn("two runs of the policy fixed 2", sentence)
            for part in (of[1, 2]["label"], "the other one", "77" if key == "measure" else "other.so"):
                self.assertIn(part, sentence)
            self.assertNotIn("\n", sentence)

    def test_nothing_to_compare_is_said(self):
        of = self.shown()
        with self.assertRaisesRegex(SystemExit, "no run has a speedup"):
            policy_bars.page([as_load(of[1, 2], None, None, [[1, 2]])])
        of[1, 2]["run"]["drafter"] = {"name": "none"}
        with self.assertRaisesRegex(SystemExit, "no run has a speedup"):
            policy_bars.page([of[1, 2]])


if __name__ == "__main__":
    unittest.main()
