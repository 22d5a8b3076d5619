"""Quantizes the linear modules of a model by compressed-tensors; returns what quantizers.py does."""

import copy

import compressed_tensors
import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from quantizers import expanded, rounded


def min_max_of(weight: torch.Tensor, args) -> tuple[torch.Tensor, torch.Tensor]:
    """Extremes in the shape that compressed-tensors has scales in."""
    out, inputs = weight.shape
    if args.strategy == "tensor":
        return weight.min().reshape(1), weight.max().reshape(1)
    if args.strategy == "block":
        blocks = weight.unflatten(1, (-1, args.block_structure[1])).unflatten(0, (-1, args.block_structure[0]))
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    groups = weight.reshape(out, inputs // args.group_size if args.strategy == "group" else 1, -1)
    return groups.amin(-1), groups.amax(-1)


def compress_one(weight: torch.Tensor, scheme, format: str) -> tuple[dict, torch.Tensor]:
    """The tensors of one matrix by compressed-tensors, and its bf16 numbers."""
    args = scheme.weights
    weight = weight.to(torch.bfloat16)
    scale, zero = calculate_qparams(*min_max_of(weight, args), args)
    compressor = BaseCompressor.get_value_from_registry(format)
    parts = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero.to(torch.int8)}
    packed = compressor.compress(parts, scheme)
    # The package unpacks integers where all scales are 1.
    ones = copy.copy(packed)
    is_exponent = packed["weight_scale"].dtype == torch.uint8
    one = torch.ones_like(packed["weight_scale"], dtype=torch.float32)
    ones["weight_scale"] = torch.full_like(packed["weight_scale"], 127) if is_exponent else one
    number = compressor.decompress(ones, scheme)["weight"].float()
    of_element = scale.float()
    if args.strategy == "block":
        for axis, size in enumerate(args.block_structure):
            of_element = of_element.repeat_interleave(size, axis)
    elif args.strategy != "tensor":
        of_element = expanded(of_element, weight.shape[1])
    result = rounded(of_element, number)
    assert torch.allclose(result, compressor.decompress(packed, scheme)["weight"].to(torch.bfloat16), rtol=2**-6)
    return {key: value.contiguous() for key, value in packed.items()}, result


def compressed_settings(groups: dict, format: str) -> dict:
    config = QuantizationConfig(
        config_groups=groups, format=format, quantization_status="compressed", ignore=["lm_head"]
    )
    return dict(
        version=compressed_tensors.__version__,
        quant_method="compressed-tensors",
        sparsity_config={},
        transform_config={},
        **config.model_dump(exclude=["quant_method"], mode="json"),
    )


def scheme_of(targets: list[str], bits: int, kind: str = "int", **options):
    activations, static = options.pop("activations", False), options.pop("static", False)
    strategy = "tensor" if static else "token"
    inputs = QuantizationArgs(num_bits=8, type=kind, strategy=strategy, dynamic=not static) if activations else None
    if kind == "float" and bits == 4:
        options["scale_dtype"] = torch.uint8
    return QuantizationScheme(
        targets=targets, weights=QuantizationArgs(num_bits=bits, type=kind, **options), input_activations=inputs
    )


def compressed(
    modules: dict,
    format: str,
    bits: int,
    kind: str = "int",
    group: int | None = None,
    strategy: str = "group",
    symmetric: bool = True,
    block: list[int] | None = None,
    activations: bool = False,
    static: bool = False,
):
    scheme = scheme_of(
        ["Linear"],
        bits,
        kind,
        group_size=group,
        strategy=strategy,
        symmetric=symmetric,
        block_structure=block,
        activations=activations,
        static=static,
    )
    scheme.format = format
    tensors, weights = {}, {}
    for name, linear in modules.items():
        parts, weights[name] = compress_one(linear.weight, scheme, format)
        tensors |= {f"{name}.{part}": t for part, t in parts.items()}
        if static:  # gate and up differ, so that they are not one matrix; some inputs are beyond the range
            least = 0.01 if kind == "float" else 0.02
            scale = torch.tensor([least * 1.5 if name.endswith("up_proj") else least], dtype=torch.bfloat16)
            tensors[f"{name}.input_scale"] = scale
    return compressed_settings({"group_0": scheme}, format), tensors, weights


def compressed_two_groups(modules: dict):
    """Four bits for the attention, eight for the feed-forward, whose down_proj stays dense."""
    int4 = scheme_of(["re:.*self_attn.*"], 4, group_size=32, strategy="group", symmetric=True)
    int8 = scheme_of(["re:.*gate_proj$", "model.layers.0.mlp.up_proj"], 8, strategy="channel", symmetric=True)
    tensors, weights = {}, {}
    for name, linear in modules.items():
        if name.endswith("down_proj"):
            continue
        parts, weights[name] = compress_one(linear.weight, int4 if "self_attn" in name else int8, "pack-quantized")
        tensors |= {f"{name}.{part}": t for part, t in parts.items()}
    return compressed_settings({"attention": int4, "mlp": int8}, "pack-quantized"), tensors, weights
