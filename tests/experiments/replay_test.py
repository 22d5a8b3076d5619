"""`foretoken replay` on traces that are written here by hand, small enough that every answer is computed by hand beside
it: no engine, model or drafter has a part in them. Each option must change the answer to the one that it asks for."""

import csv
import io
import json
import unittest

from made_traces import CHAINS, PLAIN, MadeTraces, chain, node, step_of


class Replay(MadeTraces):
    # At temperature 0 the rounds of a run are known. Length 2: the first request accepts 10 and 11 and writes 12, then
    # 13: rounds of 20 + 10 ms; the second accepts 20, writes 21, then 22: 20 + 10 ms. Length 1: 15 ms for 10 and 11, 15
    # ms for 12, 10 ms for 13; 15 ms for 20 and 21, 10 ms for 22. Plain decoding takes 10 ms for each of 7 tokens.
    OWN = "speculative_sampling"
    NONE = ("length 0", OWN, "exact", 1, 7, 7, 1, 1)
    ONE = ("length 1", OWN, "exact", 2, 7, 5, 1.4, round(0.07 / 0.065, 6))
    TWO = ("length 2", OWN, "exact", 3, 7, 4, 1.75, round(0.07 / 0.060, 6))

    def test_lengths(self):
        trace = self.trace("t.jsonl", CHAINS)
        self.assertEqual(self.figures(trace), [self.ONE, self.TWO], "all that the trace has")
        self.assertEqual(self.figures(trace, "--lengths", "2,0"), [self.TWO, self.NONE])
        self.assertEqual(self.figures(trace, "--lengths", "1", "--lengths", "2"), [self.ONE, self.TWO])
        self.assertEqual(self.figures("--lengths", "1", trace), [self.ONE], "the file is no length")
        self.refused(trace, "--lengths", "3", words=["length 3", "3 levels", "at most 2"])
        self.refused(trace, "--lengths", "x", words=["--lengths"], code=2)
        self.refused(trace, "--lengths", "-1", words=["--lengths"], code=2)

    def test_a_policy(self):
        trace = self.trace("t.jsonl", CHAINS)
        fixed = ("policy fixed", *self.ONE[1:])
        self.assertEqual(self.figures(trace, "--policy", '{"name": "fixed", "length": 1}'), [fixed])
        self.assertEqual(self.figures(trace, "--policy", '{"name": "fixed", "length": 1}', "--lengths", "2"),
                         [self.TWO, fixed])
        self.refused(trace, "--policy", "nobody", words=["unknown", "'nobody'", "fixed"])
        self.refused(trace, "--policy", '{"length": 1}', words=["--policy", "has no name"])

    def test_the_oracle(self):
        """It drafts nothing where nothing is accepted, else as much as is: 20 ms and 10 ms, 15 ms and 10 ms."""
        trace = self.trace("t.jsonl", CHAINS)
        best = ("oracle", self.OWN, "exact", 0, 7, 4, 1.75, round(0.07 / 0.055, 6))
        self.assertEqual(self.figures(trace, "--oracle"), [best])
        self.assertEqual(self.figures(trace, "--oracle", "--lengths", "1"), [self.ONE, best])

    def test_shapes(self):
        """Trees of two children of the root and one of the first child: the tokens 12 and 13 are drafted as second
        children alone."""
        tree = lambda a, b, c: [node(0, a), node(0, b), node(1, c)]
        steps = [step_of(0, 0, 10, tree(10, 50, 11)), step_of(0, 1, 11, tree(60, 61, 62)),
                 step_of(0, 2, 12, tree(50, 12, 51)), step_of(0, 3, 13, tree(70, 13, 72)), step_of(0, 4, 14, []), PLAIN]
        trace = self.trace("t.jsonl", steps, [[0, "story", 5, 5]], {"drafter": {"name": "draft_tree"},
                           "workload": {"max_new_tokens": 5}}, budget=[4, 2])
        rounds = lambda *options: [(what, rows, count) for what, _, _, rows, _, count, _, _ in
                                   self.figures(trace, *options)]
        self.assertEqual(rounds(), [("length 1", 3, 3), ("length 2", 4, 2)])
        self.assertEqual(rounds("--shape", "[2]"), [("shape [2]", 3, 3)], "10 11 | 12 13 | 14")
        self.assertEqual(rounds("--shape", "[1]"), [("shape [1]", 2, 4)], "10 11 | 12 | 13 | 14")
        self.assertEqual(rounds("--shape", "[[0], [0, 0]]", "--shape", "[[0], [1], [0, 0]]"),
                         [("shape [[0], [0, 0]]", 3, 3), ("shape [[0], [1], [0, 0]]", 4, 2)])
        self.assertEqual(rounds("--policy", '{"name": "fixed", "length": 2, "nodes": 3}'), [("policy fixed", 3, 3)])
        self.refused(trace, "--shape", "[[2]]", words=["shape"])
        self.refused(trace, "--shape", "[3]", words=["shape [3]", "the node [2]", "wider trees"])
        self.refused(trace, "--shape", "[", words=["--shape", "not valid JSON"])

    def test_trees_whose_shapes_vary_are_replayed_whole(self):
        steps = [step_of(0, 0, 10, [node(0, 50), node(0, 10)]), step_of(0, 1, 11, chain([11, 12])),
                 step_of(0, 2, 12, [node(0, 50), node(0, 51)]), step_of(0, 3, 13, []), PLAIN]
        trace = self.trace("t.jsonl", steps, [[0, "story", 5, 4]], budget=[4, 2])
        # 10 and 11, then 12, then 13: 16 + 16 + 10 ms, while plain decoding takes 40 ms.
        self.assertEqual(self.figures(trace), [("as drafted", self.OWN, "exact", 3, 4, 3, round(4 / 3, 9),
                                                round(0.040 / 0.042, 6))])
        self.refused(trace, "--lengths", "1", words=["length 1", "shapes vary"])

    def warm(self, name="warm.jsonl", first=(0.5, 0.25), reach=None):
        """One request of three tokens at temperature 1. After its first token the target has the probability 1/2 and
        the draft 1/4, after its second 1/4 and 1/2."""
        drawn = lambda tokens, **own: chain(tokens, drawn="chain", q=0.625, accept=0.8, **own)
        recorded = [{"reach": r} for r in reach] if reach else [{}, {}]
        steps = [step_of(0, 0, 10, drawn([30, 31]), first, overlap=[[0, 0.7], [1, 0.6]], **recorded[0]),
                 step_of(0, 1, 11, drawn([32]), (0.25, 0.5), overlap=[[0, 0.9]], **recorded[1]),
                 step_of(0, 2, 12, []), PLAIN]
        return self.trace(name, steps, [[2, "story", 5, 3]], {"sampling": {"temperature": 1}})

    # Of a chain given the output, a token is accepted with min(1, q / p). So the first round accepts nothing or both
    # tokens, each with 1/2, and a round that begins after the first token accepts the second: 1 + 1/2 rounds, of 20 ms
    # and 15 ms. The target's own draw is the draft's with q: 1/4 and 1/4 times 1/2, then 1/2, so 1 + 3/4 + 1/2 rounds.
    def test_verifiers(self):
        trace = self.warm()
        own = ("length 2", self.OWN, "given output", 3, 3, 1.5, 2, round(0.030 / 0.0275, 6))
        match = ("length 2", "target_match", "given output", 3, 3, 2.25, round(3 / 2.25, 9),
                 round(0.030 / (0.020 + 0.75 * 0.015 + 0.5 * 0.010), 6))
        self.assertEqual(self.figures(trace, "--lengths", "2"), [own])
        self.assertEqual(self.figures(trace, "--lengths", "2", "--verifier", "target_match"), [match])
        self.assertEqual(self.figures(trace, "--lengths", "2", "--verifier", "speculative_sampling,target_match"),
                         [own, match])
        self.refused(trace, "--verifier", "nobody", words=["unknown verifier 'nobody'"])
        self.refused(trace, "--verifier", "coupled", words=["coupled", "races"])
        self.refused(trace, "--verifier", "typical_acceptance", words=["typical_acceptance", "lossy"])

    # A joint rule accepts i tokens with the least of the products up to i: 1/2 and 1/2; where p is 1/4 first, 1 and 1.
    def test_a_joint_rule(self):
        for first, rounds in (((0.5, 0.25), 1.5), ((0.25, 0.5), 1)):
            found = self.figures(self.warm(first=first), "--lengths", "2", "--verifier", "block_verification")
            self.assertEqual([(row[1], row[5]) for row in found], [("block_verification", rounds)])

    def test_what_no_step_took_has_no_speedup(self):
        """Steps that read a prompt are not timed: here all with two levels."""
        steps = [{**step, "prompt_rows": 1} if step.get("depth") == 2 else step for step in CHAINS]
        trace = self.trace("t.jsonl", steps)
        self.assertEqual(self.figures(trace, "--lengths", "1,2"), [self.ONE, (*self.TWO[:-1], None)])
        found = self.replay(trace, "--lengths", "2")
        self.assertEqual(found["replayed"][0]["untimed"], "steps of 3 rows were not measured (1 to 2 were), and times "
                         "are not extrapolated; add a trace that has such steps with --costs")
        self.refused(trace, "--oracle", words=["the oracle needs the time of every length", "3 rows"])

    def test_a_verifier_of_races_on_drafts_that_could_be_no_others(self):
        """At temperature 0 a race has one outcome, so the recorded drafts are those of its runs too."""
        found = self.figures(self.trace("t.jsonl", CHAINS), "--lengths", "1,2", "--verifier", "coupled")
        self.assertEqual([(row[2], row[5]) for row in found], [("exact", 5), ("exact", 4)])

    def tree(self, first=None, second=None):
        """One request of three tokens at temperature 1: two children with a child each, two children, nothing."""
        drawn = lambda parent, token, p, q, accept: node(parent, token, "independent", p, q, accept)
        whole = [drawn(0, 30, 0.5, 0.25, 0.4), drawn(0, 31, 0.1, 0.25, 0.25), drawn(1, 32, 0.2, 0.5, 0.5),
                 drawn(2, 33, 0.4, 0.5, 0.2)]
        level = [drawn(0, 34, 0.2, 0.5, 0.3), drawn(0, 35, 0.3, 0.5, 0.5)]
        recorded = lambda reach: {"reach": {"traversal_verification": reach}} if reach else {}
        steps = [step_of(0, 0, 10, whole, (0.5, 0.3), **recorded(first)),
                 step_of(0, 1, 11, level, (0.5, 0.25), **recorded(second)), step_of(0, 2, 12, []), PLAIN]
        return self.trace("tree.jsonl", steps, [[2, "story", 5, 3]],
                          {"sampling": {"temperature": 1}, "drafter": {"name": "draft_tree"},
                           "workload": {"max_new_tokens": 3}}, budget=[5, 2])

    def rounds_of(self, trace, *options):
        return [(row[1], row[2], row[3], row[5]) for row in self.figures(trace, *options)]

    # Siblings in turn: a first token with 0.4 + 0.6 * 0.25, a second with 0.4 * 0.5 + 0.15 * 0.2, one from the second
    # position on with 0.3 + 0.7 * 0.5. So 0.45 rounds begin there, and 0.32 + 0.45 * 0.35 at the third position. With
    # one level 0.55 instead of 0.32. The target's own draw: 0.6, of that 0.5 * 0.2 + 0.1 * 0.4 twice, then 0.5.
    def test_expectations_given_the_tree(self):
        own = lambda rows, rounds: [(self.OWN, "expectation", rows, rounds)]
        self.assertEqual(self.rounds_of(self.tree(), "--lengths", "2"), own(5, 1.9275))
        self.assertEqual(self.rounds_of(self.tree(), "--lengths", "1"), own(3, 2.1575))
        self.assertEqual(self.rounds_of(self.tree(), "--lengths", "2", "--verifier", "target_match"),
                         [("target_match", "expectation", 5, 2.06)])

    # Of a tree a joint rule for chains looks at the first children: 0.6 and 0.6 * 0.5 by the output, then 0.5.
    def test_a_rule_of_first_children(self):
        self.assertEqual(self.rounds_of(self.tree(), "--lengths", "2", "--verifier", "block_verification"),
                         [("block_verification", "given output", 5, 1.9)])

    def test_recorded_acceptance_of_a_rule_without_a_formula(self):
        tree = self.tree([[0.7], [0.6, 0.2]], [[0.4]])
        rule = ["--verifier", "traversal_verification"]
        for length, rows, rounds in (("1", 3, 1 + 0.3 + 0.88), ("2", 5, 1 + 0.4 + 0.64)):
            self.assertEqual(self.rounds_of(tree, "--lengths", length, *rule),
                             [("traversal_verification", "expectation", rows, round(rounds, 9))])
        self.refused(tree, "--shape", "[[0], [1], [0, 0]]", *rule, words=["whole levels", "/trace/verifiers"])
        self.refused(tree, "--oracle", *rule, words=["the oracle", "'traversal_verification'", "leave --oracle out"])
        self.refused(self.tree(), *rule, words=["traversal_verification", "no formula", "/trace/verifiers"])

    # Recorded: of the first round 0.8 + 0.6 and 0.8 + 0.2 tokens, of the second 0.5 and 0.7.
    REACH = [{"a": [[0.8], [0.8, 0.6]], "b": [[0.8], [0.8, 0.2]]}, {"a": [[0.5]], "b": [[0.7]]}]

    def test_orders(self):
        trace = self.warm(reach=self.REACH)
        found = self.replay(trace, "--orders")
        self.assertEqual(found["replayed"], [])
        self.assertEqual([(a["verifier"], a["trace"], round(a["accepted"]["value"], 9)) for a in found["accepting"]],
                         [("a", trace, 0.95), ("b", trace, 0.85)])
        [order] = found["orders"]
        self.assertEqual([order[k] for k in ("first", "second", "rounds", "more", "less")], ["a", "b", 2, 1, 1])
        self.assertAlmostEqual(order["gain"]["value"], 0.1)
        shown = self.start("replay", trace, "--orders")[1]
        self.assertRegex(shown, r"Expected accepted tokens of a round, given its tree\n.*\n.*\na +0\.9500 .*\nb +0\.8500 .*\n\n")
        both = self.replay(trace, "--orders", "--lengths", "2")
        self.assertEqual((len(both["replayed"]), both["orders"]), (1, found["orders"]))
        self.assertEqual(self.replay(trace)["orders"], [])
        self.refused(self.warm(), "--orders", words=["warm.jsonl", "/trace/verifiers"])

    def test_traces_beside(self):
        trace = self.warm(reach=self.REACH)
        other = self.warm("other.jsonl", reach=[{"c": [[0.9], [0.9, 0.9]]}, {"c": [[0.5]]}])
        found = self.replay(trace, "--beside", other)
        self.assertEqual([(a["verifier"], a["trace"]) for a in found["accepting"]],
                         [("a", trace), ("b", trace), ("c", other)])
        self.assertEqual([(o["first"], o["second"], o["rounds"], o["more"], o["less"]) for o in found["orders"]],
                         [(f"a ({trace})", f"b ({trace})", 2, 1, 1), (f"a ({trace})", f"c ({other})", 2, 0, 1),
                          (f"b ({trace})", f"c ({other})", 2, 1, 1)])
        self.assertEqual([round(o["gain"]["value"], 9) for o in found["orders"]], [0.1, -0.2, -0.3])
        words = ["chains.jsonl", "other requests or outputs"]
        self.refused(trace, "--beside", self.trace("chains.jsonl", CHAINS), words=words)

    def test_costs(self):
        """A trace whose own steps are of three rows and of one alone has no time for two levels of two rows; another
        trace of the same run has."""
        without = [{**step, "judged": step["judged"]} for step in CHAINS if step is not PLAIN]
        trace = self.trace("t.jsonl", without)
        self.assertIsNone(self.figures(trace, "--lengths", "2")[0][-1])
        status, out, err = self.start("replay", trace, "--lengths", "2")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("No speedup: steps of 1 sequences were not measured", out)
        costs = self.trace("costs.jsonl", CHAINS)
        self.assertEqual(self.figures(trace, "--lengths", "2", "--costs", costs), [self.TWO])
        self.assertEqual(self.replay(trace, "--costs", costs)["cost"], {"steps": 15, "error": 0})
        self.assertEqual(self.replay(trace)["cost"], {"steps": 7, "error": 0})
        self.refused(trace, "--costs", self.trace("o.jsonl", CHAINS, run={"drafter": {"name": "ngram"}}),
                     words=["o.jsonl", "another run", "'drafter'", "--costs"])
        self.refused(trace, "--costs", "none.jsonl", words=["none.jsonl"])
        self.refused(trace, "--oracle", words=["the oracle", "were not measured", "--costs"])

    def test_how_it_is_shown(self):
        trace = self.trace("t.jsonl", CHAINS)
        as_csv = self.start("replay", trace, "--format", "csv")[1]
        rows = list(csv.DictReader(io.StringIO(as_csv)))
        self.assertEqual([(r["what"], r["verifier"], r["rows"], r["basis"]) for r in rows],
                         [("length 1", self.OWN, "2", "exact"), ("length 2", self.OWN, "3", "exact")])
        self.assertEqual([float(r["tau"]) for r in rows], [1.4, 1.75])
        self.assertEqual([round(float(r["speedup"]), 4) for r in rows], [1.0769, 1.1667])
        terminal, markdown = (self.start("replay", trace, "--format", form)[1] for form in ("terminal", "markdown"))
        self.assertEqual(self.start("replay", trace)[1], terminal)
        note = ("Drafter draft_model, temperature 0, batch 1, 2 requests. Times: medians of 8 steps, from which a step "
                "deviates by 0.0 % (median).")
        for shown in (terminal, markdown):
            self.assertIn("Replay of " + trace, shown)
            self.assertIn(note, " ".join(shown.split()))
        self.assertRegex(terminal, r"\nlength 1 +speculative_sampling +2 +exact +1\.400 .*1\.08")
        self.assertRegex(markdown, r"\n\| length 1 +\| speculative_sampling +\| +2 +\| exact +\| 1\.400 .*1\.08")
        self.assertEqual(json.loads(self.start("replay", trace, "--format", "json")[1]), self.replay(trace))
        self.refused(trace, "--format", "pdf", words=["--format"], code=2)

    def test_what_is_refused(self):
        self.refused(words=["trace"], code=2)
        self.refused("none.jsonl", words=["none.jsonl"])
        self.refused(self.trace("sparse.jsonl", CHAINS, dense=False), words=["not dense", '"dense": true'])
        self.refused(self.trace("t.jsonl", CHAINS), "--plugin", "none.so", words=["there is no plugin none.so"])
        (self.here / "model").write_text("then")
        changed = self.trace("changed.jsonl", CHAINS, sources={str(self.here / "model"): "xxh3:0"})
        words = ["changed.jsonl", f"other contents of {self.here / 'model'} than", "record it again"]
        self.refused(changed, words=words)
        gone = self.trace("gone.jsonl", CHAINS, sources={"gone": "xxh3:0"})
        self.assertEqual(self.figures(gone), [self.ONE, self.TWO])


if __name__ == "__main__":
    unittest.main()
