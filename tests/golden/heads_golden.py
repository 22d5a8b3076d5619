"""Writes tests/data/heads: tiny draft heads in their published layouts on the target tests/data/models/llama2, and what
their forward gives along a decode with accepted and rejected drafts, by the mathematics of their papers in PyTorch.

usage: python3 tests/golden/heads_golden.py     (needs torch, numpy, safetensors)
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[1] / "data"
TARGET = ROOT / "models" / "llama2"
WIDTH, VOCAB, FFN, HEADS, KV_HEADS, HEAD = 64, 96, 32, 4, 2, 16
IDS = [3, 4, 5, 9, 11, 17, 20, 31, 33, 40, 47, 52, 53, 60, 71, 95]  # the target's tokens of the small vocabulary
EPSILON = 1e-6


def rms(x, w, epsilon=EPSILON):
    return w * x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon)


def rotate(x, positions, theta):
    """x [rows, heads, size]."""
    size = x.shape[-1]
    frequencies = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = positions.double()[:, None] * frequencies
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
    a, b = x[..., : size // 2], x[..., size // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v, heads, kv_heads, positions, theta, norms=None):
    """Causal: row i of q, k, v [rows, heads * size] is at positions[i] and reads the rows up to itself."""
    rows = q.shape[0]
    size = q.shape[1] // heads
    q, k, v = q.view(rows, heads, size), k.view(rows, kv_heads, size), v.view(rows, kv_heads, size)
    if norms:
        q, k = rms(q, norms[0]), rms(k, norms[1])
    q, k = rotate(q, positions, theta), rotate(k, positions, theta)
    k, v = k.repeat_interleave(heads // kv_heads, 1), v.repeat_interleave(heads // kv_heads, 1)
    scores = torch.einsum("rhd,shd->hrs", q, k) / math.sqrt(size)
    scores = scores.masked_fill(torch.ones(rows, rows).triu(1).bool(), -math.inf)
    return torch.einsum("hrs,shd->rhd", scores.softmax(-1), v).reshape(rows, -1)


def feed_forward(x, w, at):
    return (torch.nn.functional.silu(x @ w[at + "gate_proj.weight"].T) * (x @ w[at + "up_proj.weight"].T)) @ \
        w[at + "down_proj.weight"].T


class Target:
    """The states s[0] ... s[L] and h of tests/data/models/llama2, and its ends."""

    def __init__(self):
        self.w = {name: t.float() for name, t in load_file(TARGET / "model.safetensors").items()}
        self.config = json.loads((TARGET / "config.json").read_text())

    def states(self, tokens):
        w, c = self.w, self.config
        positions = torch.arange(len(tokens))
        x = w["model.embed_tokens.weight"][tokens]
        found = [x]
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            y = rms(x, w[at + "input_layernorm.weight"], c["rms_norm_eps"])
            q, k, v = (y @ w[at + f"self_attn.{n}_proj.weight"].T for n in "qkv")
            x = x + attention(q, k, v, c["num_attention_heads"], c["num_key_value_heads"], positions,
                              c["rope_theta"]) @ w[at + "self_attn.o_proj.weight"].T
            x = x + feed_forward(rms(x, w[at + "post_attention_layernorm.weight"], c["rms_norm_eps"]), w, at + "mlp.")
            found.append(x)
        return found, rms(x, w["model.norm.weight"], c["rms_norm_eps"])


def layer_prefix(form):
    return form["layer"] if "layer" in form else "midlayer." if form.get("authors") else "layers.0."


class Head:
    """One head: its rows are fed once each, real ones with states of the target, drafted ones with its own output."""

    def __init__(self, target, weights, form):
        self.target, self.form = target, form
        self.w = {n: t.float() for n, t in weights.items() if t.is_floating_point()}
        self.d2t = weights.get("d2t")
        self.layer = layer_prefix(form)

    def feature(self, tokens):
        states, normed = self.target.states(tokens)
        if self.form["generation"] in (1, "mtp"):
            return normed
        picked = [states[k] for k in self.form["taps"]]
        if self.form.get("fc_norm"):
            picked = [rms(s, self.w[f"fc_norm.{i}.weight"]) for i, s in enumerate(picked)]
        return torch.cat(picked, -1) @ self.w["fc.weight"].T

    def forward(self, tokens, features, positions):
        """All rows of one path: token i + 1 beside feature i. Gives the layer's output of each row."""
        w, at, theta = self.w, self.layer, self.form["theta"]
        e = self.target.w["model.embed_tokens.weight"][tokens]
        if self.form["generation"] == "mtp":
            pair = [rms(e, self.gain("embedding_norm")), rms(features, self.gain("state_norm"))]
            x = torch.cat(pair[::-1] if self.form.get("state_first") else pair, -1) @ w[self.form["names"]["fc"]].T
            z = rms(x, self.gain("input"))
        elif self.form["generation"] == 1:
            x = torch.cat([e, features], -1) @ w["fc.weight"].T + w["fc.bias"]
            z = x
        else:
            g = features
            normed = rms(g, w[at + "hidden_norm.weight"])
            z = torch.cat([rms(e, w[at + "input_layernorm.weight"]), normed], -1)
            x = normed if self.form.get("norm_before_residual") else g
        q, k, v = (z @ w[at + f"self_attn.{n}_proj.weight"].T + w.get(at + f"self_attn.{n}_proj.bias", 0)
                   for n in "qkv")
        norms = [w[at + f"self_attn.{n}_norm.weight"] for n in "qk"] if self.form.get("head_norms") else None
        x = x + attention(q, k, v, HEADS, KV_HEADS, positions, theta, norms) @ w[at + "self_attn.o_proj.weight"].T
        return x + feed_forward(rms(x, self.gain("post")), w, at + "mlp.")

    def gain(self, part):
        """Of a norm; Qwen's modules store it less 1."""
        names = {"input": self.layer + "input_layernorm.weight", "post": self.layer + "post_attention_layernorm.weight",
                 "norm": "norm.weight"} | self.form.get("names", {})
        return self.w[names[part]] + (1 if self.form.get("unit_offset") else 0)

    def logits(self, y):
        if self.form["generation"] == "mtp":
            return rms(y, self.gain("norm")) @ self.target.w["lm_head.weight"].T
        if self.form["generation"] == 1:
            return y @ self.target.w["lm_head.weight"].T
        part = rms(y, self.w["norm.weight"]) @ self.w["lm_head.weight"].T
        if self.d2t is None:
            return part
        whole = torch.full((VOCAB,), -math.inf)
        whole[torch.arange(len(self.d2t)) + self.d2t] = part
        return whole

    def round(self, tokens, drafts):
        """The logits after the last token, and after each of the drafts."""
        features = list(self.feature(tokens[:-1]))
        fed = list(tokens[1:])
        found = []
        for draft in [None, *drafts]:
            if draft is not None:
                features.append(own)
                fed.append(draft)
            y = self.forward(torch.tensor(fed), torch.stack(features), torch.arange(len(fed)))[-1]
            own = rms(y, self.gain("norm")) if self.form.get("norm_output") else y
            found.append(self.logits(y))
        return found


