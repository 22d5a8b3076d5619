"""Batches of a target's own outputs, and the target that gives their hidden states and laws.

Places are counted from the prompt: emitted token c of a row is at position `length + c`. A chain that starts at root c
has that token as its root; the target's states are known up to the position before it, and draft k = 1, 2, ... stands
for emitted token c + k.
"""

from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from ..model import load, rotary


def precision(device):
    """bf16 products on a GPU; a CPU has them in fp32, where they are faster."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if str(device).startswith("cuda") else nullcontext()


class Target:
    """The frozen target: its weights as saved, its residual stream in fp32."""

    def __init__(self, folder, device):
        self.model = load(None, folder, device).requires_grad_(False)
        self.shape, self.head, self.folder = self.model.shape, self.model.head, folder
        self.embedding, self.compiled = self.model.model.embed_tokens.weight, None

    def compile_for(self, tokens):
        """The layers for batches of this shape [n, t]; others run as they are."""
        self.model.compile_blocks()
        self.compiled = tuple(tokens)

    @torch.no_grad()
    def states(self, tokens, taps):
        """{k: the residual stream after k layers, [n, t, dim]} for k of `taps`, and the normed last one."""
        inner = self.model.model
        x = inner.embed_tokens(tokens)
        table, found = rotary(self.shape, tokens.shape[1], tokens.device), {}
        with precision(tokens.device):
            for k, layer in enumerate(inner.layers):
                if k in taps:
                    found[k] = x
                x = layer(x, table) if tokens.shape == self.compiled else layer.forward(x, table)
            found[len(inner.layers)] = x
            return found, inner.norm(x)


@dataclass
class Batch:
    tokens: torch.Tensor   # [n, t]
    lengths: torch.Tensor  # [n], of the prompts
    total: torch.Tensor    # [n], with what was emitted
    greedy: torch.Tensor   # [n] bool
    target: Target
    states: dict = field(default_factory=dict)
    normed: torch.Tensor = None

    def read(self, taps):
        self.states, self.normed = self.target.states(self.tokens, taps)
        return self

    def position(self, roots, k=0):
        """[n, roots]: of draft k behind each root."""
        return (self.lengths[:, None] + roots + k).clamp_max(self.tokens.shape[1] - 1)

    def token(self, roots, k=0):
        return self.tokens.gather(1, self.position(roots, k))

    def embedded(self, roots, k=0):
        return self.target.embedding[self.token(roots, k)]

    def at(self, states, positions):
        """[n, m, dim] of [n, t, dim]."""
        return states.gather(1, positions[..., None].expand(-1, -1, states.shape[-1]))

    def law(self, roots, k):
        """The normed states from which the target predicts draft k."""
        return self.at(self.normed, self.position(roots, k - 1))

    def holds(self, roots, k):
        """Whether draft k stands for a token that the target emitted."""
        return (self.lengths[:, None] + roots + k) < self.total[:, None]


@dataclass
class Draft:
    """The predictions of draft k behind `roots` [n, m]. `logits` computes [n, m, vocabulary] when it is called."""
    k: int
    roots: torch.Tensor
    logits: object
    estimate: torch.Tensor = None  # [n, m]: logits of an estimate of its acceptance


class Rows:
    """One split of the stored outputs, on one device."""

    def __init__(self, stored, target, device):
        self.tokens, self.lengths, self.total, self.greedy = (column.to(device) for column in stored)
        self.target, self.device = target, device
        self.new = int((self.total - self.lengths).max())

    def __len__(self):
        return len(self.tokens)

    def batch(self, pick):
        return Batch(self.tokens[pick].long(), self.lengths[pick].long(), self.total[pick].long(),
                     self.greedy[pick].bool(), self.target)

    def shuffled(self, step, rows, seed=1):
        """The rows of one step of endless shuffled passes: a function of the step alone, so that runs can go on."""
        rows = min(rows, len(self))
        steps = len(self) // rows
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step // steps)
        order = torch.randperm(len(self), generator=generator)
        return self.batch(order[step % steps * rows:][:rows].to(self.device))


def random_roots(rows, count, among, generator, device):
    """[rows, count]: different places among the first `among`, in random order; all in order where count is 0."""
    if count == 0:
        return torch.arange(among, device=device).expand(rows, -1)
    return torch.rand(rows, among, generator=generator, device=device).argsort(1)[:, :count]
