"""Engines: what they decode is what the program decodes; how they end, and input that is bad."""

import gc
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest

import foretoken
from conftest import DRAFT, TARGET

PROGRAM = Path(sys.executable).with_name("foretoken")
PROMPTS = ["Once upon a time", "The sun was", "He said that"]


def test_outputs_are_those_of_the_program(engine):
    said = subprocess.run([PROGRAM, "generate", "--model", TARGET, "--draft", DRAFT, "--length", "4", "--prompt",
                           PROMPTS[0], "--max-new-tokens", "24", "--temperature", "0.8", "--json"],
                          stdout=subprocess.PIPE, check=True, text=True)
    expected = json.loads(said.stdout)["outputs"][0]
    found = engine.generate(PROMPTS[0], first=0, max_new_tokens=24, temperature=0.8)
    assert (found.text, found.tokens, found.finish) == (expected["text"], expected["tokens"], expected["finish"])
    assert (found.rounds, found.drafted, found.accepted) == (expected["rounds"], expected["drafted"],
                                                             expected["accepted"])
    assert found.tau == len(found.tokens) / found.rounds > 1
    assert 0 < found.acceptance == found.accepted / found.drafted < 1


def test_a_batch_is_its_prompts(engine):
    together = engine.generate(PROMPTS, first=0, max_new_tokens=16, temperature=1.0)
    alone = [engine.generate(p, first=i, max_new_tokens=16, temperature=1.0) for i, p in enumerate(PROMPTS)]
    assert [o.tokens for o in together] == [o.tokens for o in alone]
    once, again = (engine.generate(PROMPTS, max_new_tokens=16, temperature=1.0) for _ in range(2))
    assert [o.tokens for o in once] != [o.tokens for o in again]  # other numbers, other draws


def test_many_more_prompts_than_may_wait(engine):
    outputs = engine.generate(["a"] * 1100, max_new_tokens=1)
    assert len(outputs) == 1100 and all(len(o.tokens) == 1 for o in outputs)


@pytest.mark.parametrize("kind", [list, numpy.array, lambda ids: numpy.array(ids, "uint16")])
def test_token_ids_are_prompts(engine, kind):
    ids = engine.encode(PROMPTS[0])
    assert engine.decode(ids) == PROMPTS[0]
    assert engine.generate(kind(ids), max_new_tokens=8).tokens == engine.generate(PROMPTS[0], max_new_tokens=8).tokens
    assert len(engine.generate([ids, ids], max_new_tokens=2)) == 2


def test_options_of_a_call(engine):
    whole = engine.generate(PROMPTS[0], max_new_tokens=24)
    stopped = engine.generate(PROMPTS[0], max_new_tokens=24, stop=whole.text[5:9])
    assert stopped.finish == "stop_rule" and whole.text.startswith(stopped.text) and len(stopped.text) < len(whole.text)
    samples = engine.generate(PROMPTS[0], max_new_tokens=8, samples=3, temperature=1.0, logprobs=True)
    assert len(samples) == 3 and len({tuple(s.tokens) for s in samples}) > 1
    assert all(len(s.logprobs) == len(s.tokens) and max(s.logprobs) <= 0 for s in samples)
    never = whole.tokens[0]
    assert never not in engine.generate(PROMPTS[0], max_new_tokens=24, logit_bias={never: -100}).tokens


def test_an_option_that_is_none_is_what_the_engine_was_made_with(engine):
    first, second = engine.generate(PROMPTS[0], max_new_tokens=2).tokens
    made = {"temperature": 0.9, "top_k": 50, "seed": 7, "logit_bias": {str(first): -100}}
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
             "logit_bias", "response_format", "seed", "samples", "logprobs", "warped_logprobs", "max_new_tokens",
             "stop", "ignore_eos", "chat", "system", "date")
    with foretoken.Engine(target=TARGET, sampling=made, workload={"max_new_tokens": 9, "ignore_eos": True}) as other:
        form = other._form(dict.fromkeys(names))
        assert json.loads(form.run) == other.run
        given = other.generate(PROMPTS, first=0)
        assert [len(o.tokens) for o in given] == [9, 9, 9]
        assert other.generate(PROMPTS, first=0, **dict.fromkeys(names)) == given
        assert other.generate(PROMPTS, first=0, temperature=0) != given
        # A call's biases take the place of the engine's.
        assert other.generate(PROMPTS[0], temperature=0).tokens[0] != first
        assert other.generate(PROMPTS[0], temperature=0, logit_bias={}).tokens[:2] == [first, second]
        assert other.generate(PROMPTS[0], temperature=0, logit_bias={second: -100}).tokens[0] == first


