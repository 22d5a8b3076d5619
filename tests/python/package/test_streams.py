"""Outputs as they come: streams, asyncio, cancelling, and who may read."""

import asyncio
import threading
import time

import pytest

import foretoken

PROMPTS = ["Once upon a time", "The sun was", "He said that"]


def test_many_more_prompts_than_may_wait_in_asyncio(engine):
    async def main():
        ticks, done = 0, False

        async def tick():
            nonlocal ticks
            while not done:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.ensure_future(tick())
        # The second call has no stream of its own to wait for where the first has filled the queue.
        many, others = await asyncio.gather(engine.agenerate(["a"] * 1100, first=0, max_new_tokens=1),
                                            engine.agenerate(["b"] * 600, samples=2, first=0, max_new_tokens=1,
                                                             temperature=1.0))
        done = True
        await ticking
        return many, others, ticks

    many, others, ticks = asyncio.run(main())
    assert len(many) == 1100 and all(len(o.tokens) == 1 for o in many) and ticks > 20
    assert len(others) == 600 and all(len(samples) == 2 for samples in others)
    expected = engine.generate(["b"] * 3, samples=2, first=0, max_new_tokens=1, temperature=1.0)
    assert [[o.tokens for o in samples] for samples in others[:3]] == [[o.tokens for o in s] for s in expected]


def test_agenerate_that_is_cancelled_or_fails_leaves_nothing(engine):
    async def main():
        task = asyncio.ensure_future(engine.agenerate(PROMPTS, max_new_tokens=400, ignore_eos=True))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(foretoken.Error, match="outside the vocabulary"):
            await engine.agenerate(["a", [10**9]], max_new_tokens=400, ignore_eos=True)
        return await engine.agenerate("a", max_new_tokens=2)

    begun = time.monotonic()
    assert len(asyncio.run(main()).tokens) == 2 and time.monotonic() - begun < 20


def test_a_stream_is_the_output_in_pieces(engine):
    expected = engine.generate(PROMPTS[0], max_new_tokens=24)
    stream = engine.stream(PROMPTS[0], max_new_tokens=24)
    assert stream.output is None
    pieces = list(stream)
    assert len(pieces) > 3 and "".join(pieces) == expected.text
    assert stream.output == expected and list(stream) == []


def test_what_is_left_is_cancelled(engine):
    with engine.stream(PROMPTS[0], max_new_tokens=400, ignore_eos=True) as stream:
        next(stream)
    left = stream.result()
    assert left.finish == "cancelled" and 0 < len(left.tokens) < 400


def test_asyncio(engine):
    expected = engine.generate(PROMPTS, max_new_tokens=12)

    async def text(prompt):
        return "".join([piece async for piece in engine.stream(prompt, max_new_tokens=12)])

    async def main():
        texts = await asyncio.gather(*map(text, PROMPTS))
        outputs = await engine.agenerate(PROMPTS, max_new_tokens=12)
        stream = engine.stream(PROMPTS[0], max_new_tokens=400, ignore_eos=True)
        task = asyncio.ensure_future(anext(stream))
        await task
        waiting = asyncio.ensure_future(asyncio.gather(*[anext(stream) for _ in range(1)]))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        stream.close()
        return texts, outputs, stream.result()

    texts, outputs, left = asyncio.run(main())
    assert texts == [o.text for o in outputs] == [o.text for o in expected]
    assert left.finish == "cancelled"


class Watched:
    """The compiled stream, which one thread at a time may read, with slow reads."""

    def __init__(self, inner):
        self.inner, self.readers, self.most = inner, 0, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def next(self):
        self.readers += 1
        self.most = max(self.most, self.readers)
        time.sleep(0.002)
        piece = self.inner.next()
        self.readers -= 1
        return piece


def test_threads_may_share_a_stream(engine):
    expected = engine.generate(PROMPTS[0], max_new_tokens=120, ignore_eos=True)
    stream = engine.stream(PROMPTS[0], max_new_tokens=120, ignore_eos=True)
    stream._compiled = watched = Watched(stream._compiled)
    pieces = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda to: to.extend(stream), args=(p,)) for p in pieces]
    for thread in threads:
        thread.start()
    assert stream.result() == expected
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert watched.most == 1 and sum(map(len, pieces)) > 0


def test_tasks_may_share_a_stream(engine):
    expected = engine.generate(PROMPTS[0], max_new_tokens=120, ignore_eos=True)

    async def read(stream):
        return [piece async for piece in stream]

    async def main():
        stream = engine.stream(PROMPTS[0], max_new_tokens=120, ignore_eos=True)
        pieces = await asyncio.wait_for(asyncio.gather(*[read(stream) for _ in range(6)]), 30)
        return stream.output, pieces

    output, pieces = asyncio.run(main())
    assert output == expected and sum(map(len, pieces)) > 10
    assert sorted("".join(sum(pieces, []))) == sorted(expected.text)
