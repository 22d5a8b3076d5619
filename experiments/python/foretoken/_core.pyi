"""The compiled part of the package foretoken."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

class Error(RuntimeError):
    """What went wrong, where, and what to do about it, in one sentence."""

version: str

commit: str

source_directory: str

class OutputRound:
    """One round: what it emitted, and the text that can be shown with it."""

    @property
    def tokens(self) -> list[int]: ...

    @property
    def text(self) -> str: ...

    @property
    def drafted(self) -> int: ...

    @property
    def accepted(self) -> int: ...

class OutputStream:
    """The output of one request, as it comes."""

    def ready(self, seconds: float) -> bool:
        """
        Whether next() returns at once; waits at most so many seconds for that, without the interpreter's lock.
        """

    def listen(self, heard: Callable[[], object] | None) -> None:
        """Calls `heard()` when ready() may have become true; None: no more."""

    def next(self) -> OutputRound | None: ...

    def cancel(self) -> None: ...

    def ended(self) -> tuple:
        """(finish, failure, logprobs f32 [tokens]); waits for the end."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def counts(self) -> tuple: ...

class Form:
    """How requests of one call are made."""

    @property
    def run(self) -> str: ...

class Session:
    """An engine and the thread that drives it."""

    def __init__(self, document: str, beside: str = '') -> None: ...

    def form(self, changes: str) -> Form:
        """JSON: changes of the run's sampling and workload."""

    def submit(self, form: Form, prompt: str | ArrayLike, number: int, sample: int = 0,
               like: OutputStream | None = None) -> OutputStream | None:
        """An OutputStream; None where as many requests wait as can."""

    def encode(self, arg0: Form, arg1: str, /) -> list[int]: ...

    def decode(self, arg: ArrayLike, /) -> str: ...

    def notices(self) -> list[str]: ...

    def close(self, seconds: float) -> bool: ...

    @property
    def run(self) -> str: ...

    @property
    def promise(self) -> str: ...

    @property
    def learns(self) -> bool: ...

    @property
    def vocab(self) -> int: ...

class DraftBatch:
    """The requests of one call of draft(), and the trees that grow for them."""

    def __len__(self) -> int: ...

    @property
    def ids(self) -> NDArray[np.uint64]:
        """
        u64 [requests]: names of the sequences, till forget() tells of their end.
        """

    @property
    def last(self) -> NDArray[np.int32]:
        """i32 [requests]: the last token of each, the root of its tree."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """i32 [requests]: tokens of prompt and output."""

    @property
    def nodes(self) -> NDArray[np.int32]:
        """i32 [requests]: the most nodes of each tree, the root among them."""

    @property
    def depth(self) -> NDArray[np.int32]:
        """i32 [requests]: the most levels below the root."""

    @property
    def chain(self) -> NDArray[np.int32]:
        """i32 [requests]: the most tokens of a chain."""

    @property
    def temperature(self) -> NDArray[np.float32]:
        """f32 [requests]: of each sequence's sampling; 0: greedy."""

    def tokens(self, request: int) -> NDArray[np.int32]:
        """
        i32 [length], read-only: prompt and output of one sequence. May be kept.
        """

    def all_tokens(self) -> list[NDArray[np.int32]]:
        """tokens() of every request."""

    def tails(self, count: int) -> NDArray[np.int32]:
        """i32 [requests, count]: the last tokens of each; -1 before the first."""

    def states(self, request: int) -> int:
        """How many positions of a sequence have hidden states."""

    def hidden(self, request: int, begin: int = 0) -> NDArray[np.float32]:
        """
        f32 [states - begin, taps * width]: the target's hidden states at positions from `begin` on.
        """

    def guess(self, tokens: ArrayLike) -> None:
        """
        Appends guesses to the first path of each tree: integers [requests, length] or [requests], each row up to
        its first -1 and as far as its budget goes.
        """

    def guess_below(self, requests: ArrayLike, parents: ArrayLike, tokens: ArrayLike) -> NDArray[np.int32]:
        """
        Guesses one token below each given node: integers [places]. i32 [places]: the nodes; -1: no budget left.
        """

    def draw(self, logits: ArrayLike, temperature: float | None = None) -> NDArray[np.int32]:
        """
        Draws a token below the first path of each tree: float32 [requests, vocab]; an array that owns
        its memory and has one name is read-only till the step ends, another is copied. Warped as the sequence is,
        or by `temperature`. i32 [requests]; -1: no budget left.
        """

    def draw_below(self, requests: ArrayLike, parents: ArrayLike, logits: ArrayLike, children: int = 1,
                   how: str = 'without_replacement', temperature: float | None = None) -> tuple[NDArray[np.int32],
                   NDArray[np.int32]]:
        """
        Draws siblings below each given node: logits float32 [places, vocab]. (nodes, tokens), both i32
        [places, children]; -1: no budget left.
        """

