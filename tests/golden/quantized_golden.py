#!/usr/bin/env python3
"""Makes tiny quantized checkpoints under tests/data/quantized, each packed by its format's own package, and
tests/data/golden/NAME.safetensors: the quantized matrices as bf16 numbers, and the fp32 logits that Transformers gives
with them. Run by hand; needs torch, transformers, compressed-tensors, bitsandbytes, auto-gptq (--no-deps) and, for awq
and gptq_v2, gptqmodel.

  quantized_golden.py [NAME ...]
"""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import compressed_quantizer
import quantizers
import torch
from models_golden import random_prompts
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig, Qwen2Config, Qwen3MoeConfig

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
SHAPE = dict(
    vocab_size=96,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    hidden_act="silu",
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
)
TIED = dict(tie_word_embeddings=True)
# name: (class of the configuration, its other arguments), quantizer, its arguments
CASES = {
    "gptq": ((LlamaConfig, TIED), quantizers.gptq, dict(bits=4, group=32, symmetric=True)),
    "gptq-act-order": (
        (Qwen2Config, TIED),
        quantizers.gptq,
        dict(bits=4, group=16, symmetric=False, act_order=True),
    ),
    "gptq-8": ((LlamaConfig, TIED), quantizers.gptq, dict(bits=8, group=-1, symmetric=True)),
    "gptq-8-asymmetric": ((LlamaConfig, TIED), quantizers.gptq, dict(bits=8, group=32, symmetric=False)),
    "gptq-v2": ((LlamaConfig, TIED), quantizers.gptqmodel, dict(bits=4, group=32, checkpoint_format="gptq_v2")),
    "gptq-wrapped": ((LlamaConfig, TIED), quantizers.gptqmodel, dict(bits=4, group=32, checkpoint_format="gptq")),
    "awq": ((LlamaConfig, {}), quantizers.awq, dict(group=32)),
    "bnb-nf4": ((LlamaConfig, TIED), quantizers.bitsandbytes_4bit, dict(kind="nf4", double=False)),
    "bnb-nf4-double": (
        (LlamaConfig, dict(intermediate_size=272, **TIED)),  # more than 256 scales, and blocks across rows
        quantizers.bitsandbytes_4bit,
        dict(kind="nf4", double=True),
    ),
    "bnb-fp4-double": ((LlamaConfig, {}), quantizers.bitsandbytes_4bit, dict(kind="fp4", double=True)),
    "bnb-int8": ((LlamaConfig, TIED), quantizers.bitsandbytes_8bit, {}),
    "fp8-blocks": (
        (LlamaConfig, dict(intermediate_size=192, **TIED)),
        quantizers.fp8_blocks,
        dict(block=[128, 128]),
    ),
    "fp8-small-blocks": ((LlamaConfig, {}), quantizers.fp8_blocks, dict(block=[32, 16])),
    "fp8-tensor": ((LlamaConfig, TIED), quantizers.fp8_tensor, dict(scale_name="weight_scale", static=True)),
    "fp8-tensor-inverse": ((LlamaConfig, TIED), quantizers.fp8_tensor, dict(scale_name="weight_scale_inv")),
    "mxfp4": ((LlamaConfig, TIED), quantizers.mxfp4, {}),
    "ct-int4": ((LlamaConfig, {}), compressed_quantizer.compressed, dict(format="pack-quantized", bits=4, group=32)),
    "ct-int4-asymmetric": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="pack-quantized", bits=4, group=16, symmetric=False),
    ),
    "ct-int8-packed": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="pack-quantized", bits=8, symmetric=False, strategy="channel"),
    ),
    "ct-two-groups": ((LlamaConfig, {}), compressed_quantizer.compressed_two_groups, {}),
    "ct-int8": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="int-quantized", bits=8, strategy="channel", activations=True),
    ),
    "ct-int8-tensor": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="int-quantized", bits=8, symmetric=False, strategy="tensor"),
    ),
    "ct-fp8": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="float-quantized", bits=8, kind="float", strategy="channel", activations=True),
    ),
    "ct-fp8-tensor": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="float-quantized", bits=8, kind="float", strategy="tensor"),
    ),
    "ct-fp8-blocks": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="float-quantized", bits=8, kind="float", strategy="block", block=[32, 32]),
    ),
    "ct-mxfp4": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="mxfp4-pack-quantized", bits=4, kind="float", group=32),
    ),
    "ct-int8-static": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="int-quantized", bits=8, strategy="channel", activations=True, static=True),
    ),
    "ct-fp8-static": (
        (LlamaConfig, TIED),
        compressed_quantizer.compressed,
        dict(format="float-quantized", bits=8, kind="float", strategy="tensor", activations=True, static=True),
    ),
    "ct-int4-int8": (
        (LlamaConfig, {}),
        compressed_quantizer.compressed,
        dict(format="pack-quantized", bits=4, group=32, activations=True),
    ),
    "ct-int4-experts": (
        (MixtralConfig, dict(intermediate_size=32, num_local_experts=3, num_experts_per_tok=2)),
        compressed_quantizer.compressed,
        dict(format="pack-quantized", bits=4, group=32),
    ),
    "fp8-blocks-experts": (
        (
            Qwen3MoeConfig,
            dict(moe_intermediate_size=32, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True, head_dim=16),
        ),
        quantizers.fp8_blocks,
        dict(block=[32, 16]),
    ),
}


