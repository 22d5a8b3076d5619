"""Drafters that predict several tokens in one forward from mask tokens: PARD, DFlash, DSpark."""

import torch
import torch.nn.functional as F
from torch import nn

from ..model import load, rotate, shape_in
from .attention import Mlp, Norm, Projections, Tables, causal, layer_shape, masked
from .batches import Draft
from .loss import Words


class Pard(nn.Module):
    """An ordinary small Llama that reads, behind the real tokens, masks; in training those of many chains at once."""

    taps = ()

    def __init__(self, s, target, mask):
        super().__init__()
        self.s, self.mask, self.words = s, mask, Words(target.shape.vocab)
        folder = target.folder.parent / s["start"]
        self.shape = shape_in(folder)
        if self.shape.vocab != target.shape.vocab:
            raise SystemExit(f"{folder} has not the vocabulary of {target.folder}; choose another start=FOLDER")
        self.llama = load(None, folder, "cpu")

    def kept(self, roots, depth):
        """How many chains still have a mask for draft 2, 3, ...: all when it is measured, few far ones in training."""
        share = [max(self.s["keep"] ** j, self.s["least"]) if self.training else 1.0 for j in range(1, depth)]
        return [max(1, int(roots * part)) for part in share]

    def reads(self, reach, counts, length):
        """[n, masks, length + masks]: a mask reads the text up to its chain's root, and its chain's masks up to
        itself."""
        device = reach.device
        chain = torch.cat([torch.arange(count, device=device) for count in counts])
        order = torch.cat([torch.full((count,), j, device=device) for j, count in enumerate(counts)])
        own = (chain[:, None] == chain) & (order[:, None] >= order)
        text = torch.arange(length, device=device) <= reach[:, chain, None]
        return torch.cat([text, own.expand(len(reach), -1, -1)], -1)

    def forward(self, batch, roots, depth):
        inner, (n, length) = self.llama.model, batch.tokens.shape
        counts = self.kept(roots.shape[1], depth)
        at = torch.cat([batch.position(roots[:, :count], j + 1) for j, count in enumerate(counts)], 1)
        places = torch.cat([torch.arange(length, device=at.device).expand(n, -1), at], 1)
        table = Tables(self.shape, length + depth, at.device).at(places)[:, :, None]
        mask = self.reads(batch.position(roots), counts, length)
        x = inner.embed_tokens(torch.cat([batch.tokens, torch.full_like(at, self.mask)], 1))
        for layer in inner.layers:
            x = self.block(layer, x, table, mask, length)
        x = inner.norm(x)
        states = [batch.at(x, batch.position(roots)), *x[:, length:].split(counts, 1)]
        head = self.llama.head
        return [Draft(j + 1, roots[:, :state.shape[1]], lambda state=state: F.linear(state, head))
                for j, state in enumerate(states)], 0.0

    def block(self, layer, x, table, mask, length):
        q, k, v = layer.self_attn.project(layer.input_layernorm(x))  # [n, heads, rows, head_dim]
        q, k, v = (part.transpose(1, 2) for part in (rotate(q, table), rotate(k, table), v))
        y = torch.cat([causal(q[:, :length], k[:, :length], v[:, :length]), masked(q[:, length:], k, v, mask)], 1)
        x = x + layer.self_attn.o_proj(y)
        return x + layer.mlp(layer.post_attention_layernorm(x))


class BlockLayer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(shape), Norm(shape)
        self.self_attn = Projections(shape, head_norms=True)
        self.mlp = Mlp(shape)

    def forward(self, x, context, tables, mask):
        """x [n, rows, dim] of the blocks; `context` [n, t, dim] gives keys and values alone. `tables`: of both."""
        z = self.input_layernorm(x)
        of_text, of_block = self.self_attn.keys(context, tables[0]), self.self_attn.keys(z, tables[1])
        k, v = (torch.cat(pair, 1) for pair in zip(of_text, of_block))
        x = x + self.self_attn.o_proj(masked(self.self_attn.queries(z, tables[1]), k, v, mask))
        return x + self.mlp(self.post_attention_layernorm(x))


