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

    `output` is there once it has ended; a request that fails raises foretoken.Error then. Threads and tasks may share a
    stream: each piece comes to one of them.
    """

    def __init__(self, engine, inner):
        self._engine = engine  # lives as long as what it serves
        self._compiled = inner
        self._text, self._tokens = [], []
        self._reading = threading.Lock()
        self._waiters = []  # loops of asyncio, each with an event
        self.output = None

    @property
    def _inner(self):
        self._engine._expect_process()
        return self._compiled

    def _take(self):
        """The next piece of text; "" where there is none yet, as another reader may have taken it; None: it has ended."""
        inner = self._inner  # first: in a forked process the lock may be held for ever
        with self._reading:
            if self.output is not None:
                return None
            if not inner.ready(0):
                return ""
            piece = inner.next()
            if piece is not None:
                self._tokens += piece.tokens
                self._text.append(piece.text)
                return piece.text
            finish, failure, logprobs = inner.ended()
            rounds, drafted, tested, accepted = inner.counts
            self.output = Output("".join(self._text), self._tokens, finish, inner.prompt_tokens, rounds, drafted,
                                 tested, accepted, failure, logprobs.tolist())
            return None

    def _wait(self):
        while not self._inner.ready(POLL):
            pass

    async def _arrival(self):
        """Waits for what _take() can take."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._reading:
            self._waiters.append(waiter)
            self._inner.listen(self._wake)
        try:
            await waiter[1].wait()
        finally:
            with self._reading:
                self._waiters.remove(waiter)
                if not self._waiters:
                    self._inner.listen(None)

    def _wake(self):
        """On any thread; takes no lock, since _arrival() may hold it."""
        for loop, event in tuple(self._waiters):
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                pass  # that loop is closed

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
        try:
            while self.output is None:
                if text := self._take():
                    return text
                if self.output is None and not self._inner.ready(0):
                    await self._arrival()
        except asyncio.CancelledError:
            self.close()
            raise
        self._check()
        raise StopAsyncIteration

    def _check(self):
        if self.output.failure:
            raise _core.Error(self.output.failure)

    def close(self):
        """Ends the request before the engine's next step."""
        self._compiled.cancel()

    async def aclose(self):
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
