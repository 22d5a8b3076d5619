"""Tiny random models of the Llama family (Llama, Mistral, Qwen2, Qwen3, Gemma 2 and 3, Phi-3, OLMo 2, SmolLM3) and of
its mixtures of experts (gpt-oss, DeepSeek-V2 and V3 among them), and the fp32 logits that Transformers gives for a few
prompts."""

import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    DeepseekV2Config,
    DeepseekV3Config,
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

import texts

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
}
DEEPSEEK_ROPE = {**YARN_ROPE, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.8}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
COMMON = dict(vocab_size=96, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, hidden_act="silu")
# name: configuration (of Llama, where "kind" does not say otherwise), dtype, other arguments of save_pretrained
MODELS = {
    "llama2": (
        dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4),
        torch.float32,
        {},
    ),
    "llama3": (
        dict(
            hidden_size=48,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=24,
            tie_word_embeddings=True,
            rope_parameters=LLAMA3_ROPE,
        ),
        torch.float32,
        {},
    ),
    "linear": (
        dict(
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=3,
            rope_parameters=LINEAR_ROPE,
        ),
        torch.float32,
        {},
    ),
    "sharded": (
        dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2),
        torch.float32,
        dict(max_shard_size="24KB"),
    ),
    "bf16": (
        dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1),
        torch.bfloat16,
        {},
    ),
    "f16": (
        dict(
            hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, tie_word_embeddings=True
        ),
        torch.float16,
        {},
    ),
    "mistral": (
        dict(
            kind=MistralConfig,
            hidden_size=64,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=9,
        ),
        torch.float32,
        {},
    ),
    "qwen2": (
        dict(
            kind=Qwen2Config,
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        ),
        torch.float32,
        {},
    ),
    "qwen3": (
        dict(
            kind=Qwen3Config,
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=20,
        ),
        torch.float32,
        {},
    ),
    "biased": (
        dict(
            hidden_size=40,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            attention_bias=True,
            mlp_bias=True,
        ),
        torch.float32,
        {},
    ),
    "mixtral": (
        dict(
            kind=MixtralConfig,
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=9,
            num_local_experts=4,
            num_experts_per_tok=2,
        ),
        torch.bfloat16,
        {},
    ),
    "qwen2_moe": (
        dict(
            kind=Qwen2MoeConfig,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=32,
            num_experts=5,
            num_experts_per_tok=2,
            sliding_window=None,
        ),
        torch.float32,
        {},
    ),
    # Layers 0 and 2 are dense by the step, layer 1 by its number.
    "qwen3_moe": (
        dict(
            kind=Qwen3MoeConfig,
            hidden_size=40,
            intermediate_size=32,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=20,
            moe_intermediate_size=16,
            num_experts=12,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            decoder_sparse_step=2,
            mlp_only_layers=[1],
        ),
        torch.float32,
        {},
    ),
    # Layers 0 and 2 have a window. The caps are low, so that the numbers of a tiny model come near them.
    "gemma2": (
        dict(
            kind=Gemma2Config,
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            query_pre_attn_scalar=12,
            sliding_window=9,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=4.0,
        ),
        torch.float32,
        {},
    ),
    # Layers 2 and 3 attend to all positions.
    "gemma3": (
        dict(
            kind=Gemma3TextConfig,
            hidden_size=40,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=20,
            query_pre_attn_scalar=20,
            sliding_window=9,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "full_attention"],
            rope_parameters={
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        ),
        torch.float32,
        {},
    ),
    # Three quarters of a head are rotated, and scaled; the prompts are within the original length.
    "phi3": (
        dict(
            kind=Phi3Config,
            hidden_size=64,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            original_max_position_embeddings=128,
            pad_token_id=0,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                "original_max_position_embeddings": 128,
                "short_factor": [1.0, 1.05, 1.2, 1.5, 2.0, 2.75],
                "long_factor": [1.0, 1.5, 3.0, 9.0, 20.0, 33.0],
            },
        ),
        torch.float32,
        {},
    ),
}
SMALL = dict(hidden_size=32, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2)
# Small, and with short prompts: what is committed has a limit.
SMALL_MODELS = {
    "olmo2": (
        dict(kind=Olmo2Config, num_hidden_layers=2, tie_word_embeddings=True, pad_token_id=0, **SMALL),
        torch.bfloat16,
        {},
    ),
    # Layer 1 rotates nothing.
    "smollm3": (
        dict(kind=SmolLM3Config, num_hidden_layers=2, no_rope_layers=[1, 0], pad_token_id=0, **SMALL),
        torch.bfloat16,
        {},
    ),
    # Layer 0 has a window. Experts are stored as MXFP4.
    "gpt_oss": (
        dict(
            kind=GptOssConfig,
            num_hidden_layers=2,
            head_dim=8,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=9,
            swiglu_limit=1.5,
            rope_parameters=DEEPSEEK_ROPE | dict(rope_theta=150000.0, truncate=False),
            **SMALL,
        ),
        torch.bfloat16,
        {},
    ),
    "gemma3_vision": (
        dict(
            kind=Gemma3Config,
            text_config=dict(
                vocab_size=96,
                max_position_embeddings=256,
                num_hidden_layers=2,
                head_dim=8,
                query_pre_attn_scalar=20,
                sliding_window=9,
                layer_types=["sliding_attention", "full_attention"],
                eos_token_id=2,
                bos_token_id=1,
                **SMALL | dict(hidden_size=16),  # its root is a number of bf16
            ),
            vision_config=dict(
                hidden_size=8,
                intermediate_size=8,
                num_hidden_layers=1,
                num_attention_heads=1,
                image_size=8,
                patch_size=4,
                vision_use_head=False,
            ),
            mm_tokens_per_image=4,
            boi_token_index=3,
            eoi_token_index=4,
            image_token_index=5,
        ),
        torch.bfloat16,
        {},
    ),
    # As V2-Lite: queries are products with the input; layer 0 is dense.
    "deepseek2_lite": (
        dict(
            kind=DeepseekV2Config,
            hidden_size=24,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            q_lora_rank=None,
            kv_lora_rank=20,
            qk_nope_head_dim=12,
            qk_rope_head_dim=8,
            v_head_dim=10,
            first_k_dense_replace=1,
            moe_intermediate_size=8,
            n_routed_experts=6,
            n_shared_experts=2,
            num_experts_per_tok=2,
        ),
        torch.bfloat16,
        {},
    ),
    "deepseek2": (
        dict(
            kind=DeepseekV2Config,
            hidden_size=24,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            rms_norm_eps=1e-3,
            q_lora_rank=16,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            qk_rope_head_dim=12,
            v_head_dim=16,
            first_k_dense_replace=1,
            moe_intermediate_size=8,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=3,
            topk_method="group_limited_greedy",
            n_group=4,
            topk_group=2,
            routed_scaling_factor=4.0,
            rope_parameters=DEEPSEEK_ROPE,
        ),
        torch.bfloat16,
        {},
    ),
    "deepseek3": (
        dict(
            kind=DeepseekV3Config,
            hidden_size=24,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=3,
            q_lora_rank=16,
            kv_lora_rank=24,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=12,
            first_k_dense_replace=1,
            moe_intermediate_size=8,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=3,
            n_group=4,
            topk_group=2,
            num_nextn_predict_layers=0,
            rope_parameters=DEEPSEEK_ROPE,
        ),
        torch.bfloat16,
        {},
    ),
}
MODELS |= SMALL_MODELS
ONE_LESS = ("gemma2", "gemma3", "gemma3_vision")  # their gains are stored less 1


