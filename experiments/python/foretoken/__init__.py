"""Speculative decoding, measured, from Python: engines, drafters and length policies of your own, sweeps, results.

    import foretoken
    engine = foretoken.Engine(target="experiments/models/target", draft="experiments/models/draft", length=4)
    for output in engine.generate(["Once upon a time", "The sun"], max_new_tokens=32):
        print(output.text, output.tau)

experiments/python/README.md of the repository explains it all.
"""

from . import _core
from ._check import CheckReport, check
from ._components import drafter, option, policy, register_drafter, register_policy
from ._core import DraftBatch, Error, OutcomeBatch, PolicyBatch, StepBatch
from ._engine import Engine
from ._stream import Output, Stream
from ._sweep import Sweep, SweepOutcome, results

__version__ = _core.version

__all__ = ["CheckReport", "DraftBatch", "Engine", "Error", "OutcomeBatch", "Output", "PolicyBatch", "StepBatch", "Stream",
           "Sweep", "SweepOutcome", "check", "components", "drafter", "option", "policy", "register_drafter",
           "register_policy", "results"]


def components() -> dict:
    """The names of all "drafters", "policies" and "verifiers", those registered from Python among them."""
    return _core.components()
