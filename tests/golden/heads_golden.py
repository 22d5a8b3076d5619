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


class LatentHead(Head):
    """DeepSeek-V3's module (arXiv 2412.19437): keys and values of each head are made of the latents, and a row uses the
    experts of the groups whose two best ones have the greatest sums."""

    def heads_of(self, x, size):
        return x.view(x.shape[0], -1, size)

    def attend(self, z, positions):
        w, at, c = self.w, self.layer + "self_attn.", self.form["config"]
        plain, rotated, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        q = rms(z @ w[at + "q_a_proj.weight"].T, w[at + "q_a_layernorm.weight"]) @ w[at + "q_b_proj.weight"].T
        q, k_r = self.heads_of(q, plain + rotated), z @ w[at + "kv_a_proj_with_mqa.weight"].T
        latent = rms(k_r[:, :c["kv_lora_rank"]], w[at + "kv_a_layernorm.weight"])
        kv = self.heads_of(latent @ w[at + "kv_b_proj.weight"].T, plain + value)
        halves = torch.cat([torch.arange(0, rotated, 2), torch.arange(1, rotated, 2)])  # pairs are neighbours
        q_r = rotate(q[..., plain:][..., halves], positions, self.form["theta"])
        k_r = rotate(k_r[:, None, c["kv_lora_rank"]:][..., halves], positions, self.form["theta"])
        scores = torch.einsum("rhd,shd->hrs", q[..., :plain], kv[..., :plain]) + \
            torch.einsum("rhd,sd->hrs", q_r, k_r[:, 0])
        hidden = torch.ones(len(z), len(z)).triu(1).bool()
        shares = (scores / math.sqrt(plain + rotated)).masked_fill(hidden, -math.inf).softmax(-1)
        y = torch.einsum("hrs,shd->rhd", shares, kv[..., plain:]).reshape(len(z), -1)
        return y @ w[at + "o_proj.weight"].T

    def experts(self, x):
        w, at, c = self.w, self.layer + "mlp.", self.form["config"]
        scores = torch.sigmoid(x @ w[at + "gate.weight"].T)
        keys = (scores + w[at + "gate.e_score_correction_bias"]).view(len(x), c["n_group"], -1)
        chosen = keys.topk(2, -1).values.sum(-1).topk(c["topk_group"], -1).indices
        outside = torch.ones(len(x), c["n_group"]).scatter(1, chosen, 0).bool()
        used = keys.masked_fill(outside[..., None], -math.inf).flatten(1).topk(c["num_experts_per_tok"], -1).indices
        shares = scores.gather(1, used)
        shares = c["routed_scaling_factor"] * shares / shares.sum(-1, keepdim=True)
        y = feed_forward(x, w, at + "shared_experts.")
        for row in range(len(x)):
            for share, expert in zip(shares[row], used[row].tolist()):
                y[row] += share * feed_forward(x[row], w, at + f"experts.{expert}.")
        return y

    def forward(self, tokens, features, positions):
        e = self.target.w["model.embed_tokens.weight"][tokens]
        pair = [rms(e, self.gain("embedding_norm")), rms(features, self.gain("state_norm"))]
        x = torch.cat(pair, -1) @ self.w[self.form["names"]["fc"]].T
        x = x + self.attend(rms(x, self.gain("input")), positions)
        return x + self.experts(rms(x, self.gain("post")))


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

LATENT = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 12,
          "moe_intermediate_size": 16, "n_routed_experts": 6, "n_shared_experts": 2, "num_experts_per_tok": 2,
          "n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5, "norm_topk_prob": True,
          "scoring_func": "sigmoid", "topk_method": "noaux_tc", "first_k_dense_replace": 1}
BLOCK = 16  # of outputs, and of inputs


def fp8_blocks(weights):
    """As DeepSeek stores its matrices: codes and a scale for each block. Gives what is stored, and what it means."""
    stored, meant = {}, {}
    for name, t in weights.items():
        if t.ndim != 2 or "eh_proj" in name or name.endswith("mlp.gate.weight"):
            stored[name] = meant[name] = t
            continue
        rows, columns = (n + (-n) % BLOCK for n in t.shape)
        padded = torch.zeros(rows, columns)
        padded[:t.shape[0], :t.shape[1]] = t.float()
        blocks = padded.view(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
        scales = blocks.abs().amax((1, 3)) / 448
        codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
        dense = (codes.float() * scales[:, None, :, None]).view(rows, columns).bfloat16()
        stored[name] = codes.view(rows, columns)[:t.shape[0], :t.shape[1]].contiguous()
        stored[name + "_scale_inv"] = scales
        meant[name] = dense[:t.shape[0], :t.shape[1]].contiguous()
    return stored, meant


def write_latent(name, seed):
    at, c = "model.layers.2.", LATENT
    attention, mlp, query = at + "self_attn.", at + "mlp.", c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    shapes = {attention + "q_a_proj.weight": (c["q_lora_rank"], WIDTH),
              attention + "q_a_layernorm.weight": (c["q_lora_rank"],),
              attention + "q_b_proj.weight": (HEADS * query, c["q_lora_rank"]),
              attention + "kv_a_proj_with_mqa.weight": (c["kv_lora_rank"] + c["qk_rope_head_dim"], WIDTH),
              attention + "kv_a_layernorm.weight": (c["kv_lora_rank"],),
              attention + "kv_b_proj.weight": (HEADS * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"]),
              attention + "o_proj.weight": (WIDTH, HEADS * c["v_head_dim"]),
              mlp + "gate.weight": (c["n_routed_experts"], WIDTH), at + "eh_proj.weight": (WIDTH, 2 * WIDTH),
              mlp + "gate.e_score_correction_bias": (c["n_routed_experts"],)}
    for module in ["shared_experts", *(f"experts.{e}" for e in range(c["n_routed_experts"]))]:
        units = c["moe_intermediate_size"] * (c["n_shared_experts"] if module == "shared_experts" else 1)
        shapes |= {mlp + module + f".{n}_proj.weight": (units, WIDTH) for n in ("gate", "up")}
        shapes[mlp + module + ".down_proj.weight"] = (WIDTH, units)
    names = {"embedding_norm": at + "enorm.weight", "state_norm": at + "hnorm.weight",
             "norm": at + "shared_head.norm.weight"}
    shapes |= {n: (WIDTH,) for n in [*names.values(), at + "input_layernorm.weight",
                                     at + "post_attention_layernorm.weight"]}
    stored, meant = fp8_blocks(random_weights(seed, shapes))
    form = {"generation": "mtp", "theta": 10000.0, "norm_output": True, "layer": at, "config": c,
            "names": {"fc": at + "eh_proj.weight", **names}}
    config = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_nextn_predict_layers": 1,
              "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                      "weight_block_size": [BLOCK, BLOCK]},
              **{k: v for k, v in LAYER.items() if k != "head_dim"}, **LATENT, "num_key_value_heads": HEADS,
              "num_hidden_layers": 2}
    save(name, stored, config, {"taps": [-1]}, LatentHead(Target(), meant, form).round)


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
    write_latent("mtp_deepseek", len(HEADS_OF) + 1)
