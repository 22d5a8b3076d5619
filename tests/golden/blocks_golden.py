"""Writes tests/data/heads/{dflash,dspark}_*: tiny heads that draft blocks, in their published layouts, on the target
tests/data/models/llama2, and what their forward gives along a decode, by the mathematics of their papers in PyTorch.
The modules of speculators 0.9.0 (Qwen3DFlashDecoderLayer, MarkovHead) give the same on these files, to 1e-5; windows
were not compared.

usage: python3 tests/golden/blocks_golden.py     (needs torch, numpy, safetensors)
"""

import math

import torch

from heads_golden import (HEAD, HEADS, IDS, KV_HEADS, LAYER, VOCAB, WIDTH, Target, feed_forward, layer_shapes,
                          random_weights, rms, rotate, save)

ROWS, MASK, RANK, LAYERS = 4, 95, 8, 2
QWEN3 = {"model_type": "qwen3", **LAYER, "num_hidden_layers": LAYERS}
SPECULATORS = {"speculators_version": "0.9.0", "block_size": ROWS, "mask_token_id": MASK, "draft_vocab_size": len(IDS)}

# Name: how its forward goes, its config.json. `first`: the slot that predicts the token after the anchor.
BLOCKS_OF = {
    "dflash_zlab": (
        {"taps": [1, 2], "first": 1, "theta": 1000000.0},
        {"architectures": ["DFlashDraftModel"], "block_size": ROWS, "num_target_layers": 2, "rope_theta": 1000000.0,
         "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}, "layer_types": ["full_attention"] * LAYERS,
         "dflash_config": {"target_layer_ids": [0, 1], "mask_token_id": MASK}, **QWEN3}),
    "dflash_sliding": (
        {"taps": [1], "first": 1, "theta": 10000.0, "window": 3},
        {"architectures": ["DFlashDraftModel"], "num_target_layers": 2, "use_sliding_window": True,
         "sliding_window": 3, "layer_types": ["sliding_attention"] * LAYERS,
         "dflash_config": {"target_layer_ids": [0], "mask_token_id": MASK, "block_size": ROWS}, **QWEN3}),
    "dflash_deepspec": (
        {"taps": [0, 1, 2], "first": 0, "theta": 10000.0, "embedding": True, "head": True},
        {"architectures": ["Qwen3DFlashModel"], "block_size": ROWS, "mask_token_id": MASK, "num_target_layers": 2,
         "target_layer_ids": [-1, 0, 1], "markov_rank": 0, "tie_word_embeddings": False, **QWEN3}),
    "dspark_deepspec": (
        {"taps": [0, 2], "first": 0, "theta": 500000.0, "embedding": True, "head": True, "markov": True},
        {"architectures": ["Qwen3DSparkModel"], "block_size": ROWS, "mask_token_id": MASK, "num_target_layers": 2,
         "target_layer_ids": [-1, 1], "markov_rank": RANK, "markov_head_type": "vanilla",
         "enable_confidence_head": True, "confidence_head_with_markov": True,
         "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, **QWEN3}),
    "dflash_speculators": (
        {"taps": [0, 2], "first": 0, "theta": 10000.0, "ids": True},
        {"architectures": ["DFlashSpeculator"], "speculators_model_type": "dflash", **SPECULATORS,
         "aux_hidden_state_layer_ids": [0, 2], "sample_from_anchor": True,
         "transformer_layer_config": {k: v for k, v in QWEN3.items() if k != "rms_norm_eps"}}),
    "dspark_speculators": (
        {"taps": [2, 1], "first": 1, "theta": 10000.0, "ids": True, "markov": True},
        {"architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark", **SPECULATORS,
         "aux_hidden_state_layer_ids": [2, 1], "markov_rank": RANK, "markov_head_type": "vanilla",
         "speculators_config": {"algorithm": "dspark", "proposal_methods": [
             {"proposal_type": "greedy", "speculative_tokens": ROWS - 1}]},
         "transformer_layer_config": QWEN3}),
}


class Block:
    """One head: it reads states of the target at all positions but the last, and feeds a whole block each time."""

    def __init__(self, target, weights, form):
        self.target, self.form = target, form
        self.w = {n: t.float() for n, t in weights.items() if t.is_floating_point()}
        self.d2t = weights.get("d2t")

    def attention(self, x, context, at, anchor):
        """x [rows, width] is at positions anchor, ...; context [anchor, width] at 0, ..."""
        w, theta = self.w, self.form["theta"]
        both = torch.cat([context, x])
        q = (x @ w[at + "q_proj.weight"].T).view(-1, HEADS, HEAD)
        k = (both @ w[at + "k_proj.weight"].T).view(-1, KV_HEADS, HEAD)
        v = (both @ w[at + "v_proj.weight"].T).view(-1, KV_HEADS, HEAD)
        keys = torch.arange(len(both))
        queries = keys[anchor:]
        q = rotate(rms(q, w[at + "q_norm.weight"]), queries, theta)
        k = rotate(rms(k, w[at + "k_norm.weight"]), keys, theta)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = torch.einsum("rhd,shd->hrs", q, k) / math.sqrt(HEAD)
        if window := self.form.get("window"):
            unseen = (keys[None] > queries[:, None]) | (keys[None] <= queries[:, None] - window)
            scores = scores.masked_fill(unseen, -math.inf)
        mixed = torch.einsum("hrs,shd->rhd", scores.softmax(-1), v).reshape(len(x), -1)
        return mixed @ w[at + "o_proj.weight"].T

    def head(self, part, weight):
        """Logits of the target's vocabulary, of those of the head's."""
        logits = part @ weight.T
        if self.d2t is None:
            return logits
        whole = torch.full((len(part), VOCAB), -math.inf)
        whole[:, torch.arange(len(self.d2t)) + self.d2t] = logits
        return whole

    def round(self, tokens, drafts):
        """The logits of each draft; with a correction, that by the anchor and then by `drafts`."""
        w, anchor = self.w, len(tokens) - 1
        states, _ = self.target.states(tokens[:-1])
        fused = torch.cat([states[k] for k in self.form["taps"]], -1) @ w["fc.weight"].T
        context = rms(fused, w["hidden_norm.weight"])
        embedding = w.get("embed_tokens.weight", self.target.w["model.embed_tokens.weight"])
        x = embedding[torch.tensor([tokens[-1]] + [MASK] * (ROWS - 1))]
        for layer in range(LAYERS):
            at = f"layers.{layer}."
            normed = rms(x, w[at + "input_layernorm.weight"])
            x = x + self.attention(normed, context, at + "self_attn.", anchor)
            x = x + feed_forward(rms(x, w[at + "post_attention_layernorm.weight"]), w, at + "mlp.")
        last = rms(x, w["norm.weight"])[self.form["first"]:]
        found = self.head(last, w.get("lm_head.weight", self.target.w["lm_head.weight"]))
        if self.form.get("markov"):
            before = torch.tensor([tokens[-1], *drafts][:len(found)])
            bias = w["markov_head.markov_w1.weight"][before] @ w["markov_head.markov_w2.weight"].T
            columns = torch.arange(VOCAB) if self.d2t is None else torch.arange(len(self.d2t)) + self.d2t
            found[:, columns] += bias
        return found


def shapes_of(form):
    vocab = len(IDS) if form.get("ids") else VOCAB
    shapes = {"fc.weight": (WIDTH, WIDTH * len(form["taps"])), "hidden_norm.weight": (WIDTH,), "norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        shapes |= layer_shapes(at, WIDTH, "block", True) | {at + "input_layernorm.weight": (WIDTH,)}
    if form.get("embedding"):
        shapes["embed_tokens.weight"] = (VOCAB, WIDTH)
    if form.get("head") or form.get("ids"):
        shapes["lm_head.weight"] = (vocab, WIDTH)
    if form.get("markov"):
        shapes |= {"markov_head.markov_w1.weight": (VOCAB, RANK), "markov_head.markov_w2.weight": (vocab, RANK),
                   "confidence_head.proj.weight": (1, WIDTH + RANK), "confidence_head.proj.bias": (1,)}
    return shapes


def write(name, seed):
    form, config = BLOCKS_OF[name]
    weights = random_weights(seed, shapes_of(form))
    if form.get("ids"):
        weights["d2t"] = torch.tensor(IDS) - torch.arange(len(IDS))
        weights["t2d"] = torch.tensor([t in IDS for t in range(VOCAB)])
    facts = {"taps": form["taps"], "first": form["first"]}
    save(name, weights, config, facts, Block(Target(), weights, form).round)


if __name__ == "__main__":
    for number, name in enumerate(BLOCKS_OF):
        write(name, number + 101)
