"""Drafters and policies in Python: what they see, what they may do, and what becomes of those that are wrong."""

import gc
import re

import numpy as np
import pytest

import foretoken
from conftest import DRAFT, TARGET

PROMPTS = ["Once upon a time", "The sun was"]


MOST = foretoken.option(8, "tokens", least=1, most=64)


@foretoken.drafter("py_repeat", options={"most": MOST}, examples=[{"most": 2}])
class Repeat:
    """the last token again"""

    def __init__(self, most):
        self.most = most

    def draft(self, batch):
        return np.repeat(batch.last[:, None], min(self.most, int(batch.chain.max())), axis=1)


@foretoken.drafter("py_draws", proposes=["chain"])
class Draws:
    """a chain from a distribution that prefers small ids"""

    def __init__(self, facts):
        self.logits = -np.arange(facts["vocab"], dtype=np.float32) / 40

    def draft(self, batch):
        for _ in range(batch.chain.max()):
            batch.draw(np.tile(self.logits, (len(batch), 1)))


@foretoken.drafter("py_tree", proposes=["certain", "without_replacement"])
class Tree:
    """a guess below each of two drawn siblings"""

    def __init__(self, facts):
        self.vocab = facts["vocab"]

    def draft(self, batch):
        requests = np.arange(len(batch))
        nodes, tokens = batch.draw_below(requests, 0 * requests, np.zeros((len(batch), self.vocab), np.float32), 2)
        assert nodes.shape == tokens.shape == (len(batch), 2)
        batch.guess_below(np.repeat(requests, 2), nodes.ravel(), np.zeros(2 * len(batch), int))


@foretoken.policy("py_double", depth=lambda options: options["most"], options={"most": 4})
class Double:
    """twice what was accepted last"""

    def __init__(self, most):
        self.most = most

    def budgets(self, batch):
        return np.clip(2 * batch.accepted, 1, self.most)


def greedy(drafter, **how):
    with foretoken.Engine(target=TARGET, drafter=drafter, **{"length": 4, **how}) as engine:
        return engine.generate(PROMPTS, max_new_tokens=24)


@pytest.fixture(scope="module")
def plain():
    return [o.tokens for o in greedy("none")]


@pytest.mark.parametrize("drafter, how", [
    ("py_repeat", {}), ({"name": "py_repeat", "most": 2}, {"engine": {"batch": 1}}), ("py_draws", {}),
    ("py_tree", {"verifier": "without_replacement", "length": None,
                 "policy": {"name": "fixed", "length": 3, "nodes": 9}}),
    ("py_draws", {"policy": "py_double", "length": None}),
    ({"name": "first_hit", "drafters": [{"name": "ngram"}, {"name": "py_repeat"}]}, {}),
])
def test_greedy_outputs_are_those_of_plain_decoding(plain, drafter, how):
    outputs = greedy(drafter, **how)
    assert [o.tokens for o in outputs] == plain
    assert sum(o.drafted for o in outputs) > 10


def test_the_laws_hold():
    one = {"verifier": "speculative_sampling", "laws": ["exact", "batch"], "seconds": 60}
    report = foretoken.check(Draws, **one)
    assert report.holds and report.laws()["exact"] == ["holds"] and "py_draws" in str(report.report)
    assert foretoken.check(Repeat, options={"most": 3}, **one)
    assert foretoken.check(Double, laws=["exact"], seconds=60)


def test_the_laws_catch_what_changes_its_q():
    @foretoken.drafter("py_cheat", proposes=["chain"])
    class Cheat:
        def __init__(self, facts):
            self.vocab = facts["vocab"]

        def draft(self, batch):
            logits = np.zeros((len(batch), self.vocab), np.float32)
            batch.draw(logits)
            logits.flags.writeable = True
            logits[:, 0] = 3

    with pytest.raises(foretoken.Error, match="law 'exact' is broken by py_cheat"):
        foretoken.check(Cheat, laws=["exact"], verifier="speculative_sampling", seconds=60)
    report = foretoken.check(Cheat, laws=["exact"], verifier="speculative_sampling", seconds=60, must_hold=False)
    assert not report and report.laws()["exact"] == ["broken"]


