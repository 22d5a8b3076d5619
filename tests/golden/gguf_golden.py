#!/usr/bin/env python3
"""Makes the tiny GGUF models and tokenizers under tests/data/gguf, and what must be read from them. Run by hand; needs
torch, transformers, tokenizers, sentencepiece, safetensors, xxhash and gguf. Arguments: names of models, if only these
are to be made.

A model NAME.gguf has NAME.json, the hash of every tensor as the package gguf dequantizes it, rounded to bf16, in
Hugging Face's order of rows; and tests/data/golden/NAME.gguf.safetensors, the fp32 logits that Transformers gives with
these weights. A tokenizer NAME.gguf has NAME.json, a hash of the ids that Transformers or SentencePiece gives.
"""

import json
import math
import pathlib
import sys

import gguf
import numpy
import torch
import xxhash
from gguf import GGMLQuantizationType as Type
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import gguf_tokenizers
from models_golden import LLAMA3_ROPE, frequencies_of

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
COMMON = dict(max_position_embeddings=256, bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5)
PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
LATENT = {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_k_b": "self_attn.k_b_proj",
    "attn_v_b": "self_attn.v_b_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
FUSED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
# Where a norm follows each sublayer.
POST_NORMED = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GPT_OSS = {"post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router"}
# name: architecture in GGUF, configuration, types by the end of a tensor's name (the rest: Q8_0 for matrices)
MODELS = {
    "k-quants": (
        "llama",
        LlamaConfig,
        dict(vocab_size=32, hidden_size=256, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, tie_word_embeddings=True),
        dict(token_embd=Type.Q6_K, attn_q=Type.Q4_K, attn_k=Type.Q5_K, attn_v=Type.Q6_K, attn_output=Type.Q5_0,
             ffn_gate=Type.Q5_K, ffn_up=Type.Q4_K),
    ),
    "quants": (
        "qwen3",
        Qwen3Config,
        dict(vocab_size=96, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, tie_word_embeddings=False),
        {"token_embd": Type.Q4_0, "output": Type.Q5_1, "0.attn_q": Type.Q4_0, "0.attn_k": Type.Q4_1,
         "0.attn_v": Type.Q5_0, "0.attn_output": Type.Q5_1, "1.attn_q": Type.F16, "1.attn_k": Type.BF16,
         "1.attn_v": Type.F32, "1.ffn_up": Type.Q4_0, "1.ffn_down": Type.Q4_1},
    ),
    "qwen2": (  # with a tokenizer and a chat template; the embedding has more rows than there are tokens
        "qwen2",
        Qwen2Config,
        dict(vocab_size=656, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
             num_key_value_heads=2, tie_word_embeddings=True),
        dict(attn_q=Type.Q4_0),
    ),
    "scaled": (  # every row of q and k is reordered, biases too; frequencies are scaled
        "llama",
        LlamaConfig,
        dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=24, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
             rope_parameters=LLAMA3_ROPE),
        dict(token_embd=Type.BF16, attn_q=Type.F16, attn_k=Type.F32, attn_v=Type.BF16, attn_output=Type.F16,
             output=Type.F32),
    ),
    "mixtral": (
        "llama",
        MixtralConfig,
        dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, num_local_experts=3, num_experts_per_tok=2),
        dict(ffn_gate_inp=Type.F32, ffn_gate_exps=Type.Q4_0, ffn_up_exps=Type.Q4_0),
    ),
    "qwen2moe": (
        "qwen2moe",
        Qwen2MoeConfig,
        dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=1, moe_intermediate_size=32, shared_expert_intermediate_size=64, num_experts=3,
             num_experts_per_tok=2),
        dict(ffn_gate_inp=Type.F32, ffn_down_exps=Type.F16),
    ),
    "qwen3moe": (
        "qwen3moe",
        Qwen3MoeConfig,
        dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, moe_intermediate_size=32, num_experts=5, num_experts_per_tok=2,
             norm_topk_prob=True),
        {"ffn_gate_inp": Type.F32, "0.ffn_down_exps": Type.Q4_1, "1.ffn_down_exps": Type.BF16},
    ),
    "gemma2": (
        "gemma2",
        Gemma2Config,
        dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16, sliding_window=6,
             attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
        dict(attn_q=Type.Q4_0, ffn_down=Type.F16),
    ),
    "gemma3": (
        "gemma3",
        Gemma3TextConfig,
        dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16, sliding_window=6, sliding_window_pattern=3,
             rope_parameters={"full_attention": dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                              "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}),
        dict(attn_v=Type.Q4_1, token_embd=Type.F16),
    ),
    "phi3": (
        "phi3",
        Phi3Config,
        dict(vocab_size=64, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, sliding_window=20, pad_token_id=0, original_max_position_embeddings=64,
             rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                                  original_max_position_embeddings=64,
                                  short_factor=[1.0, 1.0, 1.05, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.3, 2.6, 3.0],
                                  long_factor=[1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 18.0, 25.0, 30.0, 33.0])),
        dict(attn_qkv=Type.Q4_0, output=Type.F16),
    ),
    "olmo2": (
        "olmo2",
        Olmo2Config,
        dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
             num_key_value_heads=2, pad_token_id=0),
        dict(attn_q=Type.Q4_0),
    ),
    "smollm3": (  # layer 3 rotates nothing
        "smollm3",
        SmolLM3Config,
        dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, pad_token_id=0),
        dict(ffn_gate=Type.Q4_0, ffn_up=Type.Q4_0, ffn_down=Type.Q4_0, attn_output=Type.Q4_0, attn_v=Type.Q4_0),
    ),
    "gpt-oss": (
        "gpt-oss",
        GptOssConfig,
        dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, num_local_experts=3, num_experts_per_tok=2, sliding_window=6,
             rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, truncate=False,
                                  original_max_position_embeddings=32)),
        dict(ffn_gate_inp=Type.F32, ffn_gate_exps=Type.MXFP4, ffn_up_exps=Type.MXFP4, ffn_down_exps=Type.MXFP4),
    ),
    "deepseek2": (
        "deepseek2",
        DeepseekV3Config,
        dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=2, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=12, qk_rope_head_dim=8,
             v_head_dim=16, first_k_dense_replace=1, moe_intermediate_size=32, n_routed_experts=4, n_shared_experts=1,
             num_experts_per_tok=2, n_group=2, topk_group=1, num_nextn_predict_layers=0,
             rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, mscale=1.0, mscale_all_dim=1.0,
                                  original_max_position_embeddings=32)),
        dict(ffn_gate_inp=Type.F32, attn_k_b=Type.F16, ffn_gate_exps=Type.Q4_0, ffn_up_exps=Type.Q4_0),
    ),
}
MIXTURES = ("mixtral", "qwen2moe", "qwen3moe", "gpt-oss", "deepseek2")


