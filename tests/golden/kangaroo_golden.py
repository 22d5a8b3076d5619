"""Writes tests/data/heads/kangaroo: a tiny adapter of an early exit in the layout that experiments/models/train_heads.py
writes, on the first layer of the target tests/data/models/llama2, and its logits along a decode with accepted and
rejected drafts, by the mathematics of Kangaroo's paper in PyTorch.

usage: python3 tests/golden/kangaroo_golden.py     (needs torch, numpy, safetensors)
"""

import torch
from heads_golden import (HEAD, HEADS, KV_HEADS, LAYER, WIDTH, Target, attention, random_weights, rms, save)

EXIT, LAYER_AT = 1, "layers.0."
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "exit_layer": EXIT, **LAYER}
SHAPES = {LAYER_AT + "input_layernorm.weight": (WIDTH,), LAYER_AT + "self_attn.q_proj.weight": (HEADS * HEAD, WIDTH),
          LAYER_AT + "self_attn.k_proj.weight": (KV_HEADS * HEAD, WIDTH),
          LAYER_AT + "self_attn.v_proj.weight": (KV_HEADS * HEAD, WIDTH),
          LAYER_AT + "self_attn.o_proj.weight": (WIDTH, HEADS * HEAD), "norm.weight": (WIDTH,)}


def logits(w, target, tokens, drafts):
    """After the last token, and after each of the drafts: row i has the state of token i behind the first layers."""
    x = target.states([*tokens, *drafts])[0][EXIT]
    z = rms(x, w[LAYER_AT + "input_layernorm.weight"])
    q, k, v = (z @ w[LAYER_AT + f"self_attn.{n}_proj.weight"].T for n in "qkv")
    u = x + attention(q, k, v, HEADS, KV_HEADS, torch.arange(len(x)), 10000.0) @ \
        w[LAYER_AT + "self_attn.o_proj.weight"].T
    return (rms(u, w["norm.weight"]) @ target.w["lm_head.weight"].T)[len(tokens) - 1:]


weights = random_weights(41, SHAPES)
save("kangaroo", weights, CONFIG, {"taps": [EXIT]},
     lambda *of: logits({n: t.float() for n, t in weights.items()}, Target(), *of))
