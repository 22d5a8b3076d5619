"""The attention of heads: rows that read a text in causal order, and rows of chains that read it up to their root."""

import torch
import torch.nn.functional as F
from torch import nn

from ..model import Mlp, Norm, Shape, rotary, rotate


def layer_shape(s, target, ffn=None):
    """Of a head's decoder layers: the widths and epsilon of its target, the rest from the settings `s`."""
    return Shape(dim=target.dim, layers=1, heads=s["heads"], kv_heads=s["kv_heads"], head_dim=s["head_dim"],
                 ffn=ffn or s["ffn"], context=target.context, theta=s["theta"], eps=target.eps, vocab=target.vocab,
                 eos=target.eos)


class Projections(nn.Module):
    """Queries, keys and values of a head's layer, whose input may be wider than its stream."""

    def __init__(self, shape, inputs=None, bias=False, head_norms=False):
        super().__init__()
        self.shape, inputs = shape, inputs or shape.dim
        self.q_proj = nn.Linear(inputs, shape.heads * shape.head_dim, bias=bias)
        self.k_proj = nn.Linear(inputs, shape.kv_heads * shape.head_dim, bias=bias)
        self.v_proj = nn.Linear(inputs, shape.kv_heads * shape.head_dim, bias=bias)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.dim, bias=False)
        if head_norms:
            per_head = Shape(**{**shape.__dict__, "dim": shape.head_dim})
            self.q_norm, self.k_norm = Norm(per_head), Norm(per_head)
        self.head_norms = head_norms

    def queries(self, x, table):
        """[n, m, heads, head_dim], rotated; table [2, n or 1, m, head_dim / 2]."""
        q = self.q_proj(x).unflatten(-1, (-1, self.shape.head_dim))
        return rotate(self.q_norm(q) if self.head_norms else q, table[..., None, :])

    def keys(self, x, table):
        """Keys, rotated, and values: [n, m, kv_heads, head_dim]."""
        k, v = (p(x).unflatten(-1, (-1, self.shape.head_dim)) for p in (self.k_proj, self.v_proj))
        return rotate(self.k_norm(k) if self.head_norms else k, table[..., None, :]), v


class Tables:
    """Rotations of all positions of a batch's rows and behind them."""

    def __init__(self, shape, length, device):
        self.all = rotary(shape, length, device)

    def rows(self, count):
        return self.all[:, None, :count]

    def at(self, positions):
        return self.all[:, positions]


def causal(q, k, v):
    """[n, m, heads, head_dim] each, grouped queries: [n, m, heads * head_dim]."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


def masked(q, k, v, mask):
    """As causal(), where `mask` [n, m, keys] says what each row reads."""
    group = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(part.transpose(1, 2).repeat_interleave(group, 1) for part in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]).transpose(1, 2).flatten(2)


def chained(q, text, chain, reach):
    """Rows of chains: each reads the text up to its root, and the rows of its own chain.

    q [n, m, heads, head_dim]; text: keys and values [n, t, kv_heads, head_dim]; chain: a list of such pairs with m rows,
    row i of which belongs to chain i; reach [n, m]: the last position of the text that each may read.
    """
    (keys, values), (n, m, heads, size) = text, q.shape
    kv_heads = keys.shape[2]
    q = q.unflatten(2, (kv_heads, -1)) * size ** -0.5
    grouped = q.permute(0, 2, 3, 1, 4)  # [n, kv_heads, group, m, size]
    scores = grouped.flatten(2, 3) @ keys.permute(0, 2, 3, 1)
    scores = scores.unflatten(2, (-1, m))
    seen = torch.arange(keys.shape[1], device=q.device) <= reach[..., None]  # [n, m, t]
    scores = scores.masked_fill(~seen[:, None, None], float("-inf"))
    own = [torch.einsum("nmkgs,nmks->nkgm", q, k)[..., None] for k, _ in chain]
    weights = torch.cat([scores, *own], -1).softmax(-1, dtype=torch.float32).to(values.dtype)
    of_text, *of_chain = weights.split([keys.shape[1]] + [1] * len(chain), -1)
    y = (of_text.flatten(2, 3) @ values.transpose(1, 2)).unflatten(2, (-1, m)).permute(0, 3, 1, 2, 4)
    for weight, (_, v) in zip(of_chain, chain):
        y = y + weight[..., 0].permute(0, 3, 1, 2)[..., None] * v[:, :, :, None]
    return y.reshape(n, m, heads * size)


__all__ = ["Mlp", "Norm", "Projections", "Tables", "causal", "chained", "layer_shape", "masked"]
