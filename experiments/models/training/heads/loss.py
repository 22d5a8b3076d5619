"""How near a draft is to the target: the loss, and the chances of acceptance that it stands for."""

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Words:
    """The tokens that a head predicts: all, or `ids` of them in ascending order. `slot`: the inverse, -1 elsewhere."""

    def __init__(self, vocab, ids=None):
        self.ids, self.slot = ids, None
        if ids is not None:
            self.slot = torch.full((vocab,), -1, dtype=torch.int64, device=ids.device)
            self.slot[ids] = torch.arange(len(ids), device=ids.device)

    def slot_of(self, tokens):
        return tokens if self.ids is None else self.slot[tokens]


def compared(p_logits, q_logits, ids, slot):
    """Of each position: log-laws of both over the head's tokens, sum(min(p, q)), the slot of the target's first choice
    (-1: the head lacks it), whether it is the head's. `ids`, `slot`: of Words."""
    p_logits, q_logits = p_logits.float(), q_logits.float()
    log_p, log_q, best = p_logits.log_softmax(-1), q_logits.log_softmax(-1), p_logits.argmax(-1)
    if ids is not None:
        log_p, best = log_p[..., ids], slot[best]
    accept = torch.minimum(log_p.exp(), log_q.exp()).sum(-1)
    return log_p, log_q, accept, best, (q_logits.argmax(-1) == best).float()


def position_loss(p_logits, q_logits, ids, slot, greedy):
    """Of each position [n, m]: the loss, the chance of acceptance at T=1, agreement with the first choice.

    As `distillation` has it for draft models: KL divergence and total variation, and on greedy outputs cross-entropy
    to the target's first choice and the probability that the head does not give it.
    """
    log_p, log_q, accept, best, agree = compared(p_logits, q_logits, ids, slot)
    divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
    choice = -log_q.gather(-1, best.clamp_min(0)[..., None])[..., 0]
    sampled = 0.4 * divergence + (1 - accept)
    first = 0.2 * divergence + 0.2 * (1 - accept) + (0.5 * choice + 0.6 * (1 - torch.exp(-choice))) * (best >= 0)
    return torch.where(greedy[:, None], first, sampled), accept, agree


def chain_loss(batch, drafts, words, fade, estimate=0.0, loss_of=position_loss):
    """The loss of all positions of the chains. Gives (loss, {k: (mean acceptance at T=1, mean agreement on greedy)}).

    The large tables of probabilities are computed again in the backward pass, not stored; a compiled `loss_of` sees to
    that by itself.
    """
    loss, scale, seen = 0.0, 0.0, {}

    def of_position(hidden, logits):
        return loss_of(F.linear(hidden, batch.target.head), logits(), words.ids, words.slot, batch.greedy)

    for draft in drafts:
        weight = batch.holds(draft.roots, draft.k).float()
        hidden = batch.law(draft.roots, draft.k)
        each, accept, agree = (checkpoint(of_position, hidden, draft.logits, use_reentrant=False)
                               if loss_of is position_loss else of_position(hidden, draft.logits))
        share, count = fade ** (draft.k - 1), weight.sum().clamp_min(1)
        loss, scale = loss + share * (each * weight).sum() / count, scale + share
        if draft.estimate is not None:
            sure = F.binary_cross_entropy_with_logits(draft.estimate.float(), accept.detach(), reduction="none")
            loss = loss + share * estimate * (sure * weight).sum() / count
        first = weight * batch.greedy[:, None]
        seen[draft.k] = ((accept.detach() * (weight - first)).sum() / (weight - first).sum().clamp_min(1),
                         (agree.detach() * first).sum() / first.sum().clamp_min(1))
    return loss / scale, seen
