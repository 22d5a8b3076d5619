"""What a drafter in Python costs a step: `python -m foretoken.bench_component [--steps N] [--device cpu]`.

A trivial vectorised drafter guesses that the last token comes again: in Python (one call, NumPy), and in C++. The time
of drafting is the engine's own (phases of a step), the median over steps of a full batch, in microseconds; what a
Python drafter costs is the difference.
"""

import argparse
import statistics

import numpy as np

from . import _components, _core, _engine

BATCHES = (1, 64)


class _Repeat:
    """the last token again, in Python"""

    def draft(self, batch):
        return np.repeat(batch.last[:, None], int(batch.chain.max()), axis=1)


class _Watch:
    """length 4 always; keeps the seconds of each step"""

    seen = []

    def budgets(self, batch):
        return np.full(len(batch), 4)

    def observe(self, step):
        _Watch.seen.append((len(step), step.seconds["draft"]))


def measure(drafter, batch, steps, device, target):
    """The median microseconds of drafting in a step of a full batch."""
    _Watch.seen.clear()
    with _engine.Engine(target=target, drafter=drafter, policy="bench_watch",
                        engine={"batch": batch, "device": device}) as engine:
        engine.generate([[1, 2, 3 + i] for i in range(batch)], max_new_tokens=steps, ignore_eos=True)
    full = [seconds for sequences, seconds in _Watch.seen if sequences == batch]
    if not full:
        raise SystemExit("no step had a full batch; give more --steps")
    return 1e6 * statistics.median(full[len(full) // 5:])


def main(arguments=None):
    options = argparse.ArgumentParser(prog="python -m foretoken.bench_component", description=__doc__)
    options.add_argument("--steps", type=int, default=200, help="tokens of each output (default: 200)")
    options.add_argument("--device", default="auto", help="auto, cpu or cuda")
    options.add_argument("--target", default="experiments/models/draft", help="a model (default: the small demo model)")
    given = options.parse_args(arguments)
    _components.register_drafter("bench_repeat", _Repeat)
    _components.register_policy("bench_watch", _Watch, depth=4)
    _core.register_bench_drafter("bench_repeat_compiled")
    found = {}
    for batch in BATCHES:
        python = measure("bench_repeat", batch, given.steps, given.device, given.target)
        compiled = measure("bench_repeat_compiled", batch, given.steps, given.device, given.target)
        found[batch] = (python, compiled)
        print(f"batch {batch}: drafting takes {python:.0f} us a step in Python, {compiled:.0f} us in C++")
    return found


if __name__ == "__main__":
    main()