def test_the_laws_report_what_ends_its_process():
    @foretoken.drafter("py_exits")
    class Exits:
        def draft(self, batch):
            import os
            os._exit(3)

    with pytest.raises(foretoken.Error, match="exit code 3"):
        foretoken.check(Exits, laws=["exact"], verifier="speculative_sampling")


def test_what_a_drafter_sees():
    seen = {}

    @foretoken.drafter("py_looks", ranks=3, hidden=[1])
    class Looks:
        def draft(self, batch):
            for i, (id, tokens) in enumerate(zip(batch.ids, batch.all_tokens())):
                assert tokens.dtype == np.int32 and not tokens.flags.writeable and len(tokens) == batch.lengths[i]
                assert (batch.tails(3)[i] == tokens[-3:]).all() and batch.last[i] == tokens[-1]
                seen.setdefault(int(id), []).append(tokens)
                states = batch.hidden(i)
                assert states.shape[0] == batch.states(i) <= len(tokens) - 1 and states.dtype == np.float32
                if len(states) > 1:
                    assert (batch.hidden(i, 1) == states[1:]).all() and np.abs(states).max() > 0
            return np.zeros((len(batch), 2), int)

        def observe(self, outcomes):
            seen["outcomes"] = seen.get("outcomes", 0) + len(outcomes)
            assert outcomes.ranks.shape == (outcomes.offsets[-1], 3)
            for i in range(len(outcomes)):
                begin, end = outcomes.offsets[i:i + 2]
                assert outcomes.parents[begin] == -1 and end - begin >= 1
                out = outcomes.emitted[outcomes.emitted_offsets[i]:outcomes.emitted_offsets[i + 1]]
                assert len(out) == outcomes.accepted[i] + 1
                if outcomes.accepted[i] == 0:
                    assert out[0] == outcomes.ranks[begin, 0]  # greedy: the most probable after the root

        def observe_step(self, step):
            seen["steps"] = seen.get("steps", 0) + 1
            assert step.seconds["total"] > 0

        def forget(self, id, running):
            seen.setdefault("ended", []).append((id, running))

        def notice(self):
            return "looked"

    with foretoken.Engine(target=TARGET, drafter="py_looks", length=2) as engine:
        outputs = engine.generate(PROMPTS, max_new_tokens=8)
        assert engine.notices == ["looked"]
    assert [o.failure for o in outputs] == ["", ""]
    # What was kept is still there, and the same: views of an earlier step show no later token.
    for id, prompt in enumerate(PROMPTS, 1):
        views = seen[id]
        assert len(views) >= 6 and all((b[:len(a)] == a).all() and len(b) > len(a) for a, b in zip(views, views[1:]))
        assert views[-1][-1] in outputs[id - 1].tokens
    assert seen["outcomes"] == sum(o.rounds for o in outputs) and seen["steps"] >= 8
    assert sorted(seen["ended"]) == [(1, False), (2, False)]


def fails(name, draft, **how):
    foretoken.register_drafter(name, type(name, (), {"draft": draft}), **how)
    with foretoken.Engine(target=DRAFT, drafter=name, length=4) as engine:
        with pytest.raises(foretoken.Error) as raised:
            engine.generate(PROMPTS, max_new_tokens=6)
        assert len(str(raised.value)) < 400 and "\n" not in str(raised.value)
        return str(raised.value)


def logits(*shape, dtype=np.float32):
    return lambda self, batch: batch.draw(np.zeros(shape, dtype)) * 0


def written_again(self, batch):
    given = np.zeros((len(batch), 4096), np.float32)
    batch.draw(given)
    given[:, 0] = 1


