"""The shape of a 1B model in weight formats of llama.cpp and of Foretoken, on the same cores, in one run.

    python3 experiments/peers/llama_cpp_formats.py [--kinds BF16,Q8_0,Q4_0] [--formats int4,w4a8]
        [--repeats 2] [--out FILE.jsonl] [--results FILE.jsonl]

Random weights: llama.cpp's are written as GGUF files of one format, head and embedding included, as the scenarios of
experiments/configs/steps_cpu_formats.json have it. Both sides are measured in alternation: decoding at batch 1, a step
of 8 rows of one sequence, a prompt of 512 tokens. --results: where `foretoken bench` appends its lines. The environment
is that of llama_cpp.py.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

spec = importlib.util.spec_from_file_location("peer", pathlib.Path(__file__).with_name("llama_cpp.py"))
peer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peer)

CONFIG = peer.ROOT / "experiments" / "configs" / "steps_cpu_formats.json"
FORMATS = {"BF16": ["bf16"], "Q8_0": ["int8", "w8a8"], "Q4_0": ["int4", "w4a8"]}
STEPS = ["decode", "8 rows", "prompt"]
CONTEXT = 128  # as the scenarios
SHAPE = {"num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072,
         "rope_theta": 500000.0, "rms_norm_eps": 1e-5}


def random_rows(np, kind, rows, columns):
    """Rows as they lie in a file: blocks of 32 numbers, or bf16."""
    rng = np.random.default_rng(rows + columns)
    if kind == "BF16":
        values = rng.normal(0, 0.02, (min(rows, 256), columns)).astype(np.float32)
        some = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        block = {"Q8_0": 32, "Q4_0": 16}[kind]
        codes = rng.integers(0, 256, (min(rows, 256), columns // 32, block), dtype=np.uint8)
        scale = np.frombuffer(np.float16(0.0005 if kind == "Q8_0" else 0.005).tobytes(), np.uint8)
        some = np.concatenate([np.broadcast_to(scale, (*codes.shape[:2], 2)), codes], axis=2).reshape(len(codes), -1)
    return np.tile(some, (-(-rows // len(some)), 1))[:rows]


def write_gguf(path, kind):
    import gguf
    import numpy as np
    w = peer.gguf_writer(path, SHAPE)
    width, ffn = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    q, kv = (SHAPE[heads] * SHAPE["head_dim"] for heads in ("num_attention_heads", "num_key_value_heads"))

    def matrix(name, out, inputs):
        w.add_tensor(name, random_rows(np, kind, out, inputs), raw_dtype=gguf.GGMLQuantizationType[kind])

    def norm(name):
        w.add_tensor(name, np.ones(width, np.float32))

    matrix("token_embd.weight", SHAPE["vocab_size"], width)
    norm("output_norm.weight")
    for i in range(SHAPE["num_hidden_layers"]):
        norm(f"blk.{i}.attn_norm.weight"), norm(f"blk.{i}.ffn_norm.weight")
        for name, out, inputs in (("attn_q", q, width), ("attn_k", kv, width), ("attn_v", kv, width),
                                  ("attn_output", width, q), ("ffn_gate", ffn, width), ("ffn_up", ffn, width),
                                  ("ffn_down", width, ffn)):
            matrix(f"blk.{i}.{name}.weight", out, inputs)
    peer.finish(w)


def theirs(model):
    """Milliseconds of each of STEPS."""
    tokens = [(i * 7919) % SHAPE["vocab_size"] for i in range(600)]
    model.forward(tokens[:CONTEXT], 0, 1)
    times = {step: [] for step in STEPS}
    for step, count, begin, rows in (("decode", 24, CONTEXT, 1), ("8 rows", 12, CONTEXT, 8), ("prompt", 3, 0, 512)):
        for _ in range(count):
            model.forward(tokens[begin:begin + rows], begin, 8 if step == "8 rows" else 1)
            times[step].append(1e3 * model.seconds)
    return {step: statistics.median(x) for step, x in times.items()}


def ours(options, name):
    """The lines of `foretoken bench`, by step."""
    command = [options.program, "bench", "--steps", CONFIG, "--only", f"1b {name} ", "--json"]
    if options.results:
        command += ["--results", options.results]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"foretoken bench failed: {done.stderr.strip()}")
    return dict(zip(STEPS, (json.loads(line) for line in done.stdout.splitlines())))


def compare(options, kind):
    import llama_cpp
    path = peer.HOME / f"1b-{kind}.gguf"
    if not path.exists():
        write_gguf(path, kind)
    model = peer.LlamaCpp(path, options.threads, exact=False)
    rounds, names = [], [name for name in FORMATS[kind] if name in options.formats.split(",")]
    for _ in range(options.repeats):
        rounds.append({"llama.cpp": theirs(model), **{name: ours(options, name) for name in names}})
    size = path.stat().st_size
    row = {"peer": f"llama-cpp-python {llama_cpp.__version__}", "kind": kind, "bytes": size,
           "threads": options.threads, "machine": peer.processor(),
           "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    for step in STEPS:
        row[step] = {"llama.cpp": [r["llama.cpp"][step] for r in rounds]}
        print(f"{kind} {step}: llama.cpp {statistics.median(row[step]['llama.cpp']):.1f} ms, "
              f"{size / statistics.median(row[step]['llama.cpp']) / 1e6:.1f} GB/s", end="")
        for name in names:
            lines = [r[name][step] for r in rounds]
            row["commit"] = lines[0]["commit"]
            row[step][name] = [line["step_ms"] for line in lines]
            print(f"; {name} {statistics.median(row[step][name]):.1f} ms, share of the roofline "
                  + " ".join(f"{line['share']:.2f}" for line in lines), end="")
        print(flush=True)
    if options.out:
        with open(options.out, "a") as f:
            f.write(json.dumps(row) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--kinds", default=",".join(FORMATS), help="formats of llama.cpp")
    p.add_argument("--formats", default=",".join(sum(FORMATS.values(), [])), help="formats of Foretoken")
    p.add_argument("--repeats", type=int, default=2, help="alternations")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--program", default=str(peer.ROOT / "build" / "cpu" / "foretoken"))
    p.add_argument("--out", help="append a JSON line of each kind here")
    p.add_argument("--results", help="append the lines of foretoken bench here")
    options = p.parse_args()
    if not pathlib.Path(options.program).exists():
        sys.exit(f"{options.program} is not there: run ./foretoken build first")
    peer.enter_environment()
    for kind in options.kinds.split(","):
        compare(options, kind)


if __name__ == "__main__":
    main()
