"""GGUF files of the models that llama.cpp is measured with, written with the standard library alone.

The demo target with its own weights, or a 1B shape with random ones; matrices, head and embedding included, in one of
llama.cpp's types; norms in F32. Q8_0 and Q4_0 have a scale for 32 inputs, chosen as llama.cpp chooses it.
"""

import array
import json
import pathlib
import random
import struct

TARGET = pathlib.Path(__file__).resolve().parents[1] / "models" / "target"
ONE_B = {"num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072,
         "rope_theta": 500000.0, "rms_norm_eps": 1e-5}
ALIGNMENT = 32
BLOCK = 32  # inputs that share a scale
# number in the file, bytes of a block
TYPES = {"F32": (0, 128), "BF16": (30, 64), "Q8_0": (8, 34), "Q4_0": (2, 18)}
INSIDE = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
          "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
          "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def floats_of(bf16):
    """The numbers of bytes of bf16, which are the upper halves of floats."""
    wide = bytearray(2 * len(bf16))
    wide[2::4], wide[3::4] = bf16[0::2], bf16[1::2]
    return array.array("f", bytes(wide))


def q8_0(block):
    scale = max(map(abs, block)) / 127
    by = 1 / scale if scale else 0
    return struct.pack("<e32b", scale, *[round(x * by) for x in block])


def q4_0(block):
    scale = max(block, key=abs) / -8
    by = 1 / scale if scale else 0
    codes = [min(15, int(x * by + 8.5)) for x in block]
    return struct.pack("<e16B", scale, *[low | high << 4 for low, high in zip(codes[:16], codes[16:])])


def rounded(bf16, kind):
    """Bytes of bf16 as bytes of `kind`."""
    if kind == "BF16":
        return bf16
    numbers = floats_of(bf16)
    if kind == "F32":
        return numbers.tobytes()
    of_block = {"Q8_0": q8_0, "Q4_0": q4_0}[kind]
    return b"".join(of_block(numbers[i:i + BLOCK]) for i in range(0, len(numbers), BLOCK))


def with_neighbouring_pairs(bf16, heads, row_bytes):
    """Rows of queries or keys, permuted: llama.cpp rotates neighbours where a checkpoint rotates halves of a head."""
    rows = [bf16[i:i + row_bytes] for i in range(0, len(bf16), row_bytes)]
    size = len(rows) // heads
    return b"".join(rows[head * size + half * size // 2 + i]
                    for head in range(heads) for i in range(size // 2) for half in (0, 1))


def checkpoint_tensors():
    """(name, shape, bytes of bf16) of the demo target, by llama.cpp's names."""
    config = json.loads((TARGET / "config.json").read_text())
    raw = (TARGET / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for i in range(config["num_hidden_layers"]):
        names |= {f"model.layers.{i}.{a}.weight": f"blk.{i}.{b}.weight" for a, b in INSIDE.items()}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name not in names:  # metadata, and the head, which is the embedding
            continue
        begin, end = (8 + length + x for x in entry["data_offsets"])
        data, shape = raw[begin:end], entry["shape"]
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if part in name:
                data = with_neighbouring_pairs(data, config[heads], 2 * shape[1])
        yield names[name], shape, data


def random_tensors():
    """The same of the 1B shape; a matrix repeats 256 random rows."""
    width, ffn = ONE_B["hidden_size"], ONE_B["intermediate_size"]
    q, kv = (ONE_B[heads] * ONE_B["head_dim"] for heads in ("num_attention_heads", "num_key_value_heads"))
    draw = random.Random(2)
    rows = {}
    for inputs in {width, q, ffn}:
        numbers = array.array("f", (draw.gauss(0, 0.02) for _ in range(256 * inputs))).tobytes()
        cut = bytearray(len(numbers) // 2)
        cut[0::2], cut[1::2] = numbers[2::4], numbers[3::4]
        rows[inputs] = bytes(cut)
    ones = b"\x80\x3f" * width
    yield "token_embd.weight", (ONE_B["vocab_size"], width), rows[width]
    yield "output_norm.weight", (width,), ones
    for i in range(ONE_B["num_hidden_layers"]):
        for name, out, inputs in (("attn_q", q, width), ("attn_k", kv, width), ("attn_v", kv, width),
                                  ("attn_output", width, q), ("ffn_gate", ffn, width), ("ffn_up", ffn, width),
                                  ("ffn_down", width, ffn)):
            yield f"blk.{i}.{name}.weight", (out, inputs), rows[inputs]
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{name}.weight", (width,), ones


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def header(config, tensors, kind):
    """Everything before the tensors, and the sizes of these."""
    keys = {"llama.context_length": config["max_position_embeddings"], "llama.embedding_length": config["hidden_size"],
            "llama.block_count": config["num_hidden_layers"],
            "llama.feed_forward_length": config["intermediate_size"],
            "llama.attention.head_count": config["num_attention_heads"],
            "llama.attention.head_count_kv": config["num_key_value_heads"],
            "llama.attention.key_length": config["head_dim"], "llama.attention.value_length": config["head_dim"],
            "llama.rope.dimension_count": config["head_dim"], "llama.rope.freq_base": float(config["rope_theta"]),
            "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
            "llama.vocab_size": config["vocab_size"], "general.architecture": "llama", "tokenizer.ggml.model": "none"}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for key, value in keys.items():
        number, form = {int: (4, "<I"), float: (6, "<f"), str: (8, None)}[type(value)]
        out += text(key) + struct.pack("<I", number) + (struct.pack(form, value) if form else text(value))
    offset, sizes = 0, []
    for name, shape, _ in tensors:
        number, block = TYPES[kind if len(shape) == 2 else "F32"]
        out += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), number, offset)
        inputs = shape[-1]
        sizes.append((shape[0] if len(shape) == 2 else 1) * inputs // BLOCK * block)
        offset += -(-sizes[-1] // ALIGNMENT) * ALIGNMENT
    return out + bytes(-len(out) % ALIGNMENT), sizes


def write(path, model, kind):
    """Writes a model ("demo" or "1b") with matrices of `kind`, one of TYPES; returns the bytes of its tensors."""
    config, tensors = ((json.loads((TARGET / "config.json").read_text()), list(checkpoint_tensors()))
                       if model == "demo" else (ONE_B, list(random_tensors())))
    head, sizes = header(config, tensors, kind)
    made = {}  # of the rows that the matrices of a random model share
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        file.write(head)
        for (_, shape, data), size in zip(tensors, sizes):
            of = kind if len(shape) == 2 else "F32"
            key = (id(data), of)
            if key not in made:
                made[key] = rounded(data, of)
            whole, rest = divmod(size, len(made[key]))
            for _ in range(whole):
                file.write(made[key])
            file.write(made[key][:rest] + bytes(-size % ALIGNMENT))
    partial.rename(path)
    return sum(sizes)