@pytest.mark.parametrize("draft, sentence", [
    (lambda self, batch: 1 // 0, "raised ZeroDivisionError in draft: integer division or modulo by zero .*line"),
    (lambda self, batch: np.zeros((9, 2), int), r"returned tokens of the shape \[9, 2\]"),
    (lambda self, batch: np.zeros((len(batch), 2)), "no integers but float64"),
    (lambda self, batch: "abc", "no integers"),
    (lambda self, batch: [[1, 2], [3]], "the tokens that the drafter 'py_wrong' returned make no array of integers, since "
     "their rows differ in length; fill short rows up with -1"),
    (lambda self, batch: batch.guess([[1, 2], [3]]), "the guessed tokens make no array .*; fill short rows up with -1"),
    (lambda self, batch: np.full((len(batch), 1), 2**40), "outside the target's vocabulary"),
    (logits(1, 7), r"of the shape \[1, 7\]; give float32 \[requests, vocabulary\], here \[1, 4096\]"),
    (logits(1, 4096, dtype=np.float64), "of the type float64; give float32"),
    (lambda self, batch: batch.draw([0.5]), "no array but a list"),
    (lambda self, batch: batch.draw(np.zeros((4096, 1), np.float32).T[:, ::2]), "have gaps between them"),
    (lambda self, batch: batch.guess_below([5], [0], [1]), "asked for request 5 of a batch"),
    (lambda self, batch: batch.guess_below([0], [3], [1]), "named the parent 3 in a tree of 1 nodes"),
    (lambda self, batch: [batch.draw_below([0], [0], np.zeros((1, 4096), np.float32)) for _ in range(2)],
     "drew twice below node 0"),
    (lambda self, batch: batch.hidden(0), "did not ask for"),
    (written_again, "raised ValueError in draft: assignment destination is read-only"),
])
def test_what_is_wrong_is_one_sentence(draft, sentence):
    said = fails("py_wrong", draft, proposes=["chain", "certain"])
    assert "the drafter 'py_wrong'" in said and re.search(sentence, said), said


@pytest.mark.parametrize("notice, sentences", [
    (lambda self: None, []),
    (lambda self: "", []),
    (lambda self: 1 // 0, ["the drafter 'py_notices' raised ZeroDivisionError in notice: .*"]),
    (lambda self: [3], ["the drafter 'py_notices' returned in notice what is no sentence but a list; .*"]),
])
def test_notices_fail_no_request(notice, sentences):
    foretoken.register_drafter("py_notices", type("Notices", (Repeat,), {"notice": notice}), options={"most": 2})
    with foretoken.Engine(target=DRAFT, drafter="py_notices") as engine:
        for _ in range(2):
            assert [len(o.tokens) for o in engine.generate(PROMPTS, max_new_tokens=6)] == [6, 6]
        assert len(engine.notices) == len(sentences)
        assert all(re.fullmatch(sentence, said) for sentence, said in zip(sentences, engine.notices))


def test_the_request_alone_fails():
    with foretoken.Engine(target=DRAFT) as engine:
        first = engine.encode(PROMPTS[1])[0]

    class Picky:
        def draft(self, batch):
            if any(tokens[0] == first for tokens in batch.all_tokens()):
                raise ValueError("not this one")

    foretoken.register_drafter("py_picky", Picky)
    with foretoken.Engine(target=DRAFT, drafter="py_picky") as engine:
        good, bad = engine.generate(PROMPTS, max_new_tokens=12)
        assert (good.finish, len(good.tokens), bad.finish) == ("length", 12, "failed")
        assert "the drafter 'py_picky' raised ValueError in draft: not this one" in bad.failure
        with pytest.raises(foretoken.Error, match="not this one"):
            list(engine.stream(PROMPTS[1]))


def test_outcomes_that_are_not_taken_fail_their_sequences():
    class Deaf(Repeat):
        def __init__(self):
            super().__init__(2)

        def observe(self, outcomes):
            raise KeyError("gone")

    foretoken.register_drafter("py_deaf", Deaf)
    with foretoken.Engine(target=DRAFT, drafter="py_deaf") as engine:
        with pytest.raises(foretoken.Error, match="the drafter 'py_deaf' raised KeyError in observe"):
            engine.generate(PROMPTS, max_new_tokens=12)


def test_a_batch_ends_with_its_call():
    kept = []
    foretoken.register_drafter("py_keeps", type("Keeps", (), {"draft": lambda self, batch: kept.append(batch)}))
    with foretoken.Engine(target=DRAFT, drafter="py_keeps") as engine:
        engine.generate("a", max_new_tokens=2)
    with pytest.raises(foretoken.Error, match="after the call of draft"):
        kept[0].guess([1])


def test_a_batch_ends_with_a_call_that_raises():
    kept = []

    class Raises:
        def draft(self, batch):
            kept.append(batch)
            raise ValueError("no draft")

    foretoken.register_drafter("py_keeps_and_raises", Raises)
    with foretoken.Engine(target=DRAFT, drafter="py_keeps_and_raises") as engine:
        with pytest.raises(foretoken.Error, match="no draft"):
            engine.generate("a", max_new_tokens=2)
    logits = np.zeros((1, 4096), np.float32)
    for use in (lambda b: b.guess([1]), lambda b: b.last, lambda b: b.tokens(0), lambda b: b.all_tokens(),
                lambda b: b.tails(2), lambda b: b.states(0), lambda b: b.hidden(0), lambda b: b.draw(logits),
                lambda b: b.guess_below([0], [0], [1]), lambda b: b.draw_below([0], [0], logits)):
        with pytest.raises(foretoken.Error, match="after the call of draft"):
            use(kept[0])


def test_components_go_with_their_engine():
    alive = []

    class Counted(Repeat):
        def __init__(self):
            super().__init__(1)
            alive.append(1)

        def __del__(self):
            alive.pop()

    foretoken.register_drafter("py_counted", Counted)
    engine = foretoken.Engine(target=DRAFT, drafter="py_counted")
    engine.generate("a", max_new_tokens=4)
    assert alive == [1]
    del engine
    gc.collect()
    assert alive == []


@pytest.mark.parametrize("policy, sentence", [
    (lambda self, batch: [1, 2, 3], r"the policy 'py_bad' returned budgets of the shape \[3\]"),
    (lambda self, batch: 1 / 0, "the policy 'py_bad' raised ZeroDivisionError in budgets"),
    (lambda self, batch: [9] * len(batch), "py_bad"),
])
def test_bad_policies_are_one_sentence(policy, sentence):
    foretoken.register_policy("py_bad", type("Bad", (), {"budgets": policy}), depth=4)
    with foretoken.Engine(target=DRAFT, drafter="ngram", policy="py_bad") as engine:
        with pytest.raises(foretoken.Error, match=sentence):
            engine.generate("a b a b a", max_new_tokens=6)


@pytest.mark.parametrize("register, sentence", [
    (lambda: foretoken.register_drafter("ngram", Repeat), "there is a drafter 'ngram' already"),
    (lambda: foretoken.register_drafter("", Repeat), "a string, not ''"),
    (lambda: foretoken.register_drafter("x", 3), "register a class"),
    (lambda: foretoken.register_drafter("x", Repeat, options={"a": None}), "does not show its type"),
    (lambda: foretoken.check(Draws, policy=Draws), "is a drafter"),
    (lambda: foretoken.check(Repeat, laws=["exakt"]), "unknown law 'exakt'"),
    (lambda: foretoken.check(object), "registered by @foretoken.drafter"),
    (lambda: foretoken.Engine(target=DRAFT, drafter={"name": "py_repeat", "mst": 1}), "did you mean 'most'"),
    (lambda: foretoken.Engine(target=DRAFT, drafter={"name": "py_repeat", "most": 65}), "most"),
    (lambda: foretoken.Engine(target=DRAFT, drafter="py_tree"), "not sound for the drafter 'py_tree'"),
    (lambda: foretoken.Engine(target=DRAFT, drafter=foretoken.register_drafter("py_odd", Repeat, proposes=["odd"])
                              and "py_odd"), "nodes drawn 'odd', which is none of"),
])
def test_bad_registrations_say_why(register, sentence):
    with pytest.raises(foretoken.Error, match=sentence):
        register()


def test_registered_components_are_listed():
    names = foretoken.components()
    assert {"py_repeat", "py_draws", "ngram"} <= set(names["drafters"]) and "py_double" in names["policies"]
    assert "speculative_sampling" in names["verifiers"]