def as_version_4(file: pathlib.Path) -> None:
    """Rewrites a config.json as Transformers 4 wrote it: rope_theta beside rope_scaling, no head_dim."""
    data = json.loads(file.read_text())
    rope = data.pop("rope_parameters")
    data["rope_theta"] = rope.pop("rope_theta")
    data["rope_scaling"] = None if rope["rope_type"] == "default" else {"type": rope.pop("rope_type"), **rope}
    data["torch_dtype"] = data.pop("dtype")
    del data["head_dim"]
    file.write_text(json.dumps(data, indent=2) + "\n")


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def store_as_mxfp4(model, directory: pathlib.Path) -> None:
    """Rewrites a saved gpt-oss as it is published: experts as codes and exponents, [experts, outputs, inputs / 32]."""
    file = directory / "model.safetensors"
    tensors = load_file(file)
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        groups = tensors.pop(name).float().transpose(1, 2).unflatten(2, (-1, 32))
        exponents = (groups.abs().amax(-1, keepdim=True) / 6).log2().ceil()
        codes = ((groups / exponents.exp2()).unsqueeze(-1) - FP4).abs().argmin(-1)
        tensors[f"{name}_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
        tensors[f"{name}_scales"] = (exponents.squeeze(-1) + 127).to(torch.uint8)
    save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
        "quant_method": "mxfp4",
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load_mxfp4(model, directory: pathlib.Path) -> None:
    """Gives the experts of a model the numbers that are stored."""
    stored = load_file(directory / "model.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f"{name}_blocks" not in stored:
                parameter.copy_(stored[name].float())
                continue
            blocks, exponents = stored[f"{name}_blocks"].long(), stored[f"{name}_scales"].float() - 127
            codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2)
            numbers = FP4[codes] * exponents.exp2().unsqueeze(-1)
            parameter.copy_(numbers.flatten(2).transpose(1, 2))


def write_tiny(folder: pathlib.Path, only: tuple[str, ...] = ()) -> dict[str, pathlib.Path]:
    written = {}
    for seed, (name, (shape, dtype, saving)) in enumerate(MODELS.items()):
        if only and name not in only:
            continue
        directory = folder / name
        shutil.rmtree(directory, ignore_errors=True)
        kind = shape.pop("kind", LlamaConfig)
        model = model_class(name).from_config(
            kind(**({} if name == "gemma3_vision" else COMMON), **shape), dtype=torch.float32
        )
        generator = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                gain = (0 if name in ONE_LESS else 1) + 0.2 * noise
                parameter.copy_(gain if parameter.dim() == 1 else noise * 1.2 / parameter.shape[-1] ** 0.5)
            for buffer_name, buffer in model.named_buffers():
                if buffer_name.endswith("e_score_correction_bias"):
                    buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))
        model.to(dtype).save_pretrained(directory, **saving)
        if name == "gpt_oss":
            store_as_mxfp4(model, directory)
        if name in ("llama2", "linear"):
            as_version_4(directory / "config.json")
        written[name] = directory
    return written