class Dflash(nn.Module):
    """z-lab's layout: slot k of a block, the anchor being slot 0, predicts the token at its own position."""

    first = 1  # the slot that predicts the token behind the anchor

    def __init__(self, s, target, mask):
        super().__init__()
        self.s, self.mask, self.words, self.taps = s, mask, Words(target.shape.vocab), tuple(s["taps"])
        self.shape, width = layer_shape(s, target.shape), target.shape.dim
        self.fc = nn.Linear(len(self.taps) * width, width, bias=False)
        self.hidden_norm, self.norm = Norm(self.shape), Norm(self.shape)
        self.layers = nn.ModuleList(BlockLayer(self.shape) for _ in range(s["layers"]))
        self.target_layers = target.shape.layers
        with torch.no_grad():
            self.norm.weight.copy_(target.model.model.norm.weight)

    def reads(self, before, size, length):
        """[n, rows, length + rows]: a block reads the text before its anchor, and all of itself."""
        owner = torch.arange(before.shape[1], device=before.device).repeat_interleave(size)
        text = torch.arange(length, device=before.device) <= before.repeat_interleave(size, 1)[..., None]
        return torch.cat([text, (owner[:, None] == owner).expand(len(before), -1, -1)], -1)

    def slots(self, batch, roots):
        """[n, roots, slots, dim]: the normed states of all slots of the blocks at `roots`."""
        (n, length), size = batch.tokens.shape, self.s["block"]
        context = self.hidden_norm(self.fc(torch.cat([batch.states[k] for k in self.taps], -1)))
        anchor = batch.position(roots)
        places = (anchor[..., None] + torch.arange(size, device=anchor.device)).flatten(1)
        tables = Tables(self.shape, length + size, anchor.device)
        x = batch.target.embedding[self.mask].expand(n, roots.shape[1], size, -1).clone()
        x[:, :, 0] = batch.embedded(roots)
        x, mask = x.flatten(1, 2), self.reads(batch.position(roots, -1), size, length)
        for layer in self.layers:
            x = layer(x, context, (tables.rows(length), tables.at(places)), mask)
        return self.norm(x).unflatten(1, (-1, size))

    def forward(self, batch, roots, depth):
        states, head = self.slots(batch, roots), batch.target.head
        return [Draft(k, roots, lambda state=states[:, :, k]: F.linear(state, head))
                for k in range(1, min(depth, self.s["block"] - 1) + 1)], 0.0

    def layout(self):
        return {"target_layer_ids": [k - 1 for k in self.taps], "mask_token_id": self.mask}

    def config(self):
        return {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": self.s["block"],
                "num_hidden_layers": self.s["layers"], "num_target_layers": self.target_layers,
                "layer_types": ["full_attention"] * self.s["layers"], "dflash_config": self.layout(),
                "attention_bias": False, "tie_word_embeddings": False}


class Low(nn.Module):
    """The Markov head: a bias of low rank from the token before."""

    def __init__(self, vocab, rank):
        super().__init__()
        self.markov_w1, self.markov_w2 = nn.Embedding(vocab, rank), nn.Linear(rank, vocab, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=0.5)
        nn.init.zeros_(self.markov_w2.weight)


class Dspark(Dflash):
    """DeepSpec's layout: slot k predicts the token behind its position, corrected by the token before that one."""

    first = 0

    def __init__(self, s, target, mask):
        super().__init__(s, target, mask)
        self.markov_head = Low(target.shape.vocab, s["rank"])
        self.confidence_head = nn.ModuleDict({"proj": nn.Linear(target.shape.dim + s["rank"], 1)})

    def forward(self, batch, roots, depth):
        states, head, drafts = self.slots(batch, roots), batch.target.head, []
        for k in range(1, min(depth, self.s["block"]) + 1):
            state, before = states[:, :, k - 1], self.markov_head.markov_w1(batch.token(roots, k - 1))
            sure = self.confidence_head["proj"](torch.cat([state, before.to(state.dtype)], -1))[..., 0]

            def logits(state=state, before=before):
                return F.linear(state, head) + self.markov_head.markov_w2(before)
            drafts.append(Draft(k, roots, logits, sure))
        return drafts, 0.0

    def config(self):
        flat = super().config()
        flat.pop("dflash_config")
        return {**flat, "architectures": ["Qwen3DSparkModel"], **self.layout(), "markov_rank": self.s["rank"],
                "markov_head_type": "vanilla", "enable_confidence_head": True, "confidence_head_with_markov": True}