def tiny_model(configuration: tuple, seed: int) -> torch.nn.Module:
    """In bf16 numbers; computes in fp32."""
    kind, arguments = configuration
    model = AutoModelForCausalLM.from_config(
        kind(**{
            **SHAPE,
            **arguments
        }), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            value = 1 + 0.2 * noise if parameter.dim() == 1 else noise * 1.2 / parameter.shape[-1]**0.5
            parameter.copy_(value.to(torch.bfloat16))
    return model


class Expert(torch.nn.Linear):
    """A matrix of an expert, a part of a tensor in which Transformers holds those of all."""

    def __init__(self, part: torch.Tensor):
        torch.nn.Module.__init__(self)
        self.out_features, self.in_features = part.shape
        self.weight, self.bias, self.part = torch.nn.Parameter(part.detach().clone()), None, part

    def take(self, weight: torch.Tensor) -> None:
        self.part.copy_(weight)


def modules_of_experts(name: str, experts: torch.nn.Module) -> dict[str, Expert]:
    """By the names of checkpoints."""
    mixtral = type(experts).__name__.startswith("Mixtral")
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    name = name.replace(".mlp.", ".block_sparse_moe.") if mixtral else name
    found = {}
    for e, (both, last) in enumerate(zip(experts.gate_up_proj.data, experts.down_proj.data)):
        half = both.shape[0] // 2
        found |= {f"{name}.{e}.{gate}": Expert(both[:half]), f"{name}.{e}.{up}": Expert(both[half:])}
        found[f"{name}.{e}.{down}"] = Expert(last)
    return found


def linear_modules(model: torch.nn.Module) -> dict[str, torch.nn.Linear]:
    """All but the head, which formats leave dense by default, and what chooses among experts."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            found[name] = module
        if name.endswith(".experts"):
            found |= modules_of_experts(name, module)
    return found


def leave_routers_dense(settings: dict) -> None:
    if "ignore" in settings:
        settings["ignore"] = [*settings["ignore"], r"re:.*\.gate$"]
    else:
        settings["modules_to_not_convert"] = [*settings.get("modules_to_not_convert", []), "gate"]


@torch.no_grad()
def write_golden(
    name: str, model: torch.nn.Module, modules: dict[str, torch.nn.Linear], rounded: dict[str, torch.Tensor]
) -> None:
    tensors = {f"{module}.weight": weight.contiguous() for module, weight in rounded.items()}
    for module, weight in rounded.items():
        assert weight.dtype == torch.bfloat16
        if isinstance(modules[module], Expert):
            modules[module].take(weight.float())
        else:
            modules[module].weight.copy_(weight.float())
    for i, ids in enumerate(random_prompts()):
        tensors[f"ids{i}"] = torch.tensor(ids, dtype=torch.int32)
        tensors[f"logits{i}"] = model(torch.tensor([ids])).logits[0].contiguous().clone()
    save_file(tensors, DATA / "golden" / f"{name}.safetensors")


@torch.no_grad()
def write_case(name: str, seed: int) -> None:
    configuration, quantizer, arguments = CASES[name]
    model = tiny_model(configuration, seed)
    modules = linear_modules(model)
    settings, parts, rounded = quantizer(modules, **arguments)
    if any(isinstance(module, Expert) for module in modules.values()):
        leave_routers_dense(settings)
    directory = DATA / "quantized" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    model.config.dtype = "bfloat16"
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(directory)
    file = directory / "config.json"
    config = json.loads(file.read_text())
    config["quantization_config"] = settings
    file.write_text(json.dumps(config, indent=2) + "\n")
    moved = {".mlp.": ".block_sparse_moe."} if isinstance(model.config, MixtralConfig) else {}
    dense = {
        next((key.replace(*names) for names in moved.items()), key): value.to(torch.bfloat16).clone()
        for key, value in model.state_dict().items()
        if key.removesuffix(".weight") not in rounded and ".experts." not in key and
        not (key == "lm_head.weight" and model.config.tie_word_embeddings)
    }
    save_file({**dense, **parts}, directory / "model.safetensors", metadata={"format": "pt"})
    write_golden(name, model, modules, rounded)


def write_dynamic_map() -> None:
    """Scales of blocks in 8 bits by bitsandbytes: the numbers of the codes, and some scales before and after."""
    import bitsandbytes.functional as functional

    scales = torch.rand(1100, generator=torch.Generator().manual_seed(5)) * 0.1 + 0.02
    mean = scales.mean()
    codes, state = functional.quantize_blockwise(scales - mean, blocksize=256)
    rounded = functional.dequantize_blockwise(codes, state) + mean
    tensors = dict(map=functional.create_dynamic_map(), scales=scales, mean=mean.reshape(1), rounded=rounded)
    save_file(tensors, DATA / "golden" / "dynamic_map.safetensors")


def main() -> None:
    names = sys.argv[1:] or list(CASES)
    if not sys.argv[1:]:
        write_dynamic_map()
    for name in names:
        write_case(name, 100 + list(CASES).index(name))
        print(name)


if __name__ == "__main__":
    main()
