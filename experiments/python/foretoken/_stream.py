"""Outputs, and streams of them."""

import asyncio
import threading
from dataclasses import dataclass, field

from . import _core

POLL = 0.1  # seconds without the interpreter's lock, after which Ctrl-C is looked for


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
        while not self._inner.ready(POLL):
            pass

    def result(self) -> Output:
        """Waits for the end, and returns the output, failed ones too."""
        while self.output is None:
            self._wait()
            self._take()
        return self.output

    async def aresult(self) -> Output:
        """result() without holding up the loop of asyncio."""
        try:
            async for _ in self:
                pass
        except _core.Error:
            if self.output is None:
                raise
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