def random_weights(seed, shapes):
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        t = torch.randn(shape, generator=generator)
        is_gain = len(shape) == 1 and "norm" in name
        weights[name] = (1 + 0.2 * t if is_gain else 0.6 * t / math.sqrt(shape[-1])).bfloat16()
    return weights


def layer_shapes(at, inputs, generation, head_norms):
    shapes = {at + "self_attn.q_proj.weight": (HEADS * HEAD, inputs),
              at + "self_attn.k_proj.weight": (KV_HEADS * HEAD, inputs),
              at + "self_attn.v_proj.weight": (KV_HEADS * HEAD, inputs),
              at + "self_attn.o_proj.weight": (WIDTH, HEADS * HEAD),
              at + "mlp.gate_proj.weight": (FFN, WIDTH), at + "mlp.up_proj.weight": (FFN, WIDTH),
              at + "mlp.down_proj.weight": (WIDTH, FFN), at + "post_attention_layernorm.weight": (WIDTH,)}
    if generation == 3:
        shapes |= {at + "input_layernorm.weight": (WIDTH,), at + "hidden_norm.weight": (WIDTH,)}
    if head_norms:
        shapes |= {at + "self_attn.q_norm.weight": (HEAD,), at + "self_attn.k_norm.weight": (HEAD,)}
    return shapes


LAYER = {"hidden_size": WIDTH, "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
         "head_dim": HEAD, "rms_norm_eps": EPSILON, "vocab_size": VOCAB, "max_position_embeddings": 256,
         "hidden_act": "silu", "num_hidden_layers": 1}