def test_outputs_have_the_form_that_a_call_asks_for(engine):
    form = {"type": "regex", "pattern": "[a-z]{2,5}=[0-9]{1,3}"}
    for output in engine.generate(PROMPTS, max_new_tokens=40, temperature=1.0, response_format=form):
        assert re.fullmatch(form["pattern"], output.text) and output.finish == "stop_token"
    with pytest.raises(foretoken.Error, match=r"'\(' without a '\)'"):
        engine.generate(PROMPTS[0], response_format={"type": "regex", "pattern": "a("})


def test_the_lock_is_free_while_the_engine_decodes(engine):
    done, counted = threading.Event(), 0
    thread = threading.Thread(target=lambda: (engine.generate(PROMPTS * 4, max_new_tokens=64), done.set()))
    thread.start()
    while not done.wait(0.001):
        counted += 1
    thread.join()
    assert counted > 20


def test_documents_and_names(tmp_path):
    document = {"target": {"model": TARGET}, "policy": {"name": "fixed", "length": 2},
                "sampling": {"temperature": 1, "seed": 5}}
    (tmp_path / "run.json").write_text(json.dumps(document))
    with foretoken.Engine(tmp_path / "run.json", drafter="ngram", sampling={"top_k": 9}) as engine:
        run = engine.run
        assert run["sampling"]["seed"] == 5 and run["sampling"]["top_k"] == 9
        assert run["policy"]["length"] == 2 and run["drafter"]["longest"] == 3
        assert engine.promise == "exact" and engine.vocab == 4096 and engine.notices == []
        assert len(engine.generate("a b a b a", max_new_tokens=6).tokens) == 6


def test_an_engine_ends(engine):
    other = foretoken.Engine(target=DRAFT)
    stream = other.stream("a", max_new_tokens=400, ignore_eos=True)
    other.close()
    assert stream.result().finish in ("cancelled", "failed")
    with pytest.raises(foretoken.Error, match="is closed"):
        other.generate("a")
    del other, stream
    gc.collect()
    # One that is left open holds up no interpreter.
    code = f"import foretoken\ne = foretoken.Engine(target={DRAFT!r})\ns = e.stream('a', max_new_tokens=400)\nnext(s)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_ctrl_c_is_heard():
    code = f"""
import foretoken, os, signal, threading
class Slow:
    def draft(self, batch):
        import time
        time.sleep(0.2)
foretoken.register_drafter("slow", Slow)
engine = foretoken.Engine(target={DRAFT!r}, drafter="slow")
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    engine.generate("a", max_new_tokens=400, ignore_eos=True)
except KeyboardInterrupt:
    print("heard")
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, stdout=subprocess.PIPE, text=True)
    assert (done.stdout, done.returncode) == ("heard\n", 0)


def test_a_drafter_that_never_returns_holds_up_nobody_else():
    code = f"""
import foretoken, threading
from foretoken import _engine
_engine._PATIENCE = 1
class Waits:
    def draft(self, batch):
        threading.Event().wait()
foretoken.register_drafter("waits", Waits)
engine = foretoken.Engine(target={DRAFT!r}, drafter="waits")
stream = engine.stream("a")
with foretoken.Engine(target={DRAFT!r}) as other:
    print(len(other.generate("a", max_new_tokens=3).tokens))
try:
    engine.close()
except foretoken.Error as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    assert done.stdout.startswith("3\nan engine's thread has not ended within 1 s, since a component in Python")
    assert done.returncode == 1 and done.stderr.startswith("foretoken: an engine's thread has not ended")


def test_a_forked_process_uses_no_engine_of_before():
    code = f"""
import foretoken, gc, multiprocessing, os, signal, sys
engine = foretoken.Engine(target={DRAFT!r})
stream = engine.stream("a", max_new_tokens=400, ignore_eos=True)
next(stream)
uses = [lambda: engine.generate("a"), lambda: next(stream), lambda: stream.result(), lambda: engine.stream("a"),
        lambda: engine.run, lambda: engine.notices, lambda: engine.encode("a")]
child = os.fork()
if child == 0:
    signal.alarm(40)  # ends it where it hangs
    for use in uses:
        try:
            print(use())
        except foretoken.Error as error:
            print(error)
    with engine, stream:
        pass
    with foretoken.Engine(target={DRAFT!r}) as own:
        print(len(own.generate("a", max_new_tokens=3).tokens))
    kept = stream
    del engine, stream, uses, use
    gc.collect()
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
def use(_):
    signal.alarm(40)
    return engine.generate("a")
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        pool.map(use, [0])
    except foretoken.Error as error:
        print(error)
print(len(stream.result().tokens))
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=100, stdout=subprocess.PIPE, text=True)
    sentence = ("an engine was made before this process was forked, and its thread is in the other one; make an engine "
                "here, or start the process by 'spawn'")
    assert done.stdout.splitlines() == [sentence] * 7 + ["3", "5", sentence, "400"] and done.returncode == 0


@pytest.mark.parametrize("waits", [True, False])
def test_an_engine_may_be_let_go_of_on_its_own_thread(waits):
    code = f"""
