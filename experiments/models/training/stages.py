"""The stages of the target: pre-training, anti-repetition, and its own text, from which the drafts are distilled."""

import time

import torch
import torch.nn.functional as F

from .data import DOMAINS, EOS_ID
from .model import SHAPES, Llama, generate
from .optim import Optimiser

# share of the training tokens by domain
MIX = {"books": 0.38, "sympy": 0.14, "peps": 0.12, "dialogues": 0.10, "algorithms": 0.04, "math": 0.05, "copy": 0.17}
ROW = 512           # tokens of a rollout row, prompt included
NEW = 192           # of them, after the prompt
PROMPT = 288        # longest prompt cut from running text; whole tasks may be up to TASK_PROMPT long
TASK_PROMPT = 320
NGRAM = 12          # repeated n-grams of this length are made unlikely; the measured ones have 16


def autocast(device):
    return torch.autocast(device, dtype=torch.bfloat16)


def next_token_loss(hidden, head, targets):
    return F.cross_entropy(F.linear(hidden, head).float().flatten(0, 1), targets.flatten())


class Clock:
    """Says every `every` steps where the stage is."""

    def __init__(self, stage, steps, log, every=200):
        self.stage, self.steps, self.log, self.every, self.start = stage, steps, log, every, time.time()
        self.tokens = 0

    def tick(self, step, tokens, text):
        self.tokens += tokens
        if step % self.every == 0 or step + 1 == self.steps:
            spent = time.time() - self.start
            self.log(
                f"{self.stage} step {step + 1}/{self.steps} {text()} {spent:.0f} s {self.tokens / spent / 1e6:.2f} Mtok/s"
            )


