"""A Llama in PyTorch whose parameter names are Hugging Face's, its cached generation, and its directory on disk."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from .data import EOS, EOS_ID, VOCAB


@dataclass
class Shape:
    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    context: int = 2048
    theta: float = 10000.0
    eps: float = 1e-5
    vocab: int = VOCAB
    eos: int = EOS_ID
    tied: bool = True


SHAPES = {
    "target": Shape(dim=384, layers=8, heads=6, kv_heads=2, head_dim=64, ffn=1024),
    "draft": Shape(dim=128, layers=2, heads=4, kv_heads=2, head_dim=32, ffn=512),
    "draft-large": Shape(dim=256, layers=2, heads=8, kv_heads=2, head_dim=32, ffn=640),
}


def rotary(shape, length, device):
    rates = 1.0 / shape.theta ** (
        torch.arange(0, shape.head_dim, 2, device=device, dtype=torch.float32) / shape.head_dim
    )
    angles = torch.arange(length, device=device, dtype=torch.float32)[:, None] * rates
    return torch.stack([angles.cos(), angles.sin()])  # [2, length, head_dim / 2]


def rotate(x, table):
    """x [..., head_dim], table [2, ..., head_dim / 2]; the half-rotation convention."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = table[0], table[1]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.shape = s
        self.q_proj = nn.Linear(s.dim, s.heads * s.head_dim, bias=False)
        self.k_proj = nn.Linear(s.dim, s.kv_heads * s.head_dim, bias=False)
        self.v_proj = nn.Linear(s.dim, s.kv_heads * s.head_dim, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.dim, bias=False)

    def project(self, x):
        s = self.shape
        weight = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        parts = F.linear(x, weight).split(
            [s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim], dim=-1
        )
        return [p.unflatten(-1, (-1, s.head_dim)).transpose(1, 2) for p in parts]  # [b, heads, t, head_dim]

    def forward(self, x, table):
        q, k, v = self.project(x)
        q, k = rotate(q, table), rotate(k, table)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2)), k, v

    def step(self, x, table, keys, values, rows, position, mask):
        """One token a row: writes the cache at `position` and attends to what `mask` admits."""
        q, k, v = self.project(x)
        q, k = rotate(q, table), rotate(k, table)
        keys[rows, :, position] = k[:, :, 0]
        values[rows, :, position] = v[:, :, 0]
        reach = mask.shape[-1]
        grouped = q.unflatten(1, (self.shape.kv_heads, -1))[:, :, :, 0]  # the query heads of one key head as rows
        y = F.scaled_dot_product_attention(grouped, keys[:, :, :reach], values[:, :, :reach], attn_mask=mask)
        return self.o_proj(y.flatten(1)[:, None])


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s.dim, s.ffn, bias=False)
        self.up_proj = nn.Linear(s.dim, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.dim, bias=False)

    def forward(self, x):
        gate, up = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight])).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


class Norm(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(s.dim))
        self.eps = s.eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight.float()).to(x.dtype)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm = Norm(s)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = Norm(s)
        self.mlp = Mlp(s)

    def forward(self, x, table):
        return self.with_cache(x, table)[0]

    def with_cache(self, x, table):
        y, k, v = self.self_attn(self.input_layernorm(x), table)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), k, v

    def step(self, x, *rest):
        x = x + self.self_attn.step(self.input_layernorm(x), *rest)
        return x + self.mlp(self.post_attention_layernorm(x))


class Stack(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab, s.dim)
        self.layers = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = Norm(s)


