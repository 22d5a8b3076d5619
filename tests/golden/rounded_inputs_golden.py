#!/usr/bin/env python3
"""Writes tests/data/golden/NAME-rounded.safetensors for the checkpoints of tests/data/quantized that round the inputs of
their matrices: the fp32 logits of Transformers where the inputs of every quantized matrix are bf16 numbers that
compressed-tensors rounds (fake_quantize), and its weights are the stored numbers times their scales. Run by hand, behind
quantized_golden.py; needs torch, transformers and compressed-tensors.

  rounded_inputs_golden.py [NAME ...]

compressed-tensors divides the greatest magnitude of dynamic integers by 127.5, Foretoken by 127; all other rules are
equal. So NAME-rounded has the package's rounding with scales of 127, NAME-package the package's own scales.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp
from models_golden import random_prompts
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
CASES = ["ct-int8", "ct-int8-static", "ct-int4-int8", "ct-fp8", "ct-fp8-static", "fp8-tensor", "fp8-tensor-inverse"]
OTHER_SCALES = ["ct-int8", "ct-int4-int8"]


def arguments_of(settings: dict) -> QuantizationArgs:
    if settings["quant_method"] == "fp8":
        dynamic = settings["activation_scheme"] == "dynamic"
        return QuantizationArgs(
            num_bits=8, type="float", strategy="token" if dynamic else "tensor", dynamic=dynamic, symmetric=True
        )
    return QuantizationArgs(**settings["config_groups"]["group_0"]["input_activations"])


def rounding(arguments: QuantizationArgs, scale: torch.Tensor | None, package: bool):
    """A hook that rounds the input of a module."""

    def hook(module, inputs):
        x = inputs[0].to(torch.bfloat16).float()
        if arguments.dynamic:
            s, zero = compute_dynamic_scales_and_zp(x, arguments, module)
            if arguments.type == "int" and not package:
                s = x.abs().amax(-1, keepdim=True) / 127
        else:
            s, zero = scale, torch.zeros_like(scale)
        return (fake_quantize(x, s.float(), zero, arguments), )

    return hook


def numbers_of(parts: dict, module: str) -> torch.Tensor:
    """The stored numbers as f32, [out, in]."""
    if f"{module}.weight" in parts:
        return parts[f"{module}.weight"].float()
    words = parts[f"{module}.weight_packed"]  # eight integers of 4 bits, from the lowest bits on
    codes = torch.stack([words >> shift & 15 for shift in range(0, 32, 4)], -1)
    return codes.flatten(1).float() - 8


@torch.no_grad()
def write(name: str, package: bool) -> None:
    directory = DATA / "quantized" / name
    config = json.loads((directory / "config.json").read_text())
    arguments = arguments_of(config.pop("quantization_config"))
    bare = AutoConfig.for_model(**config)
    model = AutoModelForCausalLM.from_config(bare, dtype=torch.float32, attn_implementation="eager").eval()
    parts = load_file(directory / "model.safetensors")
    state = model.state_dict()
    for key, value in parts.items():
        if key in state:
            state[key].copy_(value.float())
    for module, linear in model.named_modules():
        scale = parts.get(f"{module}.weight_scale", parts.get(f"{module}.weight_scale_inv"))
        if scale is None:
            continue
        numbers, scale = numbers_of(parts, module), scale.float()
        groups = scale.shape[1] if scale.dim() == 2 else 1
        scaled = numbers.unflatten(1, (groups, -1)) * (scale[..., None] if scale.dim() == 2 else scale)
        linear.weight.copy_(scaled.flatten(1))
        linear.register_forward_pre_hook(rounding(arguments, parts.get(f"{module}.input_scale"), package))
    tensors = {}
    for i, ids in enumerate(random_prompts()):
        tensors[f"ids{i}"] = torch.tensor(ids, dtype=torch.int32)
        tensors[f"logits{i}"] = model(torch.tensor([ids])).logits[0].contiguous().clone()
    save_file(tensors, DATA / "golden" / f"{name}-{'package' if package else 'rounded'}.safetensors")


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        write(case, False)
        if case in OTHER_SCALES:
            write(case, True)
        print(case)
