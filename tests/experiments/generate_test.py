"""`foretoken generate` and stop strings where it is known what a model writes: a bias of 100 leaves it one sign alone,
so output, marks and figures can be counted by hand."""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
TARGET = SOURCE / "experiments" / "models" / "target"
VOCABULARY = json.loads((TARGET / "tokenizer.json").read_text())["model"]["vocab"]
END = json.loads((TARGET / "config.json").read_text())["eos_token_id"]


class Generate(InFolder):
    def run_it(self, *arguments, stdin=""):
        done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.here, input=stdin, capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def generate(self, *arguments, sign="!", prompt="x", tokens=12):
        bias = [f"--logit-bias={VOCABULARY[sign]}=100"] if sign else []
        return self.run_it("generate", "--model", TARGET, "--device", "cpu", "--threads", "1", "--prompt", prompt,
                           "--max-new-tokens", tokens, *bias, *arguments)

    def written(self, *arguments, **how):
        return self.generate(*arguments, **how)[0]

    def test_every_stop_string_ends_an_output(self):
        """The one that comes first does, wherever it stands among them."""
        self.assertEqual(self.written(), 12 * "!" + "\n")
        for stops, wanted in ((["!!"], 2), (["zz", "!!"], 2), (["!!", "zz"], 2), (["!!!!!", "!!!"], 3),
                              (["!!!", "!!!!!"], 3), (["zz", "!!!!", "yy"], 4), (["zz", "yy"], 12)):
            options = [word for stop in stops for word in ("--stop", stop)]
            for drafter in ([], ["--drafter", "ngram"]):
                self.assertEqual(self.written(*options, *drafter), wanted * "!" + "\n", stops)

    def test_every_stop_string_of_a_run_ends_its_requests(self):
        base = {"target": {"model": str(TARGET)}, "drafter": {"name": "ngram"},
                "engine": {"batch": 2, "device": "cpu", "threads": 1},
                "sampling": {"logit_bias": {VOCABULARY["!"]: 100}}, "measure": {"repeats": 1, "warmup": False},
                "workload": {"prompts": self.write("p.jsonl", '{"prompt": "x"}\n{"prompt": "the"}\n'), "repeats": 6,
                             "lengths": "equal", "max_new_tokens": 6}}
        cases = [(["zz", "!!"], 2, "stop_rule"), (["!!!!", "!!!"], 3, "stop_rule"), (["zz"], 6, "length"),
                 ([], 6, "length")]
        document = self.write("run.json", {"base": base, "axes": {"/workload/stop": [stops for stops, _, _ in cases]}})
        self.run_it("run", document, "--quiet")
        lines = [json.loads(line) for line in (self.here / "results" / "run.jsonl").read_text().splitlines()]
        found = {json.dumps(line["run"]["workload"]["stop"]):
                 {(r["tokens"], r["finish"]) for side in ("baseline", "speculative")
                  for r in line["repeats"][0][side]["requests"]} for line in lines}
        self.assertEqual(found, {json.dumps(stops): {(tokens, finish)} for stops, tokens, finish in cases})

    # Without a draft every token is a round. The drafter ngram proposes what followed the two last tokens before:
    # nothing in the first three rounds, then one sign in each of four, which write two; the last token has no draft.
    def test_figures(self):
        seconds, rate, first = r"(\d+\.\d\d) s", r"(\d+\.\d) tokens/s", r"the first after (\d+\.\d) ms"
        begin = rf"^foretoken: 12 tokens in {seconds}, {rate}, {first}; "
        self.assertRegex(self.generate()[1], begin + r"tau 1\.00 tokens per target forward\n$")
        err = self.generate("--drafter", "ngram")[1]
        self.assertRegex(err, begin + r"tau 1\.50 tokens per target forward; accepted 4 of 4 drafted \(100\.0 %\), "
                         r"alpha 1\.00\nforetoken: 3 of 8 rounds had no draft: the drafter had nothing to propose, "
                         r"or was less sure than the policy's confidence\n$")
        _, rate, first = map(float, re.search(begin, err).groups())
        self.assertLess(first / 1000, 12 / rate, "the first comes before the last")
        self.assertRegex(self.generate(tokens=1)[1], r"^foretoken: 1 tokens .*; tau 1\.00 ")
        err = self.generate("--drafter", "ngram", prompt="one two one two one", tokens=2)[1]
        self.assertIn("; tau 1.00 tokens per target forward; accepted 0 of 1 drafted (0.0 %), alpha 0.00\n", err)

    def test_marks(self):
        self.assertEqual(self.written("--drafter", "ngram", "--marks"), "!!!" + 4 * "[!]!" + "!\n")
        self.assertEqual(self.written("--drafter", "ngram"), 12 * "!" + "\n")
        self.assertEqual(self.written("--marks", sign="]", tokens=3), r"\]\]\]" + "\n")

    def test_samples(self):
        self.assertEqual(self.written("--samples", 1, tokens=3), "!!!\n")
        self.assertEqual(self.written("--samples", 3, tokens=3), "".join(f"== sample {k}\n!!!\n" for k in (1, 2, 3)))

    def test_log_probabilities(self):
        """Of the model's own distribution, which a bias leaves alone: 24 tokens have twice the sum of 12."""
        def found(*options):
            err = self.generate("--logprobs", *options)[1]
            said = re.search(r"; log-probability (-\d+\.\d{3}), (-\d+\.\d{4}) a token\n$", err)
            return tuple(map(float, said.groups()))
        (one, each), (two, each_of_two) = found(), found("--samples", 2)
        self.assertLess(one, -12)
        self.assertAlmostEqual(two, 2 * one, delta=0.002)
        self.assertAlmostEqual(each, one / 12, delta=2e-4)
        self.assertAlmostEqual(each_of_two, one / 12, delta=2e-4)
        self.assertNotIn("log-probability", self.generate()[1])

    def test_the_end_of_a_text(self):
        self.assertEqual(self.written(f"--logit-bias={END}=100", sign=None), "\n")
        self.assertIn(" 1 tokens ", self.generate(f"--logit-bias={END}=100", sign=None)[1])
        self.assertIn(" 5 tokens ", self.generate(f"--logit-bias={END}=100", "--ignore-eos", sign=None, tokens=5)[1])

    def test_lossy_verifiers_are_told_of(self):
        err = self.generate("--verifier", "typical_acceptance")[1].splitlines()
        self.assertEqual(len(err), 2)
        said = ("foretoken: the verifier typical_acceptance is lossy: this text is not of the distribution of plain "
                "decoding, but of the deepest drafted path")
        self.assertTrue(err[0].startswith(said), err[0])
        for verifier in ("speculative_sampling", "coupled", "block_verification"):
            self.assertEqual(self.generate("--verifier", verifier)[1].count("\n"), 1, verifier)

    def test_draft_lengths(self):
        """A draft that is the target proposes as many tokens as it may, all of them right."""
        same = ["--draft", TARGET]
        for options, drafted, tau in (([], "9 of 9", "4.00"), (["--length", 4], "9 of 9", "4.00"),
                                      (["--length", 2], "8 of 8", "3.00"), (["--length", 1], "6 of 6", "2.00"),
                                      (["--set", "/policy/length=2"], "8 of 8", "3.00")):
            err = self.generate(*same, *options, sign=None)[1]
            self.assertIn(f"; tau {tau} tokens per target forward; accepted {drafted} drafted (100.0 %), alpha 1.00",
                          err)

    def test_draws(self):
        """Each cut that leaves one token is greedy, a seed is a text, and the default is the seed 1."""
        how = dict(sign=None, prompt="The lamp had burned low when", tokens=16)
        greedy = self.written(**how)
        warm = ["--temperature", 1]
        one = self.written(*warm, **how)
        self.assertNotEqual(one, greedy)
        self.assertEqual(self.written(*warm, "--seed", 1, **how), one)
        self.assertNotEqual(self.written(*warm, "--seed", 2, **how), one)
        for cut in (["--top-k", 1], ["--top-p", 1e-6], ["--min-p", 0.999]):
            self.assertEqual(self.written(*warm, *cut, **how), greedy, cut)
        for penalty in (["--frequency-penalty", 2], ["--presence-penalty", 2], ["--repetition-penalty", 2]):
            self.assertNotEqual(self.written(*penalty, sign=None, prompt="one two one two one two", tokens=40),
                                self.written(sign=None, prompt="one two one two one two", tokens=40), penalty)

    def test_a_prompt_from_standard_input(self):
        how = ["generate", "--model", TARGET, "--device", "cpu", "--max-new-tokens", 8, "--prompt"]
        text = "The lamp had burned low when"
        self.assertEqual(self.run_it(*how, "-", stdin=text)[0], self.run_it(*how, text)[0])


if __name__ == "__main__":
    unittest.main()