class OutcomeBatch:
    """What became of the trees of one step, behind one another."""

    @property
    def ids(self) -> NDArray[np.uint64]:
        """u64 [sequences]"""

    def __len__(self) -> int: ...

    @property
    def offsets(self) -> NDArray[np.int32]:
        """i32 [sequences + 1]: nodes of tree i are offsets[i] to offsets[i + 1]."""

    @property
    def tokens(self) -> NDArray[np.int32]:
        """i32 [nodes]: the root, then the draft; -1: absent."""

    @property
    def parents(self) -> NDArray[np.int32]:
        """i32 [nodes]: within the tree; -1: of the root."""

    @property
    def accepted(self) -> NDArray[np.int32]:
        """i32 [sequences]: accepted nodes."""

    @property
    def emitted(self) -> NDArray[np.int32]:
        """i32 [tokens]: the accepted tokens and the target's own, of all."""

    @property
    def emitted_offsets(self) -> NDArray[np.int32]:
        """i32 [sequences + 1]"""

    @property
    def ranks(self) -> NDArray[np.int32]:
        """
        i32 [nodes, ranks]: the target's most probable tokens after each node, as many as 'ranks' asked for.
        """

class PolicyBatch:
    """The sequences of one call of budgets(), by what is past alone."""

    @property
    def ids(self) -> NDArray[np.uint64]:
        """u64 [sequences]"""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> NDArray[np.int32]:
        """i32 [sequences]: tokens of prompt and output."""

    @property
    def rounds(self) -> NDArray[np.int32]:
        """i32 [sequences]: verified so far."""

    @property
    def drafted(self) -> NDArray[np.int32]:
        """i32 [sequences]: nodes in the last round."""

    @property
    def accepted(self) -> NDArray[np.int32]:
        """i32 [sequences]: of these."""

    @property
    def room_nodes(self) -> NDArray[np.int32]:
        """i32 [sequences]: the most nodes that this step allows."""

    @property
    def room_depth(self) -> NDArray[np.int32]:
        """i32 [sequences]: the most levels."""

    @property
    def acceptance(self) -> NDArray[np.float64]:
        """
        f64 [sequences]: accepted over tested levels of all rounds; -1: none was tested.
        """

class StepBatch:
    """One step: its sequences, its rows and its times."""

    @property
    def ids(self) -> NDArray[np.uint64]:
        """u64 [sequences]"""

    def __len__(self) -> int: ...

    @property
    def drafted(self) -> NDArray[np.int32]:
        """i32 [sequences]"""

    @property
    def tested(self) -> NDArray[np.int32]:
        """i32 [sequences]: levels."""

    @property
    def accepted(self) -> NDArray[np.int32]:
        """i32 [sequences]"""

    @property
    def emitted(self) -> NDArray[np.int32]:
        """i32 [sequences]: tokens."""

    @property
    def rows(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def running(self) -> int: ...

    @property
    def recorded(self) -> int: ...

    @property
    def seconds(self) -> dict[str, float]:
        """Of this step, by phase: draft, target, verify, total."""

def wait_for_endings(seconds: float) -> bool: ...

def register_bench_drafter(name: str) -> None: ...

def register(kind: str, name: str, summary: str, source: str, options: str, examples: str, file: str, hash: str,
             make: Callable[[str, str], object], traits: Callable[[str], str]) -> None: ...

def sweep(document: str, file: str, set: Sequence[str], results: str, quiet: bool, keep_going: bool,
          share_baselines: bool, rehearse: bool) -> dict: ...

def results(files: Sequence[str], where: Sequence[str]) -> str: ...

def check(drafter: str, policy: str, verifier: str, laws: Sequence[str], seconds: float, threads: int) -> str: ...

def read_document(file: str) -> str: ...

def components() -> dict: ...