def k_blocks(kind: Type, count: int, generator: numpy.random.Generator) -> numpy.ndarray:
    """Blocks of random codes and scales, [count, bytes], of weights whose average is near 0."""
    half = lambda values: numpy.asarray(values, numpy.float16).reshape(-1, 1).view(numpy.uint8)
    random = lambda n: generator.integers(0, 256, (count, n), dtype=numpy.uint8)
    if kind == Type.Q6_K:
        scales = generator.integers(-60, 60, (count, 16), dtype=numpy.int8).view(numpy.uint8)
        return numpy.concatenate([random(192), scales, half(generator.uniform(0.5, 1, count) * 1e-4)], axis=1)
    d = generator.uniform(0.5, 1, count) * (4e-4 if kind == Type.Q4_K else 2e-4)
    scales = generator.integers(0, 64, (count, 8))
    minima = numpy.clip(scales + generator.integers(-3, 4, (count, 8)), 0, 63)
    low = lambda v: (v[:, :4] & 63) | (v[:, 4:] >> 4) << 6
    packed = numpy.concatenate([low(scales), low(minima), (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4], axis=1)
    middle = 7.5 if kind == Type.Q4_K else 15.5
    return numpy.concatenate(
        [half(d), half(d * middle), packed.astype(numpy.uint8), random(128 if kind == Type.Q4_K else 160)], axis=1
    )


def stored(kind: Type, weight: numpy.ndarray, generator: numpy.random.Generator) -> numpy.ndarray:
    """The bytes of a matrix in a file. The package does not quantize to the K types: these get random blocks."""
    if kind not in (Type.Q4_K, Type.Q5_K, Type.Q6_K):
        return gguf.quants.quantize(weight, kind)
    blocks = k_blocks(kind, weight.size // 256, generator)
    return blocks.reshape(weight.shape[0], -1)


def permuted(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """As convert_hf_to_gguf.py reorders the rows of q and k of the architecture "llama"."""
    rows = (heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return weight.reshape(rows).swapaxes(1, 2).reshape(weight.shape)


def unpermuted(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    rows = (heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return weight.reshape(rows).swapaxes(1, 2).reshape(weight.shape)


def stored_less_one(config, theirs: str) -> bool:
    """Whether a file has this gain plus 1."""
    return isinstance(config, (Gemma2Config, Gemma3TextConfig)) and theirs.endswith("norm.weight")


def own_name(name: str, config) -> str:
    whole = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
             "model.norm.weight": "output_norm.weight"}
    if name in whole:
        return whole[name]
    _, _, layer, part = name.split(".", 3)
    if part == "self_attn.sinks":
        return f"blk.{layer}.attn_sinks.weight"
    if part == "mlp.gate.e_score_correction_bias":
        return f"blk.{layer}.exp_probs_b.bias"
    part, end = part.rsplit(".", 1)
    more = POST_NORMED if isinstance(config, (Gemma2Config, Gemma3TextConfig, Olmo2Config)) else {}
    if isinstance(config, GptOssConfig):
        parts = {own: theirs for own, theirs in PARTS.items() if own != "ffn_norm"} | GPT_OSS
        return f"blk.{layer}.{next(own for own, theirs in parts.items() if theirs == part)}.{end}"
    parts = PARTS | more | (FUSED if isinstance(config, Phi3Config) else {})
    if isinstance(config, DeepseekV3Config):
        parts |= LATENT
    return f"blk.{layer}.{next(own for own, theirs in parts.items() if theirs == part)}.{end}"


def write_gpt_oss_experts(writer: gguf.GGUFWriter, layer: str, fused: str, weight: numpy.ndarray, kinds: dict) -> dict:
    """The same: outputs are the last dimension, those of the gate and of up in turns."""
    bias, meant = fused.endswith("_bias"), {}
    stacks = dict(gate=weight[..., 0::2], up=weight[..., 1::2]) if "gate_up" in fused else {"down": weight}
    for part, stack in stacks.items():
        end = "bias" if bias else "weight"
        own = f"blk.{layer}.ffn_{part}_exps.{end}"
        kind = Type.F32 if bias else kind_of(own, stack, kinds)
        stack = numpy.ascontiguousarray(stack if bias else stack.swapaxes(1, 2))
        data = gguf.quants.quantize(stack, kind)
        writer.add_tensor(own, data, raw_dtype=kind)
        back = gguf.quants.dequantize(data, kind).reshape(stack.shape)
        for e in range(stack.shape[0]):
            meant[f"model.layers.{layer}.mlp.experts.{e}.{part}_proj.{end}"] = (kind, torch.tensor(back[e]))
    return meant


def write_experts(writer: gguf.GGUFWriter, config, theirs: str, weight: numpy.ndarray, kinds: dict, generator) -> dict:
    """The fused matrices of all experts as Transformers holds them, as tensors of a file; returns them by the names of
    checkpoints."""
    layer, fused = theirs.split(".")[2], theirs.split(".")[-1]
    if isinstance(config, GptOssConfig):
        return write_gpt_oss_experts(writer, layer, fused, weight, kinds)
    mixtral = isinstance(config, MixtralConfig)
    names = dict(gate="w1", up="w3", down="w2") if mixtral else {n: f"{n}_proj" for n in ("gate", "up", "down")}
    parts = dict(zip(("gate", "up"), numpy.split(weight, 2, axis=1))) if fused == "gate_up_proj" else {"down": weight}
    meant = {}
    for part, matrices in parts.items():
        own = f"blk.{layer}.ffn_{part}_exps.weight"
        kind = kind_of(own, matrices, kinds)
        matrices = numpy.ascontiguousarray(matrices)
        data = gguf.quants.quantize(matrices, kind)
        writer.add_tensor(own, data, raw_dtype=kind)
        back = gguf.quants.dequantize(data, kind).reshape(matrices.shape)
        module = f"model.layers.{layer}.{'block_sparse_moe' if mixtral else 'mlp'}.experts"
        for e in range(matrices.shape[0]):
            meant[f"{module}.{e}.{names[part]}.weight"] = (kind, torch.tensor(back[e]))
    return meant


def fused_gpt_oss(weights: dict) -> dict:
    whole = {name: value for name, value in weights.items() if ".experts." not in name}
    for module in {name.split(".experts.")[0] + ".experts" for name in weights if ".experts." in name}:
        count = sum(name.startswith(module) for name in weights) // 6
        of = lambda part, end: torch.stack([weights[f"{module}.{e}.{part}_proj.{end}"] for e in range(count)])
        turns = lambda end: torch.stack([of("gate", end), of("up", end)], dim=2).flatten(1, 2)
        whole[f"{module}.gate_up_proj"] = turns("weight").transpose(1, 2).contiguous()
        whole[f"{module}.gate_up_proj_bias"] = turns("bias")
        whole[f"{module}.down_proj"] = of("down", "weight").transpose(1, 2).contiguous()
        whole[f"{module}.down_proj_bias"] = of("down", "bias")
    return whole


def fused(weights: dict) -> dict:
    """Matrices of experts by the names of checkpoints as Transformers holds them."""
    found, whole = {}, {}
    biased = any(".experts." in name and name.endswith(".bias") for name in weights)  # gpt-oss
    if biased:
        return fused_gpt_oss(weights)
    for name, value in weights.items():
        if ".experts." not in name:
            whole[name.replace("block_sparse_moe", "mlp")] = value
            continue
        module, rest = name.split(".experts.")
        expert, matrix, _ = rest.split(".")
        part = {"w1": "gate", "w3": "up", "w2": "down"}.get(matrix, matrix.removesuffix("_proj"))
        found.setdefault(module.replace("block_sparse_moe", "mlp"), {})[part, int(expert)] = value
    for module, parts in found.items():
        of = lambda part: torch.stack([parts[part, e] for e in range(len(parts) // 3)])
        whole[f"{module}.experts.gate_up_proj"] = torch.cat([of("gate"), of("up")], dim=1)
        whole[f"{module}.experts.down_proj"] = of("down")
    return whole


def kind_of(name: str, weight: numpy.ndarray, kinds: dict) -> Type:
    if weight.ndim == 1:
        return Type.F32
    part = name.removeprefix("blk.").removesuffix(".weight")
    return next((kind for end, kind in kinds.items() if end in (part, part.split(".")[-1])), Type.Q8_0)


def write_latent_shape(writer: gguf.GGUFWriter, c) -> None:
    writer.add_q_lora_rank(c.q_lora_rank)
    writer.add_kv_lora_rank(c.kv_lora_rank)
    writer.add_key_length_mla(c.qk_nope_head_dim + c.qk_rope_head_dim)
    writer.add_value_length_mla(c.v_head_dim)
    writer.add_leading_dense_block_count(c.first_k_dense_replace)
    writer.add_expert_shared_count(c.n_shared_experts)
    writer.add_expert_group_count(c.n_group)
    writer.add_expert_group_used_count(c.topk_group)
    writer.add_expert_weights_scale(c.routed_scaling_factor)
    writer.add_expert_weights_norm(c.norm_topk_prob)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_rope_scaling_yarn_log_mul(0.1 * c.rope_parameters["mscale_all_dim"])


def split_kv_b(config, theirs: str, weight: numpy.ndarray) -> dict[str, numpy.ndarray]:
    """Keys and values of each head, as llama.cpp applies them to queries and to what is attended to."""
    both = weight.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
    plain = config.qk_nope_head_dim
    key, value = both[:, :plain].swapaxes(1, 2), both[:, plain:]
    return {theirs.replace("kv_b", "k_b"): key, theirs.replace("kv_b", "v_b"): value}


def joined_kv_b(config, weights: dict) -> dict:
    whole = dict(weights)
    for name in [n for n in weights if n.endswith("k_b_proj.weight")]:
        heads, rank = config.num_attention_heads, config.kv_lora_rank
        key = whole.pop(name).view(heads, rank, -1).transpose(1, 2)
        value = whole.pop(name.replace("k_b", "v_b")).view(heads, -1, rank)
        whole[name.replace("k_b", "kv_b")] = torch.cat([key, value], 1).reshape(-1, rank)
    return whole


def write_shape(writer: gguf.GGUFWriter, c) -> None:
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    latent = isinstance(c, DeepseekV3Config)
    writer.add_head_count_kv(1 if latent else c.num_key_value_heads)
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    writer.add_key_length(c.kv_lora_rank + c.qk_rope_head_dim if latent else head)
    writer.add_value_length(c.kv_lora_rank if latent else head)
    writer.add_rope_dimension_count(int(head * c.rope_parameters.get("partial_rotary_factor", 1)))
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if isinstance(c, Gemma2Config):
        writer.add_attn_logit_softcapping(c.attn_logit_softcapping)
        writer.add_final_logit_softcapping(c.final_logit_softcapping)
    if rope["rope_type"] == "longrope":
        old = rope["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(old)
        writer.add_rope_scaling_attn_factors((1 + math.log(c.max_position_embeddings / old) / math.log(old)) ** 0.5)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if isinstance(c, DeepseekV3Config):
        write_latent_shape(writer, c)
    if isinstance(c, GptOssConfig):
        writer.add_expert_feed_forward_length(c.intermediate_size)
    if isinstance(c, (Gemma2Config, Gemma3TextConfig, Phi3Config, GptOssConfig)):
        writer.add_sliding_window(c.sliding_window)
    if isinstance(c, Gemma3TextConfig):
        writer.add_sliding_window_pattern(1 + c.layer_types.index("full_attention"))
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_vocab_size(c.vocab_size)
    if hasattr(c, "num_experts_per_tok"):
        writer.add_expert_count(c.num_local_experts if hasattr(c, "num_local_experts") else c.num_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)
    if hasattr(c, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    if hasattr(c, "shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)


def rope_divisors(c) -> numpy.ndarray:
    """Llama 3's, as convert_hf_to_gguf.py computes them."""
    rope, head = c.rope_parameters, c.head_dim
    frequencies = 1.0 / rope["rope_theta"] ** (torch.arange(0, head, 2, dtype=torch.float32) / head)
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    divisors = []
    for wavelength in (2 * numpy.pi / f.item() for f in frequencies):
        smooth = min(max((old / wavelength - low) / (high - low), 0), 1)
        divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return numpy.array(divisors, numpy.float32)


def write_model(name: str, file: pathlib.Path):
    """Writes the file; returns the configuration and the weights that it means, by Hugging Face name."""
    architecture, make_config, shape, kinds = MODELS[name]
    config = make_config(**COMMON, **shape)
    generator = numpy.random.default_rng(len(name))
    writer = gguf.GGUFWriter(file, architecture)
    write_shape(writer, config)
    writer.add_quantization_version(2)
    if name == "qwen2":
        gguf_tokenizers.write_qwen2(writer, DATA, config.vocab_size)
    else:
        gguf_tokenizers.write_numbered(writer, config.vocab_size)
    meant = {}
    for theirs, parameter in AutoModelForCausalLM.from_config(config).state_dict().items():
        if theirs == "lm_head.weight" and config.tie_word_embeddings:
            continue
        noise = generator.standard_normal(tuple(parameter.shape), dtype=numpy.float32)
        weight = 1 + 0.2 * noise if theirs.endswith("norm.weight") else noise * 1.2 / parameter.shape[-1] ** 0.5
        if ".experts." in theirs:
            meant |= write_experts(writer, config, theirs, weight, kinds, generator)
            continue
        if theirs.endswith("shared_expert_gate.weight"):
            weight = weight[0]
        if theirs.endswith("kv_b_proj.weight"):
            for part, matrices in split_kv_b(config, theirs, weight).items():
                own = own_name(part, config)
                kind = kind_of(own, matrices, kinds)
                data = gguf.quants.quantize(numpy.ascontiguousarray(matrices), kind)
                writer.add_tensor(own, data, raw_dtype=kind)
                back = gguf.quants.dequantize(data, kind).reshape(-1, matrices.shape[-1])
                meant[part] = (kind, torch.tensor(back))
            continue
        own, heads = own_name(theirs, config), 0
        if architecture in ("llama", "smollm3") and ".q_proj." in theirs:
            heads = config.num_attention_heads
        if architecture in ("llama", "smollm3") and ".k_proj." in theirs:
            heads = config.num_key_value_heads
        kind = kind_of(own, weight, kinds)
        data = stored(kind, permuted(weight, heads) if heads else weight, generator)
        writer.add_tensor(own, data, raw_dtype=kind)
        back = gguf.quants.dequantize(data, kind).reshape(weight.shape)
        if theirs.endswith("shared_expert_gate.weight"):
            back = back[None]
        if isinstance(config, MixtralConfig):
            theirs = theirs.replace(".mlp.", ".block_sparse_moe.")
        meant[theirs] = (kind, torch.tensor(unpermuted(back, heads) if heads else back))
    if config.rope_parameters.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(config))
    if config.rope_parameters.get("rope_type") == "longrope":
        for length in ("long", "short"):
            factors = numpy.array(config.rope_parameters[f"{length}_factor"], numpy.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return config, meant


def read_by_transformers(file: pathlib.Path, config, meant: dict) -> None:
    """Transformers' own reader of GGUF must find the same weights. It does not reorder biases."""
    model = AutoModelForCausalLM.from_config(config)
    found = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    for theirs, (_, value) in meant.items():
        if not theirs.endswith(".bias"):
            assert torch.equal(found[theirs].float(), value - int(stored_less_one(config, theirs))), theirs


@torch.no_grad()
def write_golden(name: str, config, meant: dict) -> dict:
    hashes, weights = {}, {}
    for theirs, (kind, value) in meant.items():
        rounded = value if kind in (Type.F32, Type.F16, Type.BF16) else value.bfloat16().float()
        weights[theirs] = rounded - int(stored_less_one(config, theirs))
        hashes[theirs] = {"type": kind.name, "hash": xxhash.xxh3_64_hexdigest(rounded.bfloat16().view(torch.int16)
                                                                               .numpy().tobytes())}
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    missing, unexpected = model.load_state_dict(joined_kv_b(config, fused(weights)), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    tensors = frequencies_of(model)
    prompts = torch.Generator().manual_seed(11)
    for i, n in enumerate((1, 7, 12) if name in ("olmo2", "smollm3", "gpt-oss", "deepseek2") else (1, 7, 40)):
        ids = torch.randint(0, config.vocab_size, (n,), generator=prompts)
        tensors[f"ids{i}"] = ids.int()
        logits = model(ids[None]).logits[0]
        tensors[f"logits{i}"] = (logits[-1:] if name == "qwen2" else logits).contiguous().clone()
    save_file(tensors, DATA / "golden" / f"{name}.gguf.safetensors")
    return {"tensors": hashes} | ({"ids": gguf_tokenizers.qwen2_ids(DATA)} if name == "qwen2" else {})


def main() -> None:
    (DATA / "gguf").mkdir(exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        file = DATA / "gguf" / f"{name}.gguf"
        config, meant = write_model(name, file)
        if name not in (*MIXTURES, "olmo2", "smollm3"):  # it stacks experts, or does not know the architecture
            read_by_transformers(file, config, meant)
        golden = write_golden(name, config, meant)
        (DATA / "gguf" / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n")
    if not sys.argv[1:]:
        gguf_tokenizers.write_all(DATA)


if __name__ == "__main__":
    main()