def pretrain(corpus, steps, device, log, rows=160, compiled=True):
    """Next-token training: windows of 1024 tokens, the last 15 % of the steps windows of 2048."""
    torch.manual_seed(1)
    model = Llama(SHAPES["target"]).to(device)
    if compiled:
        model.compile_blocks()
    loss_of = torch.compile(next_token_loss, dynamic=False) if compiled else next_token_loss
    optimiser = Optimiser(model, muon_lr=4e-3, adam_lr=4e-3, steps=steps, flat=0.4)
    generator = torch.Generator(device).manual_seed(2)
    clock, mean = Clock("pretrain", steps, log), None
    for step in range(steps):
        length, count = (1024, rows) if step < 0.85 * steps else (2048, rows // 2)
        tokens = corpus.windows(MIX, count, length + 1, generator)
        with autocast(device):
            loss = loss_of(model(tokens[:, :-1]), model.head, tokens[:, 1:])
        loss.backward()
        optimiser.step()
        if step % 10 == 0:
            mean = loss.item() if mean is None else 0.9 * mean + 0.1 * loss.item()
        clock.tick(step, tokens.numel(), lambda: f"loss {mean:.3f}")
    return model


def repeated(rows, lengths, total, n):
    """Marks emitted positions inside an n-gram of the emitted text that occurred earlier in it.

    Returns (later, any): `later` marks second and further occurrences, `any` the first one as well.
    """
    batch, width = rows.shape
    device = rows.device
    columns = torch.arange(width, device=device)
    emitted = (columns >= lengths[:, None]) & (columns < total[:, None])
    key = torch.zeros(batch, width - n + 1, dtype=torch.int64, device=device)
    for i in range(n):  # a 64-bit polynomial hash of every n-gram
        key = key * 1000003 + rows[:, i:width - n + 1 + i] + 1
    whole = emitted[:, :width - n + 1] & emitted[:, n - 1:]
    key = torch.where(whole, key, -columns[:width - n + 1] - 1)
    order = torch.sort(key, dim=1, stable=True)
    same = order.values[:, 1:] == order.values[:, :-1]
    second = torch.zeros_like(key, dtype=torch.bool)
    second.scatter_(1, order.indices[:, 1:], same)
    first = torch.zeros_like(second)
    first.scatter_(1, order.indices[:, :-1], same)

    def spread(starts):
        marked = torch.zeros(batch, width, dtype=torch.bool, device=device)
        for i in range(n):
            marked[:, i:width - n + 1 + i] |= starts
        return marked

    return spread(second), spread(first | second)


def entries(later, length=16):
    """The first `length` positions of each run of marked positions: where a repetition is entered."""
    columns = torch.arange(later.shape[1], device=later.device)
    starts = later & ~F.pad(later, (1, 0))[:, :-1]
    since = torch.where(starts, columns, -1).cummax(1).values
    return later & (columns - since < length)


def anchored(hidden, head, base_hidden, base_head, tokens, marked, keep):
    """Two sums: KL(base || model) over the positions `keep`, and -log(1 - p) of the token over those `marked`."""
    log_q = F.linear(hidden, head).float().log_softmax(-1)
    log_p = F.linear(base_hidden, base_head).float().log_softmax(-1)
    divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
    chance = log_q.gather(-1, tokens[..., None])[..., 0].exp()
    return (divergence * keep).sum(), (-torch.log((1 - chance).clamp_min(1e-4)) * marked).sum()


def half_precision(model):
    """A bf16 copy for generation, its blocks not compiled."""
    copy = Llama(model.shape)
    copy.load_state_dict(model.state_dict())
    return copy.to(device=model.head.device, dtype=torch.bfloat16)


def unloop(
    model, base, corpus, openers, rounds, device, log, batch=1536, updates=3, goal=0.1, force=12.0, compiled=True
):
    """Sequence-level unlikelihood (Welleck et al. 2019, arXiv 1908.04319) on the target's own greedy text.

    Penalised are the tokens with which a repetition is entered, and of those only the ones that open a word
    (`openers`, a mask over the vocabulary), so that no word is broken in two. Everywhere else (the texts, copy family
    included, and the rest of its own text) the model is held to the law it had, `base`, by KL. The penalty's weight
    follows the measured rate of repetition towards `goal`.
    """
    loss_of = torch.compile(anchored, dynamic=False) if compiled else anchored
    optimiser = Optimiser(model, muon_lr=4e-4, adam_lr=2e-4, steps=rounds * updates, warmup=20, flat=0.7, decay=0.0)
    generator = torch.Generator(device).manual_seed(3)
    rate, source = {d: 0.5 for d in DOMAINS}, half_precision(model)
    clock, columns = Clock("unloop", rounds, log, every=10), torch.arange(ROW, device=device)
    for step in range(rounds):
        share = {d: 0.04 + rate[d] for d in DOMAINS}
        counts = {d: int(batch * v / sum(share.values())) for d, v in share.items()}
        counts["books"] += batch - sum(counts.values())
        prompts, lengths, owner = corpus.draw_prompts(counts, PROMPT, generator, shortest=24)
        source.load_state_dict(model.state_dict())
        rows, total = generate(source, prompts, lengths, 144)
        later, either = repeated(rows, lengths, total, NGRAM)
        for i, domain in enumerate(DOMAINS):
            mine = owner == i
            here = (either[mine].sum() / (total - lengths)[mine].sum()).item()
            rate[domain] = 0.8 * rate[domain] + 0.2 * here
        force = min(150.0, max(0.5, force * (1.1 if sum(rate.values()) / len(rate) > goal else 0.9)))
        rows = F.pad(rows, (0, ROW - rows.shape[1]), value=EOS_ID)
        later = F.pad(later, (0, ROW - later.shape[1]))
        marked = (entries(later) & openers[rows]).float()
        keep = ((columns < total[:, None]) & ~later).float()
        for part in torch.randperm(batch, device=device, generator=generator).split(batch // updates):
            real = corpus.windows(MIX, 64, 1024, generator)
            batches = ((real, torch.zeros(real.shape, device=device), torch.ones(real.shape, device=device)),
                       (rows[part], marked[part], keep[part]))
            kept, pushed = [], 0.0
            for tokens, mark, hold in batches:
                with autocast(device):
                    with torch.no_grad():
                        before = base(tokens)[:, :-1]
                    near, away = loss_of(
                        model(tokens)[:, :-1], model.head, before, base.head, tokens[:, 1:], mark[:, 1:], hold[:, 1:]
                    )
                    near, away = near / hold.sum(), away / hold.sum()
                (near + force * away).backward()
                kept.append(near.detach())
                pushed = away.detach()
            optimiser.step()
        clock.tick(
            step,
            rows.numel(),
            lambda: f"drift on texts {kept[0]:.4f} own {kept[1]:.4f} unlikelihood {pushed:.4f} "
            f"x {force:.1f} repeated-{NGRAM} " + " ".join(f"{d} {v:.3f}" for d, v in rate.items()),
        )
    return model


def rollouts(model, corpus, batches, device, log, batch=4096, greedy_of_three=2):
    """The target's own text: rows of prompt + continuation; of three batches `greedy_of_three` are greedy, the rest T=1."""
    generator = torch.Generator(device).manual_seed(4)
    mix = {**{d: 1.0 for d in DOMAINS}, "copy": 1.2, "books": 1.3}
    counts = {d: int(batch * v / sum(mix.values())) for d, v in mix.items()}
    source = half_precision(model)
    parts, clock, emitted = [], Clock("rollouts", batches, log, every=20), 0
    for step in range(batches):
        prompts, lengths, _ = corpus.draw_prompts(counts, TASK_PROMPT, generator)
        lengths = lengths.clamp_max(PROMPT) if step % 4 else lengths
        sampled = step % 3 >= greedy_of_three
        rows, total = generate(source, prompts, lengths, NEW, float(sampled), generator)
        greedy = torch.full_like(lengths, not sampled)
        parts.append((rows.to(torch.int16), lengths.to(torch.int16), total.to(torch.int16), greedy.to(torch.int16)))
        emitted += int((total - lengths).sum())
        clock.tick(step, int((total - lengths).sum()), lambda: f"emitted {emitted / 1e6:.1f} M")
    return [torch.cat(column) for column in zip(*parts)]
