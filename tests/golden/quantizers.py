"""Quantizes the linear modules of a model by the formats' own packages. Each function returns quantization_config, the
tensors of the checkpoint, and every matrix as bf16 numbers: bf16(scale * (number - zero)), where each operation is
rounded to fp32 and number, zero and scale are unpacked by the package from what it packed."""

import importlib.util
import pathlib
import types

import torch


def rounded(scale: torch.Tensor, number: torch.Tensor, zero: torch.Tensor | float = 0.0) -> torch.Tensor:
    """All [out, in] or broadcast to it."""
    return (scale.float() * (number.float() - zero)).to(torch.bfloat16)


def expanded(of_groups: torch.Tensor, inputs: int) -> torch.Tensor:
    """[out, groups] to [out, inputs]."""
    return of_groups.repeat_interleave(inputs // of_groups.shape[1], dim=1)


def file_of_package(package: str, path: str):
    """A module of a package without the package's own __init__, which needs a GPU or further packages."""
    root = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, root / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def min_max(weight: torch.Tensor, groups: int, bits: int, symmetric: bool, least_zero: int = 0):
    """Scales (f16 numbers) and zero points [out, groups] for codes 0 ... 2^bits - 1."""
    blocks = weight.float().reshape(weight.shape[0], groups, -1)
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    if symmetric:
        high = torch.maximum(high, -low)
        low = -high
    scale = ((high - low) / (2**bits - 1)).half().float()
    zero = torch.round(-low / scale).clamp(least_zero, 2**bits - 1)
    return scale, torch.full_like(zero, 2**(bits - 1)) if symmetric else zero


def gptq(modules: dict, bits: int, group: int, symmetric: bool, act_order: bool = False):
    """Version 1, by AutoGPTQ: zero points are stored minus one."""
    import transformers.pytorch_utils

    assert transformers.pytorch_utils.Conv1D
    layer = file_of_package("auto_gptq", "nn_modules/qlinear/qlinear_cuda.py").QuantLinear
    tensors, weights = {}, {}
    for name, linear in modules.items():
        out, inputs = linear.weight.shape
        size = inputs if group < 0 else group
        order = torch.randperm(inputs, generator=torch.Generator().manual_seed(len(tensors)))
        g_idx = torch.arange(inputs, dtype=torch.int32) // size
        if act_order:
            g_idx[order] = g_idx.clone()
        by_group = linear.weight[:, torch.argsort(g_idx, stable=True)]
        scale, zero = min_max(by_group, inputs // size, bits, symmetric, least_zero=1)
        # Clamped to what the codes reach, since the package packs without clamping.
        g = g_idx.long()
        codes = torch.round(linear.weight / scale[:, g] + zero[:, g]).clamp(0, 2**bits - 1)
        clamped = torch.nn.Linear(inputs, out, bias=True, dtype=torch.float32)
        clamped.weight.data = (codes - zero[:, g]) * scale[:, g]
        clamped.bias.data = linear.bias.data if linear.bias is not None else torch.zeros(out)
        packed = layer(bits, size, inputs, out, bias=True)
        packed.pack(clamped, scale.clone(), zero.clone(), g_idx)
        tensors |= {
            f"{name}.qweight": packed.qweight,
            f"{name}.qzeros": packed.qzeros,
            f"{name}.scales": packed.scales.half(),
            f"{name}.g_idx": g_idx,
            f"{name}.bias": packed.bias.to(torch.float16),
        }
        # The package multiplies rows of the identity by the unpacked matrix: in fp32 it is scale * (code - zero).
        unpacked = packed(torch.eye(inputs)) - packed.bias
        assert torch.equal(codes - zero[:, g], torch.round(unpacked.T / scale[:, g]))
        weights[name] = rounded(scale[:, g], codes, zero[:, g])
        linear.bias is not None and linear.bias.data.copy_(tensors[f"{name}.bias"].float())
    settings = dict(
        quant_method="gptq",
        bits=bits,
        group_size=group,
        damp_percent=0.01,
        desc_act=act_order,
        static_groups=False,
        sym=symmetric,
        true_sequential=True,
        model_name_or_path=None,
        model_file_base_name="model",
    )
    return settings, tensors, weights


def gptqmodel(modules: dict, bits: int, group: int, checkpoint_format: str):
    """By GPTQModel, with zero points of 0 among them. In version 1 these wrap around within their word."""
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.backend import BACKEND
    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module

    tensors, weights = {}, {}
    for name, linear in modules.items():
        out, inputs = linear.weight.shape
        scale, zero = min_max(linear.weight, inputs // group, bits, symmetric=False)
        zero[::3, 0] = 0
        g_idx = torch.arange(inputs, dtype=torch.int32) // group
        packed = TorchLinear(
            bits=bits,
            group_size=group,
            sym=False,
            desc_act=False,
            in_features=inputs,
            out_features=out,
            bias=False,
            pack_dtype=torch.int32,
            backend=BACKEND.GPTQ_TORCH,
            register_buffers=True,
        )
        packed.pack_original(linear, scale.clone(), zero.clone(), g_idx)
        packed.post_init()
        codes = torch.round(linear.weight / expanded(scale, inputs) + expanded(zero, inputs))
        codes = codes.clamp(0, 2**bits - 1).int()
        unpacked = packed.dequantize_weight().T.float()
        numbers = codes - expanded(zero, inputs)
        assert torch.allclose(unpacked, expanded(scale, inputs) * numbers, rtol=2e-3, atol=1e-4)
        if checkpoint_format == "gptq":
            convert_gptq_v2_to_v1_format_module(packed, types.SimpleNamespace(bits=bits, pack_dtype=torch.int32))
        tensors |= {
            f"{name}.qweight": packed.qweight.clone(),
            f"{name}.qzeros": packed.qzeros.clone(),
            f"{name}.scales": packed.scales.half(),
            f"{name}.g_idx": g_idx,
        }
        weights[name] = rounded(expanded(scale, inputs), numbers)
    settings = dict(
        quant_method="gptq",
        bits=bits,
        group_size=group,
        desc_act=False,
        sym=False,
        lm_head=False,
        checkpoint_format=checkpoint_format,
        pack_dtype="int32",
        meta=dict(quantizer=["gptqmodel:7.7.0"]),
    )
    return settings, tensors, weights


def awq(modules: dict, group: int):
    """By GPTQModel's copy of AutoAWQ's gemm layout."""
    from gptqmodel.nn_modules.qlinear.gemm_awq import _pack_awq_columns
    from gptqmodel.quantization.awq.utils.packing_utils import reverse_awq_order, unpack_awq

    tensors, weights = {}, {}
    for name, linear in modules.items():
        inputs = linear.weight.shape[1]
        scale, zero = min_max(linear.weight, inputs // group, 4, symmetric=False)
        codes = torch.round(linear.weight / expanded(scale, inputs) + expanded(zero, inputs)).clamp(0, 15)
        qweight = _pack_awq_columns(codes.T.to(torch.int32).contiguous(), 4)
        qzeros = _pack_awq_columns(zero.T.to(torch.int32).contiguous(), 4)
        numbers, zeros = reverse_awq_order(*unpack_awq(qweight, qzeros, 4), 4)
        numbers, zeros = (numbers & 15).T, (zeros & 15).T
        assert torch.equal(numbers.float(), codes) and torch.equal(zeros.float(), zero)
        tensors |= {f"{name}.qweight": qweight, f"{name}.qzeros": qzeros, f"{name}.scales": scale.T.half().contiguous()}
        weights[name] = rounded(expanded(scale, inputs), numbers, expanded(zeros.float(), inputs))
    settings = dict(
        quant_method="awq",
        bits=4,
        group_size=group,
        version="gemm",
        zero_point=True,
        modules_to_not_convert=["lm_head"],
    )
    return settings, tensors, weights


def bitsandbytes_4bit(modules: dict, kind: str, double: bool):
    import bitsandbytes.functional as functional

    tensors, weights = {}, {}
    for name, linear in modules.items():
        packed, state = functional.quantize_4bit(
            linear.weight.to(torch.bfloat16), quant_type=kind, compress_statistics=double
        )
        tensors[f"{name}.weight"] = packed
        tensors |= {f"{name}.weight.{part}": t.clone() for part, t in state.as_dict(packed=True).items()}
        scale = state.absmax
        if double:
            scale = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
        unit = functional.QuantState(
            torch.ones_like(scale), state.shape, state.code, state.blocksize, kind, torch.float32
        )
        number = functional.dequantize_4bit(packed, unit)
        of_element = scale.repeat_interleave(state.blocksize)[:number.numel()].reshape(number.shape)
        weights[name] = rounded(of_element, number)
        assert torch.equal(weights[name], functional.dequantize_4bit(packed, state))
    settings = dict(
        quant_method="bitsandbytes",
        load_in_4bit=True,
        load_in_8bit=False,
        _load_in_4bit=True,
        _load_in_8bit=False,
        bnb_4bit_quant_type=kind,
        bnb_4bit_use_double_quant=double,
        bnb_4bit_compute_dtype="bfloat16",
        bnb_4bit_quant_storage="uint8",
        llm_int8_enable_fp32_cpu_offload=False,
        llm_int8_has_fp16_weight=False,
        llm_int8_skip_modules=None,
        llm_int8_threshold=6.0,
    )
    return settings, tensors, weights


def bitsandbytes_8bit(modules: dict):
    import bitsandbytes.functional as functional

    tensors, weights = {}, {}
    for name, linear in modules.items():
        codes, stats, _ = functional.int8_vectorwise_quant(linear.weight.half())
        tensors |= {
            f"{name}.weight": codes,
            f"{name}.SCB": stats,
            f"{name}.weight_format": torch.tensor(0, dtype=torch.uint8),
        }
        weights[name] = rounded((stats / 127)[:, None], codes)
        unpacked = functional.int8_vectorwise_dequant(codes, stats)
        assert torch.allclose(weights[name].float(), unpacked, rtol=2**-8)
    settings = dict(
        quant_method="bitsandbytes",
        load_in_4bit=False,
        load_in_8bit=True,
        llm_int8_skip_modules=["lm_head"],
        llm_int8_threshold=6.0,
    )
    return settings, tensors, weights


def fp8_blocks(modules: dict, block: list[int]):
    """Blocks at the edges may be smaller, as DeepSeek's are; Transformers itself quantizes whole blocks alone."""
    tensors, weights = {}, {}
    for name, linear in modules.items():
        out, inputs = linear.weight.shape
        rows, columns = -(-out // block[0]), -(-inputs // block[1])
        scale = torch.empty(rows, columns)
        for r in range(rows):
            for c in range(columns):
                part = linear.weight[r * block[0]:(r + 1) * block[0], c * block[1]:(c + 1) * block[1]]
                scale[r, c] = part.abs().max() / 448
        of_element = scale.repeat_interleave(block[0], 0)[:out].repeat_interleave(block[1], 1)[:, :inputs]
        codes = (linear.weight / of_element).to(torch.float8_e4m3fn)
        tensors |= {f"{name}.weight": codes, f"{name}.weight_scale_inv": scale}
        weights[name] = rounded(of_element, codes)
    settings = dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=block)
    return settings, tensors, weights


def fp8_tensor(modules: dict, scale_name: str, static: bool = False):
    tensors, weights = {}, {}
    for name, linear in modules.items():
        scale = linear.weight.abs().max() / 448
        codes = (linear.weight / scale).to(torch.float8_e4m3fn)
        tensors |= {f"{name}.weight": codes, f"{name}.{scale_name}": scale.clone()}
        if static:
            tensors[f"{name}.input_scale"] = torch.tensor(0.02)
        weights[name] = rounded(scale, codes)
    settings = dict(
        quant_method="fp8",
        activation_scheme="static" if static else "dynamic",
        weight_block_size=None,
        modules_to_not_convert=["lm_head"],
    )
    return settings, tensors, weights


def mxfp4(modules: dict):
    """Transformers has this form for experts alone; the tensors of a linear module are named by the same rule."""
    from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors

    values = torch.tensor(FP4_VALUES)
    tensors, weights = {}, {}
    for name, linear in modules.items():
        out, inputs = linear.weight.shape
        blocks = linear.weight.reshape(out, -1, 32)
        exponent = torch.floor(torch.log2(blocks.abs().amax(-1))) - 2
        codes = (blocks[..., None] / 2**exponent[..., None, None] - values).abs().argmin(-1).to(torch.uint8)
        packed = codes[..., ::2] | codes[..., 1::2] << 4
        scales = (exponent + 127).to(torch.uint8)
        tensors |= {f"{name}.weight_blocks": packed, f"{name}.weight_scales": scales}
        unpacked = convert_moe_packed_tensors(packed[None], scales[None], dtype=torch.bfloat16)
        weights[name] = unpacked[0].T.contiguous()
    return dict(quant_method="mxfp4", modules_to_not_convert=["lm_head", "model.embed_tokens"]), tensors, weights