import foretoken, threading, time
let_go, gone = threading.Event(), threading.Event()
class Last:
    def __del__(self):
        gone.set()
    def draft(self, batch):
        held.clear()  # the last reference to its own engine
        let_go.set()
        time.sleep(0.3)
foretoken.register_drafter("last", Last)
held = [foretoken.Engine(target={DRAFT!r}, drafter="last")]
held.append(held[0].stream("a", max_new_tokens=400, ignore_eos=True))
print(let_go.wait(20), {waits} and gone.wait(20))
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, stdout=subprocess.PIPE, text=True)
    assert (done.stdout, done.returncode) == (f"True {waits}\n", 0)


@pytest.mark.parametrize("arguments, sentence", [
    ({"run": {"target": {"model": TARGET}, "enginge": {}}}, "unknown key '/enginge' .did you mean '/engine'"),
    ({"run": {"base": {}, "axes": {}}, "target": TARGET}, "is a sweep of several"),
    ({"run": 3}, "a dict or the path"),
    ({"run": "nowhere.json"}, "nowhere.json does not exist"),
    ({}, "needs a target"),
    ({"target": "nowhere"}, "the model directory nowhere does not exist"),
    ({"target": TARGET, "drafter": "ngrm"}, "unknown drafter 'ngrm' .did you mean 'ngram'"),
    ({"target": TARGET, "drafter": "ngram", "draft": DRAFT}, "leave one of them out"),
    ({"target": TARGET, "policy": "fixed", "length": 2}, "leave one of them out"),
    ({"target": TARGET, "sampling": {"temperature": float("nan")}}, "JSON has no form for"),
    ({"target": TARGET, "sampling": {"temperature": -1}}, "temperature"),
    ({"target": TARGET, "drafter": 7}, "the drafter is a int"),
    ({"target": TARGET, "workload": "x"}, "'/workload' must be an object, not \"x\""),
    ({"run": {"target": {"model": TARGET}, "workload": [1]}}, r"'/workload' must be an object, not \[1\]"),
])
def test_bad_engines_say_why(arguments, sentence):
    with pytest.raises(foretoken.Error, match=sentence):
        foretoken.Engine(**arguments)


@pytest.mark.parametrize("prompts, options, sentence", [
    ("a", {"foo": 1}, "no option 'foo'"),
    ("a", {"temperature": "hot"}, "temperature"),
    ([10**9], {}, "outside the vocabulary"),
    ([0.5], {}, "no integers but float64"),
    (5, {}, "a string, a list of token ids"),
    ("", {}, "prompt"),
    ([[1, 2], [3, [4]]], {}, "no array of integers, since their rows differ in length; give one list of token ids"),
    ([[[1, 2], [3]]], {}, "the tokens of a prompt make no array of integers"),
    ([None], {}, "no integers but object"),
    ({"a": 1}, {}, "a string, a list of token ids, .* not a dict"),
    ("a", {"first": "x"}, "first= is the number of a prompt, .* not 'x'"),
    ("a", {"first": 2**40}, "first= is the number of a prompt"),
    ("a", {"first": -1}, "first= is the number of a prompt"),
    ("a " * 5000, {}, "context|positions|tokens"),
])
def test_bad_calls_say_why(engine, prompts, options, sentence):
    with pytest.raises(foretoken.Error, match=sentence):
        engine.generate(prompts, **options)
    assert len(engine.generate("a", max_new_tokens=2).tokens) == 2  # the engine goes on


@pytest.mark.parametrize("call, sentence", [
    (lambda engine: engine.encode(3), "encode.. takes a string, not a int"),
    (lambda engine: engine.decode([[1], [2, 3]]), "the tokens make no array of integers, since .*; give one list"),
    (lambda engine: engine.stream("a", number=None, stop=3), "/workload/stop"),
    (lambda engine: engine.stream("a", number=1.5), "number= is the number of a prompt"),
])
def test_other_bad_calls_say_why(engine, call, sentence):
    with pytest.raises(foretoken.Error, match=sentence):
        call(engine)
