"""The committed draft heads accept about what their cards say: a wrong slot, norm or mask shows in it.

States of neighbouring layers would not: the golden tests compare logits.
"""

import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
ROOT = Path(__file__).resolve().parents[2]
HEADS = {"eagle3": "head", "mtp": "head", "dflash": "head", "pard": "model"}  # the option that names the weights


def on_card(name, temperature):
    """Held-out acceptance by position."""
    card = (ROOT / f"experiments/models/heads/{name}/README.md").read_text()
    return [float(x) for x in re.search(rf"^\| T={temperature} \|(.*)\|$", card, re.M).group(1).split("|")[:-1]]


class CommittedHeads(InFolder):
    def lines(self, drafters, temperatures):
        document = {"base": {"target": {"model": "experiments/models/target"},
                             "verifier": {"name": "speculative_sampling"}, "policy": {"length": 3},
                             "engine": {"batch": 4, "device": "cpu"},
                             "workload": {"prompts": "experiments/prompts.jsonl", "limit": 24, "max_new_tokens": 48},
                             "measure": {"repeats": 1, "warmup": False}},
                    "axes": {"/sampling/temperature": temperatures, "/drafter": drafters}}
        done = subprocess.run([PROGRAM, "run", self.write("heads.json", document), "--quiet"], cwd=self.here,
                              capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in (self.here / "results/heads.jsonl").read_text().splitlines()]
        self.assertEqual(len(lines), len(temperatures) * len(drafters))
        return lines, done.stderr

    def test_on_states_of_other_layers_say_so(self):
        wrong = self.here / "wrong"
        shutil.copytree(ROOT / "experiments/models/heads/eagle3", wrong)
        config = json.loads((wrong / "config.json").read_text())
        config["eagle_aux_hidden_state_layer_ids"] = [7, 6, 2]
        (wrong / "config.json").write_text(json.dumps(config))
        lines, said = self.lines([{"name": "eagle3", "head": str(wrong)}], [0])
        doubt = lines[0]["repeats"][0]["speculative"]["doubt"]
        self.assertIn("where its own probabilities expect", doubt)
        self.assertEqual(said.count(doubt), 1)

    def test_accept_what_their_cards_say(self):
        drafters = [{"name": name, option: f"experiments/models/heads/{name}"} for name, option in HEADS.items()]
        lines, said = self.lines(drafters, [0, 1])
        self.assertNotIn("own probabilities", said)
        for line in lines:
            name, temperature = line["run"]["drafter"]["name"], line["run"]["sampling"]["temperature"]
            side = line["repeats"][0]["speculative"]
            self.assertNotIn("doubt", side)
            tested = [sum(at) for at in zip(*(r["tested_at"] + [0] * 3 for r in side["requests"]), strict=False)]
            accepted = [sum(at) for at in zip(*(r["accepted_at"] + [0] * 3 for r in side["requests"]), strict=False)]
            for position, card in enumerate(on_card(name, int(temperature))[:2]):
                self.assertGreater(tested[position], 100)
                # Rounds begin where the one before ended, which is where tokens are harder, and prompts differ.
                self.assertGreater(accepted[position] / tested[position], 0.75 * card, (name, temperature, position))


if __name__ == "__main__":
    unittest.main()
