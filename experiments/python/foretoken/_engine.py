"""Engines: prompts in, outputs with their figures out."""

import asyncio
import atexit
import itertools
import json
import os
import sys
import time
import weakref
from dataclasses import dataclass, field

from . import _core, _documents

_PATIENCE = 10  # seconds that close() waits for the end of a step
_POLL = 0.1  # seconds without the interpreter's lock, after which Ctrl-C is looked for
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


def _patiently(end):
    """Calls end(seconds) until it returns that threads of engines have ended."""
    begun = time.monotonic()
    while not end(_POLL):
        if time.monotonic() - begun > _PATIENCE:
            raise _core.Error(f"an engine's thread has not ended within {_PATIENCE} s, since a component in Python does "
                              "not return from a call; see what it waits for")


@dataclass
class Output:
    """The output of one prompt, or of one sample of it."""

    text: str
    tokens: list  # ids of what was generated
    finish: str  # stop_token, stop_rule, length, cancelled, failed
    prompt_tokens: int = 0
    rounds: int = 0  # forwards of the target that this output took part in
    drafted: int = 0  # nodes below the root
    tested: int = 0  # levels up to a rejection or the end of the output
    accepted: int = 0  # of these
    failure: str = ""  # why it failed; empty where it did not
    logprobs: list = field(default_factory=list)  # of the tokens, if asked for

    @property
    def tau(self) -> float:
        """Tokens per forward of the target."""
        return len(self.tokens) / self.rounds if self.rounds else float("nan")

    @property
    def alpha(self) -> float:
        """Accepted over tested levels."""
        return self.accepted / self.tested if self.tested else float("nan")

    @property
    def acceptance(self) -> float:
        """Accepted over drafted nodes."""
        return self.accepted / self.drafted if self.drafted else float("nan")


