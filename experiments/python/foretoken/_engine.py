"""Engines: prompts in, outputs with their figures out."""

import asyncio
import atexit
import collections
import itertools
import json
import operator
import os
import sys
import time
import weakref

from . import _core, _documents
from ._stream import POLL, Stream

_PATIENCE = 10  # seconds that close() waits for the end of a step
_open = weakref.WeakSet()  # engines that are not closed


@atexit.register
def _close_all():
    """A thread of an engine that still ran would wait for an interpreter that has gone."""
    try:
        for engine in list(_open):
            engine.close()
        _patiently(_core.wait_for_endings)
    except _core.Error as error:
        print(f"foretoken: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)  # the interpreter cannot end while that thread is in it


def _after_fork():
    """In the new process, where no thread of an engine is."""
    global _open
    _open = weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _patiently(end):
    """Calls end(seconds) until it returns that threads of engines have ended."""
    begun = time.monotonic()
    while not end(POLL):
        if time.monotonic() - begun > _PATIENCE:
            raise _core.Error(f"an engine's thread has not ended within {_PATIENCE} s, since a component in Python does "
                              "not return from a call; see what it waits for")


class Engine:
    """One target, drafter, length policy and verifier, and the thread that decodes with them.

    `run`: a run document as `foretoken run` reads it: a dict, or the path of a file; its prompts are not read. What is
    given by name goes over it: `target` and `draft` (a directory, a GGUF file, or {"model": ...}), `drafter`, `policy`
    and `verifier` (a name, or {"name": ..., options}), `length` (tokens drafted in each round), `sampling`, `engine` and
    `workload` (dicts, key by key), `plugins` (shared libraries). An unknown key is an Error that names the nearest.

    Models are loaded once, here. The engine decodes on a thread of its own, without the interpreter's lock but for
    components that are written in Python. Any thread may call it, but no process that was forked after it was made.
    """

    def __init__(self, run=None, *, target=None, draft=None, drafter=None, length=None, policy=None, verifier=None,
                 sampling=None, engine=None, workload=None, plugins=None):
        document, beside = _documents.read(run)
        if draft is not None and drafter is not None:
            raise _core.Error("'draft' selects the drafter draft_model and excludes 'drafter'; leave one of them out")
        if length is not None and policy is not None:
            raise _core.Error("'length' selects the policy fixed and excludes 'policy'; leave one of them out")
        if draft is not None:
            drafter = {"name": "draft_model", **(draft if isinstance(draft, dict) else {"model": str(draft)})}
        if length is not None:
            policy = {"name": "fixed", "length": length}
        if target is not None:
            _documents.put(document, "target", target if isinstance(target, dict) else {"model": str(target)})
        for key, given in (("drafter", drafter), ("policy", policy), ("verifier", verifier)):
            if given is not None:
                document[key] = _documents.component(given, key)
        for key, given in (("sampling", sampling), ("engine", engine), ("workload", workload), ("plugins", plugins)):
            if given is not None:
                _documents.put(document, key, given)
        if document.get("target") is None:
            raise _core.Error("an engine needs a target: give target=DIRECTORY, or a run document that has one")
        self._held = _core.Session(_documents.as_json(document, "the run"), beside)
        self._process = os.getpid()
        self._numbers = itertools.count()
        _open.add(self)

    @property
    def _session(self):
        self._expect_process()
        return self._held

    def _is_here(self):
        """Whether this process is the one that made it, and not forked from that."""
        return self._process == os.getpid()

    def _expect_process(self):
        if not self._is_here():
            raise _core.Error("an engine was made before this process was forked, and its thread is in the other one; "
                              "make an engine here, or start the process by 'spawn'")

    @property
    def run(self) -> dict:
        """The complete run document of this engine."""
        return json.loads(self._session.run)

    @property
    def promise(self) -> str:
        """What the verifier promises: "exact", or "lossy: " and the distribution of what it emits."""
        return self._session.promise

    @property
    def notices(self) -> list:
        """Sentences of the drafter, or of doubt about it, as of when a request last ended."""
        return self._session.notices()

    @property
    def vocab(self) -> int:
        """Tokens of the target's vocabulary."""
        return self._session.vocab

    def encode(self, text: str, **options) -> list:
        """The ids of a prompt, in the form in which the run puts it to the model."""
        if not isinstance(text, str):
            raise _core.Error(f"encode() takes a string, not a {type(text).__name__}")
        return self._session.encode(self._form(options), text)

    def decode(self, tokens) -> str:
        """The text of ids."""
        return self._session.decode(tokens)

    def generate(self, prompts, *, first=None, **options):
        """The outputs of one prompt, or of a list of them, decoded together.

        A prompt is a string or a list of token ids. Options, instead of the run's: temperature, top_k, top_p, min_p,
        repetition_penalty, frequency_penalty, presence_penalty, logit_bias, response_format, seed, samples, logprobs,
        warped_logprobs, max_new_tokens, stop, ignore_eos, chat, system, date. Each takes the place of the run's own as a whole (a
        logit_bias is not added to the run's); None is as if it were not given: what the engine was made with.

        Draws are named by the seed and the prompt's number, which counts the prompts of this engine's life; `first` is
        the number of the first prompt instead, to repeat what it drew.

        Returns an Output for a prompt, a list for a list; with samples > 1 a list of samples in the place of each. A
        request that fails says why in Output.failure; where all of them fail, that is raised as foretoken.Error.
        """
        call = _Call(self, prompts, first, options)
        for asked in call.requests():
            while not call.take(asked):
                if call.oldest is None:
                    time.sleep(POLL / 10)  # the requests of others are as many as may wait
                else:
                    call.oldest.result()
        return call.found([[stream.result() for stream in group] for group in call.streams])

    def stream(self, prompt, *, number=None, **options) -> Stream:
        """The output of one prompt as it comes: an iterator of text, by `for` or `async for`. Options as of generate();
        `number`: instead of the prompt's own."""
        if not self._is_one(prompt):
            raise _core.Error("stream() takes one prompt; call it for each of them")
        form = self._form(options)
        if json.loads(form.run)["sampling"]["samples"] > 1:
            raise _core.Error("stream() has one output; call it for each sample, with another number")
        number = next(self._numbers) if number is None else _number(number, "number")
        inner = self._session.submit(form, prompt, number)
        if inner is None:
            raise _core.Error("as many requests are waiting as the engine takes; read the streams that are there first")
        return Stream(self, inner)

    async def agenerate(self, prompts, *, first=None, **options):
        """generate() without holding up the loop of asyncio; cancelled, it cancels its requests."""
        call = _Call(self, prompts, first, options)
        try:
            for asked in call.requests():
                while not call.take(asked):
                    if call.oldest is None:
                        await asyncio.sleep(POLL / 10)
                    else:
                        await call.oldest.aresult()
                await asyncio.sleep(0)  # each takes a moment, and there may be many
            outputs = []
            for group in call.streams:  # comprehensions of comprehensions cannot wait before Python 3.11
                outputs.append([await stream.aresult() for stream in group])
            return call.found(outputs)
        except BaseException:
            call.cancel()
            raise

    def close(self):
        """Cancels what has not ended, and frees the thread. The engine takes no prompts any more. An Error where a
        component in Python does not return, so that the thread cannot end. In a forked process it does nothing."""
        if self._is_here():
            _patiently(self._session.close)
        _open.discard(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _form(self, options):
        return self._session.form(_documents.as_json(_documents.changes(options), "the call"))

    @staticmethod
    def _is_one(prompts):
        """Whether it is one prompt: a string, or ids."""
        if isinstance(prompts, str):
            return True
        if isinstance(prompts, (bytes, dict)):
            raise _core.Error(f"prompts are a string, a list of token ids, or a list of these, not a "
                              f"{type(prompts).__name__}")
        if hasattr(prompts, "ndim"):
            return prompts.ndim == 1
        try:
            return len(prompts) > 0 and all(isinstance(t, int) for t in prompts)
        except TypeError:
            raise _core.Error("prompts are a string, a list of token ids, or a list of these") from None


def _number(given, name):
    """A prompt's number; it names its draws."""
    try:
        number = operator.index(given)
    except TypeError:
        number = -1
    if not 0 <= number < 2**30:
        raise _core.Error(f"{name}= is the number of a prompt, from 0 up to 2**30, not {given!r}; give an integer")
    return number


class _Call:
    """The requests of one call, and their streams: a list of samples for each prompt."""

    def __init__(self, engine, prompts, first, options):
        self._engine = engine
        self._form = engine._form(options)
        self._one = engine._is_one(prompts)
        self._prompts = [prompts] if self._one else list(prompts)
        self._samples = json.loads(self._form.run)["sampling"]["samples"]
        first = None if first is None else _number(first, "first")
        # All at once, so that calls at the same time do not mix their numbers.
        self._numbers = [next(engine._numbers) if first is None else first + i for i in range(len(self._prompts))]
        self._unended = collections.deque()
        self.streams = [[] for _ in self._prompts]

    def requests(self):
        """(prompt, sample) by their places."""
        return itertools.product(range(len(self._prompts)), range(self._samples))

    def take(self, asked) -> bool:
        """Whether there was place for it among the waiting requests."""
        place, sample = asked
        group = self.streams[place]
        like = group[0]._inner if group else None
        inner = self._engine._session.submit(self._form, self._prompts[place], self._numbers[place], sample, like)
        if inner is None:
            return False
        group.append(Stream(self._engine, inner))
        self._unended.append(group[-1])
        return True

    @property
    def oldest(self):
        """Of its streams the first that was not read to its end; None where there is none."""
        while self._unended and self._unended[0].output is not None:
            self._unended.popleft()
        return self._unended[0] if self._unended else None

    def found(self, outputs):
        """What the call returns."""
        every = [output for group in outputs for output in group]
        if every and all(output.failure for output in every):
            raise _core.Error(every[0].failure)
        found = [group if self._samples > 1 else group[0] for group in outputs]
        return found[0] if self._one else found

    def cancel(self):
        for group in self.streams:
            for stream in group:
                stream.close()
