#!/usr/bin/env python3
"""Shows that Transformers loads what `foretoken quantize` writes. Run by hand; needs torch, transformers,
compressed-tensors, and for nf4 and fp4 bitsandbytes and accelerate.

  quantized_by_foretoken.py PROGRAM MODEL FORMAT[:METHOD[:FLAG]] ...

as: quantized_by_foretoken.py build/cpu/foretoken experiments/models/target int4 int4:gptq int4:gptq:act-order int4:awq \
      int8:smoothquant nf4

For each format the model is quantized to a temporary directory and loaded. The weights that Transformers has then must
be as far from the original ones as the program says, layer by layer, to 1e-6 (awq and smoothquant scale weights, so
theirs are not compared), and the KL divergence of its predictions from the original model less than two nats (a damaged
model's is near the logarithm of the vocabulary). One line is printed for each format; the exit code is 1 where one
fails.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, CompressedTensorsConfig

PROMPT = "The lamp had burned low when the captain came down from the upper deck"


def dense_weights(model, layer):
    """The matrices of a layer in f32, as the loaded model multiplies by them."""
    found = {}
    for name, module in model.model.layers[layer].named_modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        weight = module.weight
        if getattr(weight, "quant_state", None) is not None:
            import bitsandbytes.functional

            weight = bitsandbytes.functional.dequantize_4bit(weight.data, weight.quant_state)
        found[name] = weight.detach().float()
    return found


def load(directory):
    config = json.loads((pathlib.Path(directory) / "config.json").read_text()).get("quantization_config")
    options = {}
    if config and config["quant_method"] == "compressed-tensors":
        options["quantization_config"] = CompressedTensorsConfig(dequantize=True)
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, device_map="cpu", **options)


def relative_error(original, rounded):
    difference = sum(((original[name] - rounded[name]).double() ** 2).sum() for name in original)
    return float((difference / sum((w.double() ** 2).sum() for w in original.values())).sqrt())


def check(program, model, form, folder):
    out = pathlib.Path(folder) / form.replace(":", "-")
    name, method, *flags = [*form.split(":"), ""][:3] if ":" in form else [form, ""]
    command = [program, "quantize", "--model", model, "--format", name, "--out", str(out), "--json", "--quiet"]
    if method:
        command += ["--method", method, "--calibrate", "experiments/prompts.jsonl", *(f"--{f}" for f in flags if f)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    original, rounded = load(model), load(out)
    tokens = AutoTokenizer.from_pretrained(out)(PROMPT, return_tensors="pt").input_ids
    worst = 0
    for layer in [] if method in ("awq", "smoothquant") else report["layers"]:
        number = layer["layer"]
        error = relative_error(dense_weights(original, number), dense_weights(rounded, number))
        worst = max(worst, abs(error - layer["error"]))
        if abs(error - layer["error"]) > 1e-6:
            return f"layer {number}: Transformers' weights differ by {error}, the program says {layer['error']}"
    with torch.no_grad():
        p, q = (m(tokens).logits.double().log_softmax(-1) for m in (original, rounded))
    divergence = float((p.exp() * (p - q)).sum(-1).mean())
    if not 0 <= divergence < 2:
        return f"KL of {divergence} nats from the original model"
    errors = f"errors as stated to {worst:.1e}" if worst else "scaled weights"
    print(f"{form}: {errors}, KL {divergence:.2e} nats over {tokens.shape[1]} tokens")
    return None


def main(program, model, *forms):
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for form in forms:
            why = check(program, model, form, folder)
            failures += why is not None
            if why:
                print(f"{form}: {why}")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
