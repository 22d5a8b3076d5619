"""Traces that are written by hand, for tests of what `foretoken replay` makes of them and of what it refuses."""

import json
import os
import re
import subprocess
from pathlib import Path

from in_folder import InFolder

PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
RUN = {"target": {"model": "t"}, "drafter": {"name": "draft_model"}, "policy": {"name": "fixed", "length": 2},
       "verifier": {"name": "speculative_sampling"}, "sampling": {"temperature": 0},
       "workload": {"max_new_tokens": 4}, "engine": {"batch": 1}}


def total_of(rows, depth):
    """The seconds of a step, by hand: a row takes 1 ms after the first 10 ms, a level of the draft 4 ms."""
    return 0.009 + 0.001 * rows + 0.004 * depth


def node(parent, token, drawn="certain", p=0.5, q=1.0, accept=0.5):
    return {"parent": parent, "token": token, "drawn": drawn, "p": p, "q": q, "accept": accept}


def chain(tokens, **numbers):
    return [node(i, token, **numbers) for i, token in enumerate(tokens)]


def step_of(request, at, emitted, nodes, after=(0.5,), **more):
    """A step in which one sequence has one round and accepts nothing, as dense traces do."""
    depths = [0]
    for n in nodes:
        depths.append(depths[n["parent"]] + 1)
    drafting = 0.004 * max(depths)
    line = {"request": request, "at": at, "emitted": [emitted], "next": list(after), **more}
    if nodes:
        line |= {"parents": [n["parent"] for n in nodes], "tokens": [n["token"] for n in nodes],
                 "drawn": [n["drawn"] for n in nodes], **{k: [n[k] for n in nodes] for k in ("p", "q", "accept")}}
    return {"rows": len(nodes) + 1, "judged": 1, "depth": max(depths), "rounds": [line],
            "phases": [0, 0.75 * drafting, 0.25 * drafting, 0, 0, 0, total_of(len(nodes) + 1, max(depths))]}


PLAIN = {"rows": 1, "judged": 1, "baseline": True, "phases": [0, 0, 0, 0, 0, 0, 0.010]}
# Two prompts. What the target wrote, and what was drafted before each token: the second draft of the first request
# ends wrong, its third is wrong at once.
CHAINS = [step_of(0, 0, 10, chain([10, 11])), step_of(0, 1, 11, chain([11, 99])), step_of(0, 2, 12, chain([98])),
          step_of(0, 3, 13, []),
          step_of(1, 0, 20, chain([20, 96])), step_of(1, 1, 21, chain([95])), step_of(1, 2, 22, []), PLAIN]
REQUESTS = [[0, "story", 5, 4], [7, "math", 6, 3]]


class MadeTraces(InFolder):
    def start(self, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.here, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def key_of(self, run):
        """As the refusal of another key names it."""
        probe = self.write("probe.jsonl", '{"schema":2,"key":"0","run":' + json.dumps(run) + "}\n")
        return re.search(r'that of its run is "([0-9a-f]{16})"', self.start("show", probe)[2])[1]

    def lines(self, steps, requests=None, run=None, **header):
        """The lines of a trace, as they are read."""
        run = {**RUN, **(run or {})}
        head = {"run": run, "key": self.key_of(run), "dense": True, "race": False, "learns": False, "positions": 64,
                "budget": [3, 2], "requests": requests or REQUESTS, **header}
        rounds = sum(len(step.get("rounds", ())) for step in steps)
        return [{"line": "header", **head}, *({"line": "step", **step} for step in steps),
                {"line": "end", "steps": len(steps), "rounds": rounds}]

    def write_lines(self, name, lines):
        text = [json.dumps({"trace": 1, **line}, separators=(",", ":")) for line in lines]
        return self.write(name, "".join(line + "\n" for line in text))

    def trace(self, name, steps, requests=None, run=None, **header):
        return self.write_lines(name, self.lines(steps, requests, run, **header))

    def refused(self, *arguments, words, code=1):
        status, out, err = self.start("replay", *arguments)
        self.assertEqual((status, out, err.count("\n")), (code, "", 1), err)
        for word in words:
            self.assertIn(word, err)

    def replay(self, *arguments):
        status, out, err = self.start("replay", *arguments, "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def figures(self, *arguments):
        """(what, verifier, basis, rows, tokens, rounds, tokens a round, speedup) of each row."""
        return [(r["what"], r["verifier"], r["basis"], r["rows"], r["tokens"], round(r["rounds"], 9),
                 round(r["tau"]["value"], 9), r["speedup"]["value"] and round(r["speedup"]["value"], 6))
                for r in self.replay(*arguments)["replayed"]]
