"""A checkpoint of the shape of Llama 3.1 8B with random weights, to time commands that read one.

    python3 experiments/peers/random_checkpoint.py DIR [--layers 32] [--tokenizer experiments/models/target]

Weights are bf16, normal with a deviation of 0.02 (norms 1); all layers hold the same numbers, since times do not depend
on them. Takes 16 GB. Needs NumPy; nothing of this project depends on it.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np

TOKENIZER = Path(__file__).resolve().parents[1] / "models" / "target"
HIDDEN, INNER, QUERIES, KEYS, VOCAB = 4096, 14336, 4096, 1024, 128256
MATRICES = {
    "self_attn.q_proj": (QUERIES, HIDDEN),
    "self_attn.k_proj": (KEYS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, QUERIES),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "bfloat16",
}


def bf16(values):
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def matrix(random, shape):
    return bf16(random.standard_normal(shape, dtype=np.float32) * np.float32(0.02))


def write(path, tensors):
    """One safetensors file of tensors of bf16 bits."""
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            t.tofile(file)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("directory", type=Path)
    arguments.add_argument("--layers", type=int, default=32)
    arguments.add_argument("--tokenizer", type=Path, default=TOKENIZER)
    given = arguments.parse_args()
    if not (given.tokenizer / "tokenizer.json").is_file():
        sys.exit(f"{given.tokenizer} has no tokenizer.json; give a directory that has one with --tokenizer")
    given.directory.mkdir(parents=True)
    random = np.random.default_rng(1)
    ones = bf16(np.ones(HIDDEN, np.float32))
    layer = {f"{module}.weight": matrix(random, shape) for module, shape in MATRICES.items()}
    layer |= {"input_layernorm.weight": ones, "post_attention_layernorm.weight": ones}
    ends = {"model.embed_tokens.weight": matrix(random, (VOCAB, HIDDEN)), "model.norm.weight": ones,
            "lm_head.weight": matrix(random, (VOCAB, HIDDEN))}
    files = {f"model-{n:05}.safetensors": {f"model.layers.{n}.{name}": t for name, t in layer.items()}
             for n in range(given.layers)} | {"model-ends.safetensors": ends}
    for name, tensors in files.items():
        write(given.directory / name, tensors)
    index = {"metadata": {}, "weight_map": {t: name for name, tensors in files.items() for t in tensors}}
    (given.directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (given.directory / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": given.layers}, indent=2))
    for file in given.tokenizer.glob("tokenizer*.json"):
        shutil.copy(file, given.directory)


if __name__ == "__main__":
    main()
