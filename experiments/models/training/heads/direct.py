"""Heads on one state of the target that have no cache, Medusa, Hydra and a linear one, and Kangaroo's adapter of an
early exit."""

import torch
import torch.nn.functional as F
from torch import nn

from .attention import Norm, Projections, Tables, causal, layer_shape
from .batches import Draft
from .loss import Words


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight), nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return x + F.silu(self.linear(x))


class Medusa(nn.ModuleList):
    """Medusa-1: head k of the state behind the text predicts the token k + 1 places behind the next one."""

    taps = ()

    def __init__(self, s, target):
        width, vocab = target.shape.dim, target.shape.vocab
        super().__init__(nn.ModuleList([*(Residual(width) for _ in range(s["layers"])),
                                        nn.Linear(width, vocab, bias=False)]) for _ in range(s["depth"]))
        self.s, self.shape, self.words = s, target.shape, Words(vocab)
        with torch.no_grad():
            for head in self:
                head[-1].weight.copy_(target.head)

    def forward(self, batch, roots, depth):
        x, drafts = batch.law(roots, 0), []
        for k, head in enumerate(list(self)[:depth]):
            y = x
            for block in head[:-1]:
                y = block(y)
            drafts.append(Draft(k + 1, roots, lambda y=y, head=head: head[-1](y)))
        return drafts, 0.0

    def config(self):
        return {"medusa_num_heads": len(self), "medusa_num_layers": self.s["layers"], "version": "1"}


class HydraBlock(nn.Module):
    def __init__(self, inputs, width, first):
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        if first:
            self.res_connection = nn.Linear(inputs, width)
            nn.init.zeros_(self.res_connection.bias), nn.init.zeros_(self.res_connection.weight)
            with torch.no_grad():
                self.res_connection.weight[:, :width] = torch.eye(width)
        nn.init.normal_(self.linear.weight, std=0.02), nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        rest = self.res_connection(x) if hasattr(self, "res_connection") else x
        return rest + F.silu(self.linear(x))


class Hydra(nn.Module):
    """The arch "mlp": head k reads the state behind the text and the tokens of the chain so far."""

    taps = ()

    def __init__(self, s, target):
        super().__init__()
        width, vocab = target.shape.dim, target.shape.vocab
        self.s, self.shape, self.words = s, target.shape, Words(vocab)
        self.hydra_mlp = nn.ModuleList(
            nn.ModuleList(HydraBlock((k + 2) * width if j == 0 else width, width, j == 0) for j in range(s["layers"]))
            for k in range(s["depth"]))
        self.hydra_lm_head = nn.ModuleList(nn.Linear(width, vocab) for _ in range(s["depth"]))
        with torch.no_grad():
            for head in self.hydra_lm_head:
                head.weight.copy_(target.head), head.bias.zero_()

    def forward(self, batch, roots, depth):
        parts, drafts = [batch.law(roots, 0)], []
        for k, (blocks, head) in enumerate(list(zip(self.hydra_mlp, self.hydra_lm_head))[:depth]):
            parts.append(batch.embedded(roots, k))
            y = torch.cat(parts, -1)
            for block in blocks:
                y = block(y)
            drafts.append(Draft(k + 1, roots, lambda y=y, head=head: head(y)))
        return drafts, 0.0

    def config(self):
        return {"hydra_num_heads": self.s["depth"], "hydra_num_layers": self.s["layers"], "hydra_head_arch": "mlp",
                "grounded_heads": True, "hidden_state_offset": 0}


class Linear(nn.Module):
    """One matrix of the state behind the text and one of the next token's embedding: their sum is the next state."""

    taps = ()

    def __init__(self, s, target):
        super().__init__()
        width = target.shape.dim
        self.s, self.shape, self.words = s, target.shape, Words(target.shape.vocab)
        self.state, self.token = (nn.Linear(width, width, bias=False) for _ in range(2))
        nn.init.eye_(self.state.weight), nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, batch, roots, depth):
        x, drafts = batch.law(roots, 0), []
        for k in range(depth):
            x = self.state(x) + self.token(batch.embedded(roots, k))
            drafts.append(Draft(k + 1, roots, lambda x=x: F.linear(x, batch.target.head)))
        return drafts, 0.0

    def config(self):
        return {"architectures": ["LinearHead"], "num_hidden_layers": 0}


class Kangaroo(nn.Module):
    """An attention layer and a norm on the state after the first layers; the target's output matrix follows."""

    def __init__(self, s, target):
        super().__init__()
        self.s, self.shape, self.words = s, layer_shape(s, target.shape), Words(target.shape.vocab)
        self.taps = (s["exit"],)
        self.layers = nn.ModuleList([nn.ModuleDict({"input_layernorm": Norm(self.shape),
                                                    "self_attn": Projections(self.shape)})])
        self.norm = Norm(self.shape)
        with torch.no_grad():
            self.norm.weight.copy_(target.model.model.norm.weight)

    def forward(self, batch, roots, depth):
        x, inner = batch.states[self.taps[0]], self.layers[0]
        attention, length = inner["self_attn"], batch.tokens.shape[1]
        z, table = inner["input_layernorm"](x), Tables(self.shape, length, x.device).rows(length)
        y = causal(attention.queries(z, table), *attention.keys(z, table))
        out, head = self.norm(x + attention.o_proj(y)), batch.target.head
        states = [batch.at(out, batch.position(roots, k - 1)) for k in range(1, depth + 1)]
        return [Draft(k + 1, roots, lambda state=state: F.linear(state, head)) for k, state in enumerate(states)], 0.0

    def config(self):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "exit_layer": self.s["exit"]}