class Stream:
    """The text of one prompt, piece by piece, by `for` or `async for`. Closed, or left, it cancels its request.

    `output` is there once it has ended; a request that fails raises foretoken.Error then.
    """

    def __init__(self, engine, inner):
        self._engine = engine  # lives as long as what it serves
        self._inner = inner
        self._text, self._tokens = [], []
        self.output = None

    def _take(self):
        """The next piece of text, None where it has ended; only where it is ready."""
        piece = self._inner.next()
        if piece is not None:
            self._tokens += piece.tokens
            self._text.append(piece.text)
            return piece.text
        if self.output is None:
            finish, failure, logprobs = self._inner.ended()
            rounds, drafted, tested, accepted = self._inner.counts
            self.output = Output("".join(self._text), self._tokens, finish, self._inner.prompt_tokens, rounds, drafted,
                                 tested, accepted, failure, logprobs.tolist())
        return None

    def _wait(self):
        while not self._inner.ready(_POLL):
            pass

    def result(self) -> Output:
        """Waits for the end, and returns the output, failed ones too."""
        while self.output is None:
            self._wait()
            self._take()
        return self.output

    def __iter__(self):
        return self

    def __next__(self) -> str:
        while self.output is None:
            self._wait()
            if text := self._take():
                return text
        self._check()
        raise StopIteration

    def __aiter__(self):
        return self

    async def __anext__(self) -> str:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        try:
            while self.output is None:
                event.clear()
                if not self._inner.ready(0):
                    self._inner.listen(lambda: loop.call_soon_threadsafe(event.set))
                    await event.wait()
                elif text := self._take():
                    return text
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._inner.listen(None)
        self._check()
        raise StopAsyncIteration

    def _check(self):
        if self.output.failure:
            raise _core.Error(self.output.failure)

    def close(self):
        """Ends the request before the engine's next step."""
        self._inner.cancel()

    async def aclose(self):
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Engine:
    """One target, drafter, length policy and verifier, and the thread that decodes with them.

    `run`: a run document as `foretoken run` reads it: a dict, or the path of a file; its prompts are not read. What is
    given by name goes over it: `target` and `draft` (a directory, a GGUF file, or {"model": ...}), `drafter`, `policy`
    and `verifier` (a name, or {"name": ..., options}), `length` (tokens drafted in each round), `sampling`, `engine` and
    `workload` (dicts, key by key), `plugins` (shared libraries). An unknown key is an Error that names the nearest.

    Models are loaded once, here. The engine decodes on a thread of its own, without the interpreter's lock but for
    components that are written in Python. Any thread may call it.
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
        self._session = _core.Session(_documents.as_json(document, "the run"), beside)
        self._numbers = itertools.count()
        _open.add(self)

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
        return self._session.encode(self._form(options), text)

    def decode(self, tokens) -> str:
        """The text of ids."""
        return self._session.decode(tokens)

    def generate(self, prompts, *, first=None, **options):
        """The outputs of one prompt, or of a list of them, decoded together.

        A prompt is a string or a list of token ids. Options, instead of the run's: temperature, top_k, top_p, min_p,
        repetition_penalty, frequency_penalty, presence_penalty, logit_bias, seed, samples, logprobs, warped_logprobs,
        max_new_tokens, stop, ignore_eos, chat, system, date.

        Draws are named by the seed and the prompt's number, which counts the prompts of this engine's life; `first` is
        the number of the first prompt instead, to repeat what it drew.

        Returns an Output for a prompt, a list for a list; with samples > 1 a list of samples in the place of each. A
        request that fails says why in Output.failure; where all of them fail, that is raised as foretoken.Error.
        """
        one = self._is_one(prompts)
        form = self._form(options)
        samples = json.loads(form.run)["sampling"]["samples"]
        streams = []
        for prompt in [prompts] if one else prompts:
            number = next(self._numbers) if first is None else first + len(streams)
            streams.append(self._samples(form, prompt, number, samples, streams))
        outputs = [[stream.result() for stream in group] for group in streams]
        every = [output for group in outputs for output in group]
        if every and all(output.failure for output in every):
            raise _core.Error(every[0].failure)
        found = [group if samples > 1 else group[0] for group in outputs]
        return found[0] if one else found

    def stream(self, prompt, *, number=None, **options) -> Stream:
        """The output of one prompt as it comes: an iterator of text, by `for` or `async for`. Options as of generate();
        `number`: instead of the prompt's own."""
        if not self._is_one(prompt):
            raise _core.Error("stream() takes one prompt; call it for each of them")
        form = self._form(options)
        if json.loads(form.run)["sampling"]["samples"] > 1:
            raise _core.Error("stream() has one output; call it for each sample, with another number")
        number = next(self._numbers) if number is None else number
        return Stream(self, self._submit(form, prompt, number, 0, None, []))

    async def agenerate(self, prompts, *, first=None, **options):
        """generate() without holding up the loop of asyncio; cancelled, it cancels its requests."""
        one = self._is_one(prompts)
        streams = [self.stream(prompt, number=None if first is None else first + i, **options)
                   for i, prompt in enumerate([prompts] if one else prompts)]

        async def drained(stream):
            try:
                async for _ in stream:
                    pass
            except _core.Error:
                pass  # Output.failure has it
            return stream.output

        outputs = await asyncio.gather(*map(drained, streams))
        if outputs and all(output.failure for output in outputs):
            raise _core.Error(outputs[0].failure)
        return outputs[0] if one else list(outputs)

    def close(self):
        """Cancels what has not ended, and frees the thread. The engine takes no prompts any more. An Error where a
        component in Python does not return, so that the thread cannot end."""
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
        if hasattr(prompts, "ndim"):
            return prompts.ndim == 1
        try:
            return len(prompts) > 0 and all(isinstance(t, int) for t in prompts)
        except TypeError:
            raise _core.Error("prompts are a string, a list of token ids, or a list of these") from None

    def _samples(self, form, prompt, number, samples, before):
        streams = []
        for sample in range(samples):
            like = streams[0]._inner if streams else None
            streams.append(Stream(self, self._submit(form, prompt, number, sample, like, before + [streams])))
        return streams

    def _submit(self, form, prompt, number, sample, like, before):
        """Waits for place among the waiting requests, if need be."""
        while True:
            inner = self._session.submit(form, prompt, number, sample, like)
            if inner is not None:
                return inner
            waiting = next((s for group in before for s in group if s.output is None), None)
            if waiting is None:
                raise _core.Error("more requests are waiting than the engine takes; read the streams that are there")
            waiting.result()
