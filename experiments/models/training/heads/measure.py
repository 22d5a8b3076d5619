"""Held-out acceptance of a head by position of its chain."""

import torch
import torch.nn.functional as F

from .batches import precision, random_roots
from .loss import compared


def chances(batch, draft, words):
    """Of each root [n, m]: the chance that draft k is accepted given the ones before, and by how much the roots whose
    draft k is accepted count further: for greedy outputs both are 0 or 1; for sampled ones sum(min(p, q)), and
    min(1, q / p) of the token that was drawn from p, whose mean is the same."""
    p_logits, q_logits = F.linear(batch.law(draft.roots, draft.k), batch.target.head), draft.logits()
    log_p, log_q, accept, best, agree = compared(p_logits, q_logits, words.ids, words.slot)
    token = words.slot_of(batch.token(draft.roots, draft.k))
    picked = [law.gather(-1, token.clamp_min(0)[..., None])[..., 0] for law in (log_q, log_p)]
    further = torch.exp(picked[0] - picked[1]).clamp_max(1.0) * (token >= 0)
    hit = agree * (token == best)  # a row's own token: greedy in bf16 may break a tie in another way
    greedy = batch.greedy[:, None]
    return torch.where(greedy, hit, accept), torch.where(greedy, hit, further)


@torch.no_grad()
def acceptance(head, rows, depth, roots=32, size=64, most=None):
    """{"greedy", "sampled": {"positions": [depth], "tau"}}: acceptance at each position given the ones before it, and
    the mean number of tokens of a round with a chain of `depth` drafts, over random places of held-out outputs."""
    head.eval()
    generator = torch.Generator(rows.device).manual_seed(9)
    found = torch.zeros(2, 2, depth, dtype=torch.float64)  # greedy or not; accepted, tried
    order = torch.linspace(0, len(rows) - 1, min(len(rows), most or len(rows))).long().to(rows.device)
    for pick in order.split(size):
        batch = rows.batch(pick)
        places = random_roots(len(pick), roots, rows.new - 1, generator, rows.device)
        with precision(rows.device):
            drafts, _ = head(batch.read(head.taps), places, depth)
            alive = torch.ones(places.shape, device=rows.device)
            inside = batch.holds(places, depth).double()  # only whole chains count
            for j, draft in enumerate(drafts):
                chance, further = chances(batch, draft, head.words)
                for kind in (0, 1):
                    count = inside * alive * (batch.greedy == (kind == 0))[:, None]
                    found[kind, 0, j] += (count * chance).sum().cpu()
                    found[kind, 1, j] += count.sum().cpu()
                alive = alive * further
    head.train()
    rates = found[:, 0] / found[:, 1].clamp_min(1e-9)
    chains = 1 + rates.cumprod(-1).sum(-1)
    return {name: {"positions": rates[i].tolist(), "tau": chains[i].item()} for i, name in enumerate(("greedy", "sampled"))}


def line(measured):
    return "; ".join(f"{'T=0' if name == 'greedy' else 'T=1'} " + " ".join(f"{p:.3f}" for p in part["positions"]) +
                     f" tau {part['tau']:.2f}" for name, part in measured.items())
