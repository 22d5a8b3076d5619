"""Rewrites a model's pickled weights (pytorch_model.bin, whole or in shards) as safetensors, in a folder of their own.

usage: python3 experiments/models/convert_checkpoint.py DIRECTORY OUT

DIRECTORY is a checkpoint as the Hugging Face hub has it, such as lmsys/vicuna-7b-v1.3. OUT gets the weights, shard by
shard, and copies of the JSON files. Nothing in a pickle is run. Where there is no tokenizer.json, as with Vicuna, it is
made from tokenizer.model. Needs torch and safetensors, and transformers with sentencepiece for tokenizer.json.
"""

import json
import shutil
import sys
from pathlib import Path

INDEX = "pytorch_model.bin.index.json"


def fail(sentence):
    sys.exit(f"convert_checkpoint: {sentence}")


def imported(module, purpose):
    try:
        return __import__(module, fromlist=["_"])
    except ImportError:
        package = module.split(".")[0]
        return fail(f"{package} is not installed, which {purpose} needs: python3 -m pip install {package}")


def shards_of(folder):
    """The files of weights, in their order."""
    if (folder / INDEX).is_file():
        try:
            names = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            fail(f"{folder / INDEX} is no index of shards ({error!r}): download it again")
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            fail(f"{folder} lacks {', '.join(missing)}, which {INDEX} names: download them")
        return [folder / name for name in names]
    if (folder / "pytorch_model.bin").is_file():
        return [folder / "pytorch_model.bin"]
    return fail(f"{folder} holds neither pytorch_model.bin nor {INDEX}: there is nothing to convert")


def loaded(file, torch):
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # files of before PyTorch 1.6 cannot be mapped
        try:
            weights = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # an unfinished download, or the pointer that Git LFS left
            fail(f"{file} holds no weights of PyTorch ({type(error).__name__}): download it again")
    return {name: tensor for name, tensor in weights.items() if isinstance(tensor, torch.Tensor)}


def convert(folder, out):
    torch = imported("torch", "reading .bin files")
    save_file = imported("safetensors.torch", "writing safetensors").save_file
    files = shards_of(folder)
    where, total = {}, 0
    for number, file in enumerate(files, 1):
        name = "model.safetensors" if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        weights = {}
        for key, tensor in loaded(file, torch).items():
            if key in where:
                fail(f"{file} and another shard both have the tensor '{key}': download both again")
            # Rotary frequencies follow from the config, and are no weights.
            if not key.endswith("rotary_emb.inv_freq"):
                weights[key], where[key] = tensor.contiguous().clone(), name
                total += weights[key].nbytes
        save_file(weights, out / name, metadata={"format": "pt"})
        print(f"{out / name}: {len(weights)} tensors")
    if len(files) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def copy_others(folder, out):
    for file in sorted(folder.iterdir()):
        if file.suffix in (".json", ".jinja", ".model") and file.name != INDEX and file.is_file():
            shutil.copyfile(file, out / file.name)
    if (out / "tokenizer.json").is_file():
        return
    if not (folder / "tokenizer.model").is_file():
        fail(f"{folder} holds neither tokenizer.json nor tokenizer.model: download one of them")
    transformers = imported("transformers", "making tokenizer.json")
    transformers.AutoTokenizer.from_pretrained(str(folder), use_fast=True).save_pretrained(str(out))
    if not (out / "tokenizer.json").is_file():
        fail("transformers wrote no tokenizer.json: install sentencepiece and tiktoken, then try again")


def main():
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    if not folder.is_dir():
        fail(f"{folder} is no directory: download it with `hf download NAME --local-dir {folder}`")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        fail(f"{out} exists and is not empty: name a new folder")
    shards_of(folder)
    out.mkdir(parents=True, exist_ok=True)
    convert(folder, out)
    copy_others(folder, out)


main()