# Name: how its forward goes, its config.json.
HEADS_OF = {
    "eagle1": ({"generation": 1, "theta": 10000.0}, {"architectures": ["LlamaForCausalLM"], "bias": True, **LAYER}),
    "eagle3": ({"generation": 3, "theta": 10000.0, "taps": [0, 1, 2], "authors": True, "draft_vocab": True},
               {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(IDS),
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 1]}, **LAYER}),
    "eagle3_speculators": (
        {"generation": 3, "theta": 500000.0, "taps": [1, 2], "norm_before_residual": True, "head_norms": True},
        {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.3.0",
         "draft_vocab_size": VOCAB, "eagle_aux_hidden_state_layer_ids": [1, 2], "norm_before_residual": True,
         "transformer_layer_config": {"model_type": "qwen3", "rope_theta": 500000.0, **LAYER}}),
    "eagle31": (
        {"generation": 3, "theta": 10000.0, "taps": [2, 0, 1], "fc_norm": True, "norm_output": True,
         "draft_vocab": True},
        {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": len(IDS),
         "eagle_aux_hidden_state_layer_ids": [2, 0, 1], "fc_norm": True, "norm_output": True,
         "norm_before_residual": False, "transformer_layer_config": {"model_type": "llama", **LAYER}}),
    "mtp_mimo": (
        {"generation": "mtp", "theta": 640000.0, "state_first": True, "norm_output": True, "bias": True,
         "layer": "model.mtp_layers.0.",
         "names": {"fc": "model.mtp_layers.0.input_proj.weight", "norm": "model.mtp_layers.0.final_layernorm.weight",
                   "embedding_norm": "model.mtp_layers.0.token_layernorm.weight",
                   "state_norm": "model.mtp_layers.0.hidden_layernorm.weight"}},
        {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1,
         "rope_theta": 640000.0, **LAYER, "num_hidden_layers": 2}),
    "mtp_qwen": (
        {"generation": "mtp", "theta": 10000.0, "norm_output": True, "unit_offset": True, "layer": "mtp.layers.0.",
         "names": {"fc": "mtp.fc.weight", "norm": "mtp.norm.weight",
                   "embedding_norm": "mtp.pre_fc_norm_embedding.weight",
                   "state_norm": "mtp.pre_fc_norm_hidden.weight"}},
        {"architectures": ["LlamaForCausalLM"], "mtp_num_hidden_layers": 1, **LAYER, "num_hidden_layers": 2}),
}

# What is fed in turn: the tokens of the sequence, and drafts of which the next sequence has accepted none, one or all.
ROUNDS = [([1, 7, 33, 20, 5, 60], [40, 9, 3]), ([1, 7, 33, 20, 5, 60, 40, 31], [17, 52, 95]),
          ([1, 7, 33, 20, 5, 60, 40, 31, 17, 52, 95, 4], [4, 33, 71]),
          ([1, 7, 33, 20, 5, 60, 40, 31, 17, 52, 95, 4, 47], [11, 20, 53])]


def save(name, weights, config, facts, logits, file="model.safetensors"):
    """A head, and beside it `facts` with its logits, round(tokens, drafts) -> rows, along a decode."""
    folder = ROOT / "heads" / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / file)
    (folder / file).chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    rounds = [{"tokens": tokens, "drafts": drafts,
               "logits": [[None if x == -math.inf else float(f"{x:.6g}") for x in row.tolist()]
                          for row in logits(tokens, drafts)]} for tokens, drafts in ROUNDS]
    (folder / "golden.json").write_text(json.dumps({**facts, "rounds": rounds}) + "\n")


def write(name, seed):
    form, config = HEADS_OF[name]
    first, mtp = form["generation"] == 1, form["generation"] == "mtp"
    at = layer_prefix(form)
    shapes = layer_shapes(at, WIDTH if first or mtp else 2 * WIDTH, form["generation"], form.get("head_norms"))
    if mtp:
        shapes |= {name: (WIDTH, 2 * WIDTH) if part == "fc" else (WIDTH,) for part, name in form["names"].items()}
        shapes[at + "input_layernorm.weight"] = (WIDTH,)
        if form.get("bias"):
            shapes |= {at + f"self_attn.{n}_proj.bias": ((HEADS if n == "q" else KV_HEADS) * HEAD,) for n in "qkv"}
    else:
        shapes["fc.weight"] = (WIDTH, WIDTH * (2 if first else len(form["taps"])))
    if first:
        shapes["fc.bias"] = (WIDTH,)
    elif not mtp:
        shapes |= {"norm.weight": (WIDTH,), "lm_head.weight": (len(IDS) if form.get("draft_vocab") else VOCAB, WIDTH)}
        for i in range(len(form["taps"]) if form.get("fc_norm") else 0):
            shapes[f"fc_norm.{i}.weight"] = (WIDTH,)
    weights = random_weights(seed, shapes)
    if form.get("unit_offset"):
        weights |= {n: (t.float() - 1).bfloat16() for n, t in weights.items() if t.ndim == 1 and "norm" in n}
    if form.get("draft_vocab"):
        weights["d2t"] = torch.tensor(IDS) - torch.arange(len(IDS))
        weights["t2d"] = torch.tensor([t in IDS for t in range(VOCAB)])
    save(name, weights, config, {"taps": form.get("taps", [-1])}, Head(Target(), weights, form).round)


if __name__ == "__main__":
    for number, name in enumerate(HEADS_OF):
        write(name, number + 1)