def model_class(name: str):
    return AutoModelForImageTextToText if name == "gemma3_vision" else AutoModelForCausalLM


def load_model(name: str, directory: pathlib.Path):
    if name != "gpt_oss":
        return model_class(name).from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    config = GptOssConfig.from_pretrained(directory)
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    load_mxfp4(model, directory)
    return model


def frequencies_of(model) -> dict[str, torch.Tensor]:
    rotation = getattr(model.model, "language_model", model.model).rotary_emb
    if not hasattr(rotation, "sliding_attention_inv_freq"):
        return {"frequencies": rotation.inv_freq.float().clone()}
    return {
        "frequencies": rotation.full_attention_inv_freq.float().clone(),
        "local_frequencies": rotation.sliding_attention_inv_freq.float().clone(),
    }


@torch.no_grad()
def write_golden(
    name: str, directory: pathlib.Path, folder: pathlib.Path, prompts: list[list[int]], last_only: bool
) -> None:
    """NAME.safetensors: ids{i} i32 [n], logits{i} f32 [n or 1, vocab], frequencies f32 [head_size / 2], and
    local_frequencies of layers with a window, where these have others."""
    model = load_model(name, directory)
    tensors = frequencies_of(model)
    for i, ids in enumerate(prompts):
        logits = model(torch.tensor([ids])).logits[0]
        tensors[f"ids{i}"] = torch.tensor(ids, dtype=torch.int32)
        tensors[f"logits{i}"] = (logits[-1:] if last_only else logits).contiguous().clone()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / f"{name}.safetensors")


@torch.no_grad()
def write_long(models: pathlib.Path, folder: pathlib.Path) -> None:
    """phi3_long.safetensors: phi3 with an original length of 8, so that Transformers takes the long factors."""
    config = Phi3Config.from_pretrained(models / "phi3")
    config.original_max_position_embeddings = config.rope_parameters["original_max_position_embeddings"] = 8
    model = AutoModelForCausalLM.from_pretrained(
        models / "phi3", config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tensors = {}
    for i, ids in enumerate(random_prompts((12,))):
        logits = model(torch.tensor([ids])).logits[0]
        tensors |= {f"ids{i}": torch.tensor(ids, dtype=torch.int32), f"logits{i}": logits.contiguous().clone()}
    save_file(tensors, folder / "phi3_long.safetensors")


def random_prompts(lengths: tuple[int, ...] = (1, 7, 60)) -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(0, COMMON["vocab_size"], (n,), generator=generator).tolist() for n in lengths]


def prompts_of(name: str) -> list[list[int]]:
    return random_prompts((1, 5, 12) if name in SMALL_MODELS else (1, 7, 60))


def text_prompts(directory: pathlib.Path) -> list[list[int]]:
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return [tokenizer.encode(" ".join(texts.corpus()[4 * i:4 * i + 1 + i % 4])).ids for i in range(8)]
