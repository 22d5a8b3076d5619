"""Heads that are fed their own output for drafted tokens: EAGLE-1, EAGLE-3, modules for multi-token prediction.

All have one decoder layer, whose row i stands for the target's state at position i beside token i + 1. Rows of a text
have true states; those of a chain the head's own. Training unrolls the chains as they are drafted.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .attention import Mlp, Norm, Projections, Tables, chained, layer_shape
from .batches import Draft
from .loss import Words


class Layer(nn.Module):
    """The parts of a decoder layer by their published names; which norms there are differs."""

    def __init__(self, shape, inputs=None, bias=False, norms=()):
        super().__init__()
        self.self_attn = Projections(shape, inputs, bias)
        for name in ("post_attention_layernorm", *norms):
            setattr(self, name, Norm(shape))
        self.mlp = Mlp(shape)

    def finish(self, x, attended):
        x = x + self.self_attn.o_proj(attended)
        return x + self.mlp(self.post_attention_layernorm(x))


class Unrolled(nn.Module):
    """`layer()`; `feature(batch)`: of all rows; `mixed(e, f)`: stream and attention's input; `ends(y)`: what is fed
    back and what the output matrix multiplies; `taps`: which states of the target it reads."""

    taps, regression = (), 0.0

    def __init__(self, s, target):
        super().__init__()
        self.s, self.shape, self.words = s, layer_shape(s, target.shape), Words(target.shape.vocab)
        self.regression = s.get("regression", 0.0)

    def output(self, target):
        return target.head

    def forward(self, batch, roots, depth):
        """([Draft], a further loss), one for each of `depth` steps."""
        layer, device = self.layer(), batch.tokens.device
        length = batch.tokens.shape[1]
        tables = Tables(self.shape, length + depth + 1, device)
        following = torch.roll(batch.tokens, -1, 1)  # the last row's is wrong; no chain reads it
        x, z = self.mixed(batch.target.embedding[following], self.feature(batch))
        text, reach = layer.self_attn.keys(z, tables.rows(length)), batch.position(roots, -1)
        x, z = batch.at(x, reach), batch.at(z, reach)
        drafts, chain, further = [], [], 0.0
        for step in range(depth):
            table = tables.at(reach + step)
            if step > 0:
                x, z = self.mixed(batch.embedded(roots, step), fed)
                chain.append(layer.self_attn.keys(z, table))
            y = layer.finish(x, chained(layer.self_attn.queries(z, table), text, chain, reach))
            fed, normed = self.ends(y)
            drafts.append(Draft(step + 1, roots, lambda normed=normed: F.linear(normed, self.output(batch.target))))
            if self.regression and self.training:
                further = further + self.missed_state(batch, roots, step, fed) / depth
        return drafts, self.regression * further

    def missed_state(self, batch, roots, step, fed):
        weight = batch.holds(roots, step + 1).float()
        each = F.smooth_l1_loss(fed.float(), batch.law(roots, step + 1).float(), reduction="none").mean(-1)
        return (each * weight).sum() / weight.sum().clamp_min(1)


def passes_state(matrix, at, width):
    """Lets a matrix begin as a map that passes on `width` columns from `at`, and little else."""
    with torch.no_grad():
        nn.init.normal_(matrix, std=0.02 / matrix.shape[1] ** 0.5)
        matrix[:, at:at + width] += torch.eye(width)


class Eagle3(Unrolled):
    """The authors' layout. `ids`: the target's tokens that it predicts, ascending."""

    def __init__(self, s, target, ids):
        super().__init__(s, target)
        width, layers = target.shape.dim, target.shape.layers
        self.taps = (2, layers // 2, layers - 3)
        self.fc = nn.Linear(3 * width, width, bias=False)
        self.midlayer = Layer(self.shape, 2 * width, norms=("input_layernorm", "hidden_norm"))
        self.norm = Norm(self.shape)
        self.lm_head = nn.Linear(width, len(ids), bias=False)
        self.words = Words(target.shape.vocab, ids)
        passes_state(self.fc.weight, 2 * width, width)
        with torch.no_grad():
            self.lm_head.weight.copy_(target.head[ids])
            self.norm.weight.copy_(target.model.model.norm.weight)

    def layer(self):
        return self.midlayer

    def feature(self, batch):
        return self.fc(torch.cat([batch.states[k] for k in self.taps], -1))

    def mixed(self, e, f):
        return f, torch.cat([self.midlayer.input_layernorm(e), self.midlayer.hidden_norm(f)], -1)

    def ends(self, y):
        return y, self.norm(y)

    def output(self, target):
        return self.lm_head.weight

    def tensors(self):
        """The state_dict, and the two tables of the draft vocabulary."""
        ids = self.words.ids.cpu()
        member = torch.zeros(self.shape.vocab, dtype=torch.bool)
        member[ids] = True
        return {**self.state_dict(), "d2t": ids - torch.arange(len(ids)), "t2d": member}

    def config(self):
        return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "draft_vocab_size":
                len(self.words.ids), "tie_word_embeddings": False}


class Mtp(Unrolled):
    """MiMo's module, in a file of its own."""

    def __init__(self, s, target):
        super().__init__(s, target)
        width = target.shape.dim
        inner = Layer(self.shape, bias=True, norms=("input_layernorm", "token_layernorm", "hidden_layernorm",
                                                    "final_layernorm"))
        inner.input_proj = nn.Linear(2 * width, width, bias=False)
        passes_state(inner.input_proj.weight, 0, width)
        for name in ("q_proj", "k_proj", "v_proj"):
            nn.init.zeros_(getattr(inner.self_attn, name).bias)
        with torch.no_grad():
            inner.final_layernorm.weight.copy_(target.model.model.norm.weight)
        self.model = nn.ModuleDict({"mtp_layers": nn.ModuleList([inner])})
        self.target_layers = target.shape.layers

    def layer(self):
        return self.model["mtp_layers"][0]

    def feature(self, batch):
        return batch.normed

    def mixed(self, e, f):
        inner = self.layer()
        x = inner.input_proj(torch.cat([inner.hidden_layernorm(f), inner.token_layernorm(e)], -1))
        return x, inner.input_layernorm(x)

    def ends(self, y):
        normed = self.layer().final_layernorm(y)
        return normed, normed

    def config(self):
        return {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1,
                "num_hidden_layers": self.target_layers, "attention_bias": True, "tie_word_embeddings": False}


class Eagle(Unrolled):
    """EAGLE-1's layout, whose weights EAGLE-2 uses as well."""

    def __init__(self, s, target):
        super().__init__(s, target)
        width = target.shape.dim
        self.fc = nn.Linear(2 * width, width)
        nn.init.zeros_(self.fc.bias)
        passes_state(self.fc.weight, width, width)
        self.layers = nn.ModuleList([Layer(self.shape)])

    def layer(self):
        return self.layers[0]

    def feature(self, batch):
        return batch.normed

    def mixed(self, e, f):
        x = self.fc(torch.cat([e.to(f.dtype), f], -1))
        return x, x

    def ends(self, y):
        return y, y

    def config(self):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "bias": True,
                "tie_word_embeddings": False}
