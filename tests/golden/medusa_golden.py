"""Writes tests/data/heads/medusa* and hydra*: tiny heads that draft from the target's last state without its cache, in
their published layouts on the target tests/data/models/llama2, and what they give along a decode with accepted and
rejected drafts, by the mathematics of their papers in PyTorch.

usage: python3 tests/golden/medusa_golden.py     (needs torch, numpy, safetensors)
"""

import json

import torch
from heads_golden import (EPSILON, HEAD, HEADS, KV_HEADS, TARGET, VOCAB, WIDTH, Target, attention, feed_forward,
                          layer_shapes, random_weights, rms, save)
from torch.nn.functional import silu

COUNT = 4  # heads: one more than a round has drafts
BASE = {"base_model_name_or_path": "tests/data/models/llama2"}

# Name: residual layers of a head, prefix of its tensors, file, config.json. "legacy" has no matrices of its own.
MEDUSA = {
    "medusa1": (1, "", "medusa_lm_head.safetensors",
                {"medusa_num_heads": 2, "medusa_num_layers": 1, **BASE}),  # published files have more heads than this
    "medusa2": (2, "medusa_head.", "model.safetensors", {"medusa_num_heads": COUNT, "medusa_num_layers": 2, **BASE}),
    "medusa_legacy": (1, "", "medusa_lm_head.safetensors",
                      {"medusa_num_heads": COUNT, "medusa_num_layers": 1, "version": "2", **BASE}),
}
# Name: layers of a perceptron, config.json.
HYDRA = {
    "hydra": (2, {"hydra_num_heads": COUNT, "hydra_num_layers": 2, "hydra_head_arch": "mlp", "grounded_heads": True,
                  "hidden_state_offset": 0, **BASE}),
    "hydra_prefix": (3, {"hydra_num_heads": COUNT, "hydra_num_layers": 3, "hydra_head_arch": "prefix-mlp",
                         "grounded_heads": True, "hidden_state_offset": 0, **BASE}),
}


def medusa_shapes(layers, prefix):
    shapes = {}
    for k in range(COUNT):
        for j in range(layers):
            shapes |= {f"{prefix}{k}.{j}.linear.weight": (WIDTH, WIDTH), f"{prefix}{k}.{j}.linear.bias": (WIDTH,)}
        shapes[f"{prefix}{k}.{layers}.weight"] = (VOCAB, WIDTH)
    return shapes


def medusa_logits(w, layers, prefix, target, tokens, drafts):
    found = []
    for k in range(len(drafts) + 1):
        x = target.states(tokens[:-1])[1][-1]
        for j in range(layers):
            x = x + silu(x @ w[f"{prefix}{k}.{j}.linear.weight"].T + w[f"{prefix}{k}.{j}.linear.bias"])
        found.append(x @ w.get(f"{prefix}{k}.{layers}.weight", target.w["lm_head.weight"]).T)
    return found


def block(prefixed, j):
    """Of a Sequential; in Hydra++ dropout stands before each layer."""
    return 2 * j + 1 if prefixed else j


def hydra_shapes(layers, prefixed):
    shapes = {"input_embed_fn.weight": (VOCAB, WIDTH)}
    for k in range(COUNT):
        at = f"hydra_mlp.{k}.{block(prefixed, 0)}."
        shapes |= {at + "linear.weight": (WIDTH, (k + 2) * WIDTH), at + "linear.bias": (WIDTH,),
                   at + "res_connection.weight": (WIDTH, (k + 2) * WIDTH), at + "res_connection.bias": (WIDTH,)}
        for j in range(1, layers):
            at = f"hydra_mlp.{k}.{block(prefixed, j)}.linear."
            shapes |= {at + "weight": (WIDTH, WIDTH), at + "bias": (WIDTH,)}
        at = f"hydra_lm_head.{k}." + ("1." if prefixed else "")
        shapes |= {at + "weight": (VOCAB, WIDTH), at + "bias": (VOCAB,)}
    if prefixed:
        at = "prefix_embeding_layer."
        shapes |= layer_shapes(at + "layers.0.", WIDTH, 1, False)
        shapes |= {at + "layers.0.input_layernorm.weight": (WIDTH,), at + "norm.weight": (WIDTH,),
                   at + "embed_tokens.weight": (VOCAB, WIDTH)}
    return shapes


def prefix_state(w, states):
    """Of the last row: one layer of the target's shape over all its states."""
    at = "prefix_embeding_layer.layers.0."
    z = rms(states, w[at + "input_layernorm.weight"])
    q, k, v = (z @ w[at + f"self_attn.{n}_proj.weight"].T for n in "qkv")
    x = states + attention(q, k, v, HEADS, KV_HEADS, torch.arange(len(states)), 10000.0) @ \
        w[at + "self_attn.o_proj.weight"].T
    x = x + feed_forward(rms(x, w[at + "post_attention_layernorm.weight"]), w, at + "mlp.")
    return rms(x, w["prefix_embeding_layer.norm.weight"])[-1]


def hydra_logits(w, layers, prefixed, target, tokens, drafts):
    states = target.states(tokens[:-1])[1]
    state = prefix_state(w, states) if prefixed else states[-1]
    path, found = [tokens[-1], *drafts], []
    for k in range(len(drafts) + 1):
        z = torch.cat([state, *(target.w["model.embed_tokens.weight"][t] for t in path[: k + 1])])
        at = f"hydra_mlp.{k}.{block(prefixed, 0)}."
        a = z @ w[at + "res_connection.weight"].T + w[at + "res_connection.bias"] + \
            silu(z @ w[at + "linear.weight"].T + w[at + "linear.bias"])
        for j in range(1, layers):
            at = f"hydra_mlp.{k}.{block(prefixed, j)}.linear."
            a = a + silu(a @ w[at + "weight"].T + w[at + "bias"])
        at = f"hydra_lm_head.{k}." + ("1." if prefixed else "")
        found.append(a @ w[at + "weight"].T + w[at + "bias"])
    return found


def write(name, file, config, weights, logits):
    w, target = {n: t.float() for n, t in weights.items()}, Target()
    save(name, weights, config, {"taps": [-1]}, lambda tokens, drafts: logits(w, target, tokens, drafts), file)


assert json.loads((TARGET / "config.json").read_text())["rms_norm_eps"] == EPSILON and HEADS * HEAD == WIDTH
for number, (name, (layers, prefix, file, config)) in enumerate(MEDUSA.items()):
    weights = random_weights(number + 21, medusa_shapes(layers, prefix))
    if name == "medusa_legacy":
        weights = {n: t for n, t in weights.items() if ".linear." in n}
    if prefix:
        weights["model.norm.weight"] = torch.ones(WIDTH)  # of the rest of the model
    write(name, file, config, weights,
          lambda w, *of, layers=layers, prefix=prefix: medusa_logits(w, layers, prefix, *of))
for number, (name, (layers, config)) in enumerate(HYDRA.items()):
    prefixed = config["hydra_head_arch"] == "prefix-mlp"
    weights = random_weights(number + 31, hydra_shapes(layers, prefixed))
    for k in range(COUNT if prefixed else 0):  # the layers after the first are one module, stored several times
        for j in range(2, layers):
            for part in ("weight", "bias"):
                weights[f"hydra_mlp.{k}.{block(True, j)}.linear.{part}"] = \
                    weights[f"hydra_mlp.{k}.{block(True, 1)}.linear.{part}"].clone()
    write(name, "model.safetensors", config, weights,
          lambda w, *of, layers=layers, prefixed=prefixed: hydra_logits(w, layers, prefixed, *of))