class Llama(nn.Module):
    """`forward` returns the normed hidden states; the head is `embed_tokens.weight`, unless the shape is not tied."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.model = Stack(shape)
        if not shape.tied:
            self.lm_head = nn.Linear(shape.dim, shape.vocab, bias=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                scale = 0.02 / (2 * shape.layers) ** 0.5 if "o_proj" in name or "down_proj" in name else 0.02
                nn.init.normal_(p, std=scale)

    @property
    def head(self):
        return self.model.embed_tokens.weight if self.shape.tied else self.lm_head.weight

    def forward(self, tokens, dtype=torch.bfloat16):
        x = self.model.embed_tokens(tokens).to(dtype)
        table = rotary(self.shape, tokens.shape[1], tokens.device)
        for layer in self.model.layers:
            x = layer(x, table)
        return self.model.norm(x)

    def compile_blocks(self):
        for layer in self.model.layers:
            layer.compile(dynamic=False)
        return self

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters())


def choose(logits, temperature, generator):
    if temperature == 0:
        return logits.argmax(-1)
    noise = torch.empty(logits.shape, device=logits.device).exponential_(generator=generator)
    return (logits.float() / temperature - noise.log()).argmax(-1)


@torch.no_grad()
def generate(model, prompts, lengths, count, temperature=0.0, generator=None):
    """Continues right-padded prompts [b, width] by up to `count` tokens, in the dtype of the weights.

    Returns (rows [b, width + count], total lengths). A row stops after its end-of-text token and is padded with it.
    """
    batch, width = prompts.shape
    device, dtype, s = prompts.device, model.head.dtype, model.shape
    table = rotary(s, width + count, device)
    cache = torch.zeros(s.layers, 2, batch, s.kv_heads, width + count, s.head_dim, device=device, dtype=dtype)
    x = model.model.embed_tokens(prompts)
    for i, layer in enumerate(model.model.layers):
        x, k, v = layer.with_cache(x, table[:, :width])
        cache[i, 0, :, :, :width], cache[i, 1, :, :, :width] = k, v
    rows = torch.arange(batch, device=device)
    x = model.model.norm(x[rows, lengths - 1])
    out = torch.cat([prompts, torch.full((batch, count), s.eos, device=device)], dim=1)
    out[torch.arange(width + count, device=device) >= lengths[:, None]] = s.eos
    position, total = lengths.clone(), lengths.clone()
    alive = torch.ones(batch, dtype=torch.bool, device=device)
    columns, longest = torch.arange(width + count, device=device), int(lengths.max())
    for step in range(count):
        token = torch.where(alive, choose(F.linear(x, model.head), temperature, generator), s.eos)
        out[rows, position] = token
        total += alive
        alive &= token != s.eos
        if step + 1 == count or (step % 16 == 15 and not alive.any()):
            break
        reach = longest + step + 1
        mask = (columns[:reach] <= position[:, None])[:, None, None]
        x = model.model.embed_tokens(token)[:, None]
        here = table[:, position][:, :, None, None]
        for i, layer in enumerate(model.model.layers):
            x = layer.step(x, here, cache[i, 0], cache[i, 1], rows, position, mask)
        x = model.model.norm(x[:, 0])
        position = position + 1
    return out, total


def save(model, folder, tokenizer):
    """Writes the Hugging Face directory: bf16 weights, config, tokenizer, generation defaults."""
    s, folder = model.shape, Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.detach().to(torch.bfloat16).cpu().contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": s.vocab, "hidden_size": s.dim,
        "intermediate_size": s.ffn, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads, "head_dim": s.head_dim, "hidden_act": "silu",
        "max_position_embeddings": s.context, "rms_norm_eps": s.eps, "rope_theta": s.theta, "rope_scaling": None,
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": s.tied, "initializer_range": 0.02,
        "bos_token_id": s.eos, "eos_token_id": s.eos, "use_cache": True, "torch_dtype": "bfloat16"}
    generation = {"bos_token_id": s.eos, "eos_token_id": s.eos, "pad_token_id": s.eos}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": EOS, "eos_token": EOS, "pad_token": EOS,
             "add_bos_token": False, "add_prefix_space": False, "clean_up_tokenization_spaces": False,
             "model_max_length": s.context}
    for name, value in (
        ("config.json", config),
        ("generation_config.json", generation),
        ("tokenizer_config.json", about),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))


def shape_in(folder):
    """Of a Hugging Face directory. What this model does not compute, its configuration must not ask for."""
    config = json.loads((Path(folder) / "config.json").read_text())
    for key in ("rope_scaling", "attention_bias", "mlp_bias", "sliding_window"):
        if config.get(key):
            raise SystemExit(f"{folder}/config.json has {key}, which this training code lacks; "
                             "choose a Llama without it, or the trainer of the head's publisher")
    if config.get("model_type") != "llama":
        raise SystemExit(f"{folder} is a {config.get('model_type')}; this training code has Llama models only")
    eos, heads = config.get("eos_token_id", EOS_ID), config["num_attention_heads"]
    return Shape(
        dim=config["hidden_size"], layers=config["num_hidden_layers"], heads=heads,
        kv_heads=config.get("num_key_value_heads", heads), ffn=config["intermediate_size"],
        head_dim=config.get("head_dim") or config["hidden_size"] // heads, context=config["max_position_embeddings"],
        theta=config.get("rope_theta", 10000.0), eps=config["rms_norm_eps"], vocab=config["vocab_size"],
        eos=eos[0] if isinstance(eos, list) else eos, tied=config.get("tie_word_embeddings", False))


def load(name, folder, device, dtype=torch.float32):
    """The weights as saved, in `dtype`; the shape of `name`, or without one that of the directory's configuration."""
    model = Llama(SHAPES[name] if name else shape_in(folder))
    weights = {k: v.float() for file in sorted(Path(folder).glob("*.safetensors")) for k, v in load_file(file).items()}
    if model.shape.tied:
        weights.pop("lm_head.weight", None)
    model.load_state_dict(weights)
    return model.to(device=device, dtype=dtype)


def shape_line(name, model):
    return f"{name}: {model.parameter_count()} parameters, {asdict(model.shape)}"
