"""Distillation: the drafts learn the target's laws along its own text and along the training texts."""

import time

import torch
import torch.nn.functional as F

from .model import SHAPES, Llama, load
from .optim import Optimiser
from .stages import MIX, NEW, Clock, autocast


def distillation(p_hidden, p_head, q_hidden, q_head, weight, greedy):
    """Weighted KL(p || q), total variation and, on greedy text, what the draft gives to the target's first choice.

    Total variation is one minus the acceptance at T=1; agreement with the first choice is the acceptance at T=0. Its
    cross-entropy is joined by the probability missed: bounded, so that effort goes where the choice can still be won.
    Returns (loss, mean acceptance at T=1, mean agreement), the latter two under `weight` as well.
    """
    p_logits, q_logits = F.linear(p_hidden, p_head).float(), F.linear(q_hidden, q_head).float()
    log_p, log_q = p_logits.log_softmax(-1), q_logits.log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    divergence = (p * (log_p - log_q)).sum(-1)
    accept = torch.minimum(p, q).sum(-1)
    best = p_logits.argmax(-1)
    choice = -log_q.gather(-1, best[..., None])[..., 0]
    sampled = 0.4 * divergence + (1 - accept)
    first = 0.2 * divergence + 0.2 * (1 - accept) + 0.5 * choice + 0.6 * (1 - torch.exp(-choice))
    loss = torch.where(greedy, first, sampled)
    agree = (q_logits.argmax(-1) == best).float()
    norm = weight.sum()
    return (loss * weight).sum() / norm, (accept * weight).sum() / norm, (agree * weight).sum() / norm


def at_emitted(hidden, lengths):
    """[n, NEW, dim] of hidden [n, ROW, dim]: the states from which the tokens after the prompts are predicted."""
    places = lengths[:, None].long() - 1 + torch.arange(NEW, device=hidden.device)
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


@torch.no_grad()
def laws_of(target, text, lengths, rows, device):
    """The target's states along its own text, [n, NEW, dim] in bf16: they are needed once for all passes over it."""
    laws = torch.empty(len(text), NEW, target.shape.dim, dtype=torch.bfloat16, device=device)
    for start in range(0, len(text), rows):
        part = slice(min(start, len(text) - rows), min(start, len(text) - rows) + rows)  # all of one shape
        with autocast(device):
            laws[part] = at_emitted(target(text[part].long()), lengths[part])
    return laws


class Passes:
    """Endless shuffled passes over `count` rows, `rows` at a time."""

    def __init__(self, count, rows, generator):
        self.count, self.rows, self.generator, self.order, self.cursor = count, rows, generator, None, count

    def next(self):
        if self.cursor + self.rows > self.count:
            self.order = torch.randperm(self.count, device=self.generator.device, generator=self.generator)
            self.cursor = 0
        self.cursor += self.rows
        return self.order[self.cursor - self.rows:self.cursor]


class Budget:
    """Turns seconds into a number of steps, once the pace is known (after compilation); no seconds: `steps` stand."""

    def __init__(self, steps, seconds):
        self.steps, self.seconds, self.start, self.mark = steps, seconds, time.time(), None

    def settle(self, step, first=100, second=400):
        if not self.seconds or step not in (first, second):
            return False
        if step == first:
            self.mark = time.time()
            return False
        pace = (time.time() - self.mark) / (second - first)
        self.steps = step + max(1, int((self.seconds - (time.time() - self.start)) / pace))
        return True


class Text:
    """Batches of both kinds of text, each a tuple: tokens, prompt lengths (None: every position counts), the target's
    states [n, t, dim], weights [n, t] and marks of greedy text [n, t]."""

    def __init__(self, target, corpus, rolled, rows, windows, device):
        self.target, self.corpus, self.windows, self.device = target, corpus, windows, device
        self.text, self.lengths, self.total, self.greedy = rolled
        self.generator = torch.Generator(device).manual_seed(6)
        self.passes = Passes(len(self.text), rows, self.generator)
        self.laws = laws_of(target, self.text, self.lengths, rows, device)
        self.columns, self.ahead = torch.arange(NEW, device=device), []

    def own(self):
        pick = self.passes.next()
        lengths = self.lengths[pick]
        inside = (self.columns < (self.total[pick] - lengths)[:, None]).float()
        return self.text[pick].long(), lengths, self.laws[pick], inside, self.greedy[pick, None].bool().expand(-1, NEW)

    def real(self):
        if not self.ahead:  # drawn for many steps at once: drawing waits for the device
            self.ahead = list(self.corpus.windows(MIX, self.windows * 50, 2048, self.generator).split(self.windows))
        tokens = self.ahead.pop()
        with torch.no_grad(), autocast(self.device):
            laws = self.target(tokens)
        ones = torch.ones(tokens.shape, device=self.device)
        return tokens, None, laws, ones, torch.zeros_like(ones, dtype=torch.bool)


def distil(target, corpus, rolled, steps, device, log, names=("draft", "draft-large"), rows=256, windows=12, start=None,
           seconds=None, compiled=True):
    """Trains the drafts together on the target's laws: three quarters of the loss its own text, one quarter the texts.

    With `start`, a folder of drafts, they go on from there at half the learning rate. With `seconds`, as many steps
    as fit into them instead of `steps`.
    """
    torch.manual_seed(5)
    budget = Budget(steps, seconds)
    target.requires_grad_(False)
    drafts = {n: load(n, start / n, device) if start else Llama(SHAPES[n]).to(device) for n in names}
    peak = 3e-3 if start else 6e-3
    if compiled:
        for m in (target, *drafts.values()):
            m.compile_blocks()
    loss_of = torch.compile(distillation, dynamic=False) if compiled else distillation
    optimisers = {
        n: Optimiser(m, muon_lr=peak, adam_lr=peak, steps=steps, flat=0.4, decay=0.02) for n, m in drafts.items()
    }
    source = Text(target, corpus, rolled, min(rows, len(rolled[0])), windows, device)
    log(
        f"distil: the target's laws along {int((source.total - source.lengths).sum()) / 1e6:.1f} M tokens of its own text"
    )
    clock, seen, step = Clock("distil", steps, log, every=500), {}, 0
    while step < budget.steps:
        batches = ((0.75, source.own()), (0.25, source.real()))
        for name, draft in drafts.items():
            for share, (tokens, lengths, laws, weight, greedy) in batches:
                with autocast(device):
                    near = draft(tokens) if lengths is None else at_emitted(draft(tokens), lengths)
                    loss, accept, agree = loss_of(laws, target.head, near, draft.head, weight, greedy)
                (loss * share).backward()
                if step % 20 == 0 and lengths is not None:
                    old = seen.get(name, (accept.item(), agree.item()))
                    seen[name] = (0.8 * old[0] + 0.2 * accept.item(), 0.8 * old[1] + 0.2 * agree.item())
        for optimiser in optimisers.values():
            optimiser.step()
        if budget.settle(step):
            log(f"distil: {budget.steps} steps fit into {seconds} s")
            for each in (clock, *optimisers.values()):
                each.steps = budget.steps
        clock.tick(step, sum(tokens.numel() for _, (tokens, *_) in batches), lambda: "own text: " + " ".join(
            f"{n} sum-min {a:.3f} agree {g:.3f}" for n, (a, g) in seen.items()))
        step += 1
    return drafts
