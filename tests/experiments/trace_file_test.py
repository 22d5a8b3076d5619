"""Damaged traces: `foretoken replay` names the line and says in one sentence what is wrong with it, for every field."""

import copy
import unittest

from made_traces import CHAINS, PLAIN, MadeTraces, chain, node, step_of

AGAIN = "; the trace is damaged, record it again"
HEADER, STEP, LAST = 0, 1, -1  # lines
LONGEST, MOST = 64, 256       # levels and nodes of a tree


class TraceFile(MadeTraces):
    def setUp(self):
        super().setUp()
        drawn = lambda tokens: chain(tokens, drawn="chain", q=0.5)
        self.good = self.lines([step_of(0, 0, 10, drawn([30, 31]), (0.5, 0.25), overlap=[[0, 0.7]],
                                        reach={"a": [[0.8], [0.8, 0.6]]}),
                                step_of(0, 1, 11, drawn([32]), (0.5, 0.25)), step_of(0, 2, 12, []), PLAIN],
                               [[2, "story", 5, 3]], {"sampling": {"temperature": 1}})

    def sentence(self, lines):
        status, out, err = self.start("replay", self.write_lines("t.jsonl", lines))
        self.assertEqual((status, out), (1, ""), err)
        self.assertTrue(err.startswith("foretoken: ") and err.endswith("\n"), err)
        return err[len("foretoken: "):-1].replace(str(self.here) + "/", "")

    def expect(self, line, change, why):
        lines = copy.deepcopy(self.good)
        change(lines[line])
        number = line % len(lines) + 1
        self.assertEqual(self.sentence(lines), f"t.jsonl:{number}: {why}{AGAIN}")

    def test_what_is_whole_is_read(self):
        self.assertEqual(self.start("replay", self.write_lines("t.jsonl", self.good))[0], 0)

    def test_headers(self):
        def run(change):
            def changed(line):
                change(line["run"])
                line["key"] = self.key_of(line["run"])
            return changed

        def put(group, key, value):
            return run(lambda r: r[group].update({key: value}))

        def drop(group, key):
            return run(lambda r: r[group].pop(key))
        expect = lambda change, why: self.expect(HEADER, change, why)
        expect(lambda h: h.update(key="0"), "the header's run is not that of its key")
        expect(lambda h: h.update(run=3), "the header's run is not that of its key")
        expect(lambda h: h.update(line="step"), "the first line of a trace must be its header")
        for flag in ("dense", "race", "learns"):
            expect(lambda h: h.update({flag: 1}), f"the header lacks '{flag}'")
            expect(lambda h: h.pop(flag), f"the header lacks '{flag}'")
        for group, key, bad in (("sampling", "temperature", (-0.5, "1")), ("engine", "batch", (0, 1.5, "1", 2**20 + 1)),
                                ("workload", "max_new_tokens", (0, 1.5, "1", 2**30 + 1)),
                                ("drafter", "name", (3,)), ("verifier", "name", (3,))):
            expect(drop(group, key), f"the header lacks 'run/{group}/{key}'")
            for value in bad:
                expect(put(group, key, value), f"the header lacks 'run/{group}/{key}'")
        for value in (0, 1.5, 2**30 + 1):
            expect(lambda h: h.update(positions=value), "the header lacks 'positions'")
        for budget, shown in ((3, "3"), ([1], "[1]"), ([1, 2, 3], "[1,2,3]"), ([-1, 2], "[-1,2]"),
                              ([MOST + 1, 2], f"[{MOST + 1},2]"), ([3, LONGEST + 1], f"[3,{LONGEST + 1}]"),
                              (["1", 2], '["1",2]')):
            expect(lambda h: h.update(budget=budget), f"the header's 'budget' is {shown}")
        for requests in ([], 3, None):
            expect(lambda h: h.update(requests=requests), "the header lists no requests")
        for request, shown in (([2, "story"], '[2,"story"]'), ([2, 3, 5, 3], "[2,3,5,3]"),
                               ([2.5, "s", 5, 3], '[2.5,"s",5,3]'), ([2, "s", "5", 3], '[2,"s","5",3]'),
                               ([2, "s", 5, 0], '[2,"s",5,0]'), (7, "7"),
                               ([2, "s", 5, 3, 1], '[2,"s",5,3,1]'),
                               ([2, "s", 5, 2**30 + 1], f'[2,"s",5,{2**30 + 1}]')):
            expect(lambda h: h.update(requests=[request]), f"the header lists {shown} among its requests")

    def test_steps(self):
        expect = lambda change, why: self.expect(STEP, change, why)
        whole = lambda key, shown, most, least=0: f"'{key}' holds {shown}, not an integer from {least} to {most}"
        for key in ("rows", "judged"):
            expect(lambda s: s.pop(key), f"a field '{key}' is missing")
            expect(lambda s: s.update({key: -1}), whole(key, "-1", 2**30))
            expect(lambda s: s.update({key: 1.5}), whole(key, "1.5", 2**30))
        expect(lambda s: s.update(judged=2), "'judged' is not the number of rounds")
        expect(lambda s: s.update(prompt_rows=4), whole("prompt_rows", "4", 3))
        expect(lambda s: s.update(depth=LONGEST + 1), whole("depth", LONGEST + 1, LONGEST))
        expect(lambda s: s.update(phases=[0] * 6), "'phases' has 6 entries, not 7")
        expect(lambda s: s.update(phases=7), "'phases' is 7, not a list")
        expect(lambda s: s.update(phases=[0] * 6 + ["1"]), "a phase is no number of seconds")
        expect(lambda s: s.update(rounds=[7]), "a round is 7, not an object")

    def test_rounds(self):
        expect = lambda change, why: self.expect(STEP, lambda s: change(s["rounds"][0]), why)
        whole = lambda key, shown, least, most: f"'{key}' holds {shown}, not an integer from {least} to {most}"
        expect(lambda r: r.update(request=1), whole("request", 1, 0, 0))
        expect(lambda r: r.update(at=-1), whole("at", -1, 0, 2**30))
        expect(lambda r: r.update(parents=[0, 2]), whole("parents", 2, 0, 1))
        expect(lambda r: r.update(parents=[0, -1]), whole("parents", -1, 0, 1))
        expect(lambda r: r.update(tokens=[-2, 31]), whole("tokens", -2, -1, 2**30))
        for key in ("tokens", "p", "q", "accept"):
            expect(lambda r: r.update({key: [0]}), f"'{key}' has 1 entries, not 2")
        for key in ("p", "q", "accept"):
            for value, shown in ((-0.1, "-0.1"), (1.1, "1.1"), ("x", '"x"')):
                expect(lambda r: r.update({key: [0.5, value]}), f"'{key}' holds {shown}, which is out of its range")
        expect(lambda r: r.update(drawn=["chain"]), "'drawn' names not every node")
        expect(lambda r: r.update(drawn=["chain", "train"]), "'drawn' names \"train\", which is no way to draw a node")
        expect(lambda r: r.update(drawn="train"), "'drawn' names \"train\", which is no way to draw a node")
        expect(lambda r: r.update(overlap=[[0]]), "'overlap' holds [0], not a node and a number")
        expect(lambda r: r.update(overlap=[[3, 0.5]]), whole("overlap", 3, 0, 2))
        expect(lambda r: r.update(overlap=[[0, 1.5]]), "'overlap' holds 1.5, which is out of its range")
        expect(lambda r: r.update(path=[1]), "a round of a dense trace accepted a draft")
        expect(lambda r: r.update(path=[3]), whole("path", 3, 1, 2))
        expect(lambda r: r.update(path=[0]), whole("path", 0, 1, 2))
        expect(lambda r: r.update(path=[2]), "'path' goes to the node 2, which is no child of the one before")
        expect(lambda r: r.update(emitted=[]), "a round emitted 0 tokens, which its path does not allow")
        expect(lambda r: r.update(emitted=[10, 30]), "a round emitted 2 tokens, which its path does not allow")
        expect(lambda r: r.update(emitted=[-1]), whole("emitted", -1, 0, 2**30))
        for bad in ([], [0.5, 0.25, 0.1]):
            expect(lambda r: r.update(next=bad), "'next' holds neither p nor p and q")
        expect(lambda r: r.update(next=[1.5]), "'next' holds 1.5, which is out of its range")
        expect(lambda r: r.update(next=[0.5, -1]), "'next' holds -1, which is out of its range")
        expect(lambda r: r.update(reach=[]), "'reach' is [], not an object")
        for bad in ({"a": 3}, {"a": [[0.8]]}, {"a": [[0.8], [0.8, 0.6], [0.8, 0.6, 0.1]]}):
            expect(lambda r: r.update(reach=bad), "'reach' is no list of the levels of its tree")
        expect(lambda r: r.update(reach={"a": [[0.8], [0.8]]}), "'reach' has levels of another size than their depth")
        expect(lambda r: r.update(reach={"a": [[0.8], [0.8, 2]]}), "'reach' holds 2, which is out of its range")

    def with_tree(self, nodes):
        lines = copy.deepcopy(self.good)
        lines[STEP] = {"line": "step", **step_of(0, 0, 10, nodes), "depth": 0}
        return lines

    def test_the_largest_trees(self):
        for nodes, why in ((chain(range(LONGEST + 1)), f"a tree is {LONGEST + 1} levels deep"),
                           ([node(0, n) for n in range(MOST)], f"a tree has {MOST + 1} nodes")):
            self.assertEqual(self.sentence(self.with_tree(nodes)), f"t.jsonl:2: {why}{AGAIN}")
            self.assertIn("no end", self.sentence(self.with_tree(nodes[:-1])[:-1]), "it was read")

    def test_ends(self):
        end = lambda **change: self.sentence([*self.good[:-1], {**self.good[-1], **change}])
        number = len(self.good)
        for change in ({"steps": 3}, {"rounds": 2}, {"rounds": None}):
            self.assertEqual(end(**change), f"t.jsonl:{number}: lines are missing{AGAIN}")
        for failed, shown in ((3, "3"), ([1], "[1]"), ([-1], "[-1]"), (["0"], '["0"]'), ([0, 0], "[0,0]")):
            self.assertEqual(end(failed=failed), f"t.jsonl:{number}: 'failed' is {shown}{AGAIN}")
        self.assertEqual(end(failed=[0]), f"t.jsonl:{number}: all requests failed while this trace was recorded; see "
                         "\"error\" or \"failures\" of its run's result, and record it again")
        self.assertEqual(self.sentence(self.good[:-1]),
                         "t.jsonl has no end: its run was stopped while it was recorded; record it again")
        self.assertEqual(self.sentence([*self.good, self.good[0]]),
                         f"t.jsonl:{number + 1}: here begins another trace{AGAIN}")
        self.assertEqual(self.sentence([*self.good, self.good[2]]),
                         f"t.jsonl:{number + 1}: here begins another trace{AGAIN}")

    def test_what_failed_is_left_out(self):
        """Of three requests the second failed: the others are numbered anew, and its rounds are not theirs."""
        steps = [*CHAINS[:4], step_of(1, 0, 50, []), *({**s, "rounds": [{**s["rounds"][0], "request": 2}]}
                                                      for s in CHAINS[4:7]), PLAIN]
        lines = self.lines(steps, [[0, "story", 5, 4], [1, "code", 9, 9], [7, "math", 6, 3]])
        lines[LAST]["failed"] = [1]
        found = self.figures(self.write_lines("t.jsonl", lines), "--lengths", "2")
        self.assertEqual([row[4:6] for row in found], [(7, 4)])

    def test_rounds_that_do_not_follow_each_other(self):
        lines = copy.deepcopy(self.good)
        lines[2]["rounds"][0]["at"] = 2
        self.assertEqual(self.sentence(lines), "t.jsonl: a round of request 0 begins after 2 tokens, but the round "
                         "before ended after 1" + AGAIN)
        lines = self.lines(CHAINS[:4], [[0, "story", 5, 4], [7, "math", 6, 3]])
        self.assertEqual(self.sentence(lines), "t.jsonl: request 1 has no round" + AGAIN)

    def test_lines_of_something_else(self):
        for line, why in (({"trace": 2}, "a trace of schema 2, while this version reads 1; record it again"),
                          ({"line": 3}, "a line of a trace without its kind; the trace is damaged, record it again")):
            lines = copy.deepcopy(self.good)
            lines[2].update(line)
            self.assertEqual(self.sentence(lines), f"t.jsonl:3: {why}")


if __name__ == "__main__":
    unittest.main()
