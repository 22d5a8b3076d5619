"""Rewrites a draft head's pickled weights (.bin, .pt) as model.safetensors beside them; nothing in a pickle is run.

usage: python3 experiments/models/convert_head.py DIRECTORY     (needs torch and safetensors)
"""

import sys
from pathlib import Path


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    files = sorted(f for f in folder.glob("*") if f.suffix in (".bin", ".pt"))
    if not files:
        sys.exit(f"{folder} has no file that ends in .bin or .pt")
    import torch
    from safetensors.torch import save_file

    weights = {}
    for file in files:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
        for name, tensor in loaded.items():
            if name in weights:
                sys.exit(f"{file} and another file both have the tensor '{name}'; leave one of them in {folder}")
            if isinstance(tensor, torch.Tensor):
                weights[name] = tensor.contiguous().clone()
    save_file(weights, folder / "model.safetensors")
    print(f"{folder / 'model.safetensors'}: {len(weights)} tensors")


main()
