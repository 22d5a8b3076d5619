"""The demo target in llama.cpp and in Foretoken, on the same weights, the same cores, in one run.

    python3 experiments/peers/llama_cpp.py [--repeats 7] [--out FILE.jsonl]

Makes its own virtual environment under build/peers, installs llama-cpp-python from PyPI there (it compiles
llama.cpp for this processor; nothing of this project depends on it), writes experiments/models/target as GGUF (bf16 as
stored, and fp32), and prints, both sides measured in alternation:
  - decoding at batch 1: tokens a second;
  - a step of 8 rows of one sequence, as in a verification;
  - a prompt of 512 tokens;
  - for how many of 20 prompts the greedy outputs in fp32 are identical for at least 64 tokens.
Times of a shared machine vary, so the ratios are the result. Exit code 1 if an output differs.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "peers"
PYTHON = HOME / "venv" / "bin" / "python"
PACKAGES = ["llama-cpp-python==0.3.*", "gguf", "numpy", "tokenizers"]
MODEL = ROOT / "experiments" / "models" / "target"
KINDS = ["bf16", "f16", "f32"]
CONTEXT = 256  # tokens before the measured steps


def enter_environment():
    """Runs this script again with the Python of its own environment, which is made if it is missing."""
    if pathlib.Path(sys.prefix) == PYTHON.parents[1]:
        return
    if not (HOME / "installed").exists():
        HOME.mkdir(parents=True, exist_ok=True)
        print(f"installing {' '.join(PACKAGES)} under {HOME} (compiles llama.cpp: some minutes)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", PYTHON.parents[1]], check=True)
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        (HOME / "installed").write_text(" ".join(PACKAGES))
    # -P: this file is named like the package, so its folder must not come first on the path
    os.execv(PYTHON, [str(PYTHON), "-P", *sys.argv])


def tensors(np):
    """(name, uint16 array of bf16) of every tensor of the checkpoint."""
    raw = (MODEL / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            sys.exit(f"{name} is {entry['dtype']}: this comparison wants a BF16 checkpoint")
        begin, end = (8 + length + x for x in entry["data_offsets"])
        yield name, np.frombuffer(raw[begin:end], dtype="<u2").reshape(entry["shape"])


def gguf_writer(path, c):
    """A writer of a GGUF file that has its header. `c`: with the keys of a config.json."""
    import gguf
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("none")
    return w


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_gguf(path, kind):
    """`kind`: bf16 (matrices as stored), f16 or f32; norms are f32 always."""
    import gguf
    import numpy as np
    c = json.loads((MODEL / "config.json").read_text())
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    w = gguf_writer(path, c)
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    inside = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
              "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for i in range(c["num_hidden_layers"]):
        names |= {f"model.layers.{i}.{a}.weight": f"blk.{i}.{b}.weight" for a, b in inside.items()}
    for name, bits in tensors(np):
        if name == "lm_head.weight":
            continue  # tied
        # llama.cpp rotates neighbouring pairs where the checkpoint rotates halves of a head, so rows are permuted.
        for part, n in (("q_proj", heads), ("k_proj", kv_heads)):
            if part in name:
                bits = bits.reshape(n, 2, -1, bits.shape[1]).swapaxes(1, 2).reshape(bits.shape)
        bits = np.ascontiguousarray(bits)
        values = (bits.astype(np.uint32) << 16).view(np.float32)
        if bits.ndim == 2 and kind == "bf16":
            w.add_tensor(names[name], bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(names[name], values.astype(np.float16) if bits.ndim == 2 and kind == "f16" else values)
    finish(w)


class LlamaCpp:
    """One model with one sequence; tokens are numbers, the tokenizer stays outside."""

    def __init__(self, path, threads, exact):
        import llama_cpp
        self.l = llama_cpp
        self.l.llama_backend_init()
        silent = self.l.llama_log_callback(lambda level, text, user: None)
        self.silent = silent  # the library keeps the pointer
        self.l.llama_log_set(silent, ctypes.c_void_p(0))
        self.model = self.l.llama_model_load_from_file(str(path).encode(), self.l.llama_model_default_params())
        p = self.l.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch = 2048, 512, 512
        p.n_threads = p.n_threads_batch = threads
        if exact:
            p.type_k = p.type_v = self.l.GGML_TYPE_F32
        self.context = self.l.llama_init_from_model(self.model, p)
        self.vocabulary = self.l.llama_vocab_n_tokens(self.l.llama_model_get_vocab(self.model))

    def forward(self, tokens, begin, wanted):
        """Logits [wanted, vocabulary] of the last rows; the sequence is cut to `begin` tokens before."""
        import numpy as np
        self.l.llama_memory_seq_rm(self.l.llama_get_memory(self.context), 0, begin, -1)
        n = len(tokens)
        batch = self.l.llama_batch_init(n, 0, 1)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, begin + i, 1, 0
            batch.logits[i] = i >= n - wanted
        batch.n_tokens = n
        start = time.perf_counter()
        if self.l.llama_decode(self.context, batch) != 0:
            sys.exit("llama.cpp could not decode")
        logits = [np.ctypeslib.as_array(self.l.llama_get_logits_ith(self.context, i), (self.vocabulary,)).argmax()
                  for i in range(n - wanted, n)]
        self.seconds = time.perf_counter() - start
        self.l.llama_batch_free(batch)
        return [int(x) for x in logits]

    def greedy(self, prompt, count):
        out, begin, tokens = [], 0, prompt
        while len(out) < count:
            token = self.forward(tokens, begin, 1)[0]
            begin += len(tokens)
            out, tokens = out + [token], [token]
        return out


def theirs(model, tokens, repeats=15):
    """Milliseconds: decode, a step of 8 rows, a prompt of 512."""
    model.forward(tokens[:CONTEXT], 0, 1)
    decode, verify, prompt = [], [], []
    for i in range(repeats * 3):
        model.forward(tokens[CONTEXT:CONTEXT + 1], CONTEXT, 1)
        decode.append(model.seconds)
    for i in range(repeats):
        model.forward(tokens[CONTEXT:CONTEXT + 8], CONTEXT, 8)
        verify.append(model.seconds)
    for i in range(max(3, repeats // 3)):
        model.forward(tokens[:512], 0, 1)
        prompt.append(model.seconds)
    return [1e3 * statistics.median(x) for x in (decode, verify, prompt)]


def ours(program, threads):
    """The same by `foretoken bench --steps`."""
    scenarios = HOME / "scenarios.json"
    target = {"model": str(MODEL)}
    scenarios.write_text(json.dumps({
        "engine": {"device": "cpu", "threads": threads, "memory_mib": 256, "step_rows": 512},
        "scenarios": [
            {"name": "decode", "target": target, "batch": 1, "context": CONTEXT, "steps": 45},
            {"name": "8 rows", "target": target, "batch": 1, "context": CONTEXT, "guesses": 7, "steps": 15},
            {"name": "prompt", "target": target, "batch": 1, "context": 512, "prompt": True, "steps": 5}]}))
    done = subprocess.run([program, "bench", "--steps", scenarios, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"foretoken bench failed: {done.stderr.strip()}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    ours.commit = rows[0]["commit"]
    return [row["step_ms"] for row in rows]


def texts(program, threads, count):
    """(llama.cpp's greedy output, ours) of 64 tokens after each of `count` prompts, in fp32."""
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    model = LlamaCpp(HOME / "f32.gguf", threads, exact=True)
    lines = (ROOT / "experiments" / "prompts.jsonl").read_text().splitlines()
    for line in lines[::max(1, len(lines) // count)][:count]:
        prompt = json.loads(line)["prompt"]
        want = tokenizer.decode(model.greedy(tokenizer.encode(prompt).ids, 64))  # special tokens are not text
        got = subprocess.run(
            [
                program,
                "generate",
                "--model",
                MODEL,
                "--prompt",
                "-",
                "--max-new-tokens",
                "64",
                "--ignore-eos",
                "--device",
                "cpu",
                "--set",
                "/target/dtype=\"f32\"",
                "--set",
                "/target/kv_dtype=\"f32\"",
            ],
            input=prompt,
            capture_output=True,
            text=True,
        )
        if got.returncode:
            sys.exit(f"foretoken generate failed: {got.stderr.strip()}")
        yield want, got.stdout.removesuffix("\n")


def compare(options):
    import llama_cpp
    token_ids = tokens_of_a_text(600)
    model = LlamaCpp(HOME / "bf16.gguf", options.threads, exact=False)
    rounds = []
    for i in range(options.repeats):
        rounds.append((theirs(model, token_ids), ours(options.program, options.threads)))
        print(f"alternation {i + 1} of {options.repeats}", file=sys.stderr, flush=True)
    row = {
        "peer": f"llama-cpp-python {llama_cpp.__version__}",
        "threads": options.threads,
        "alternations": options.repeats,
        "commit": ours.commit,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": processor(),
    }
    print(f"{row['peer']}, {options.threads} threads, context {CONTEXT}, medians of {options.repeats} alternations")
    print(f"{'':24}{'llama.cpp':>12}{'foretoken':>12}{'ratio':>8}{'lowest':>8}{'highest':>9}")
    for k, (name, unit) in enumerate(
        (("decode at batch 1", "tok/s"), ("step of 8 rows", "ms"), ("prompt of 512", "ms"))
    ):
        a, b = (statistics.median(r[side][k] for r in rounds) for side in (0, 1))
        ratios = sorted(r[0][k] / r[1][k] for r in rounds)
        shown = (1e3 / a, 1e3 / b) if unit == "tok/s" else (a, b)
        print(
            f"{name + ', ' + unit:24}{shown[0]:12.2f}{shown[1]:12.2f}{statistics.median(ratios):8.2f}{ratios[0]:8.2f}{ratios[-1]:9.2f}"
        )
        row[name] = {"llama_cpp_ms": a, "foretoken_ms": b, "ratio": statistics.median(ratios), "ratios": ratios}
    pairs = list(texts(options.program, options.threads, 20))
    row["texts"], row["texts identical"] = len(pairs), sum(a == b for a, b in pairs)
    print(f"greedy texts of 64 tokens in fp32, identical: {row['texts identical']} of {row['texts']}")
    for a, b in pairs:
        if a != b:
            print(f"  llama.cpp: {a!r}\n  foretoken: {b!r}")
    if options.out:
        with open(options.out, "a") as f:
            f.write(json.dumps(row) + "\n")
    return 0 if row["texts identical"] == row["texts"] else 1


def tokens_of_a_text(count):
    """`count` token ids of the committed prompts, one after the other."""
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    ids = []
    for line in (ROOT / "experiments" / "prompts.jsonl").read_text().splitlines():
        ids += tokenizer.encode(json.loads(line)["prompt"]).ids
    return ids[:count]


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--repeats", type=int, default=7, help="alternations")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--program", default=str(ROOT / "build" / "cpu" / "foretoken"))
    p.add_argument("--out", help="append a JSON line here")
    options = p.parse_args()
    if not pathlib.Path(options.program).exists():
        sys.exit(f"{options.program} is not there: run ./foretoken build first")
    enter_environment()
    for kind in KINDS:
        write_gguf(HOME / f"{kind}.gguf", kind)
    sys.exit(compare(options))


if __name__ == "__main__":
    main()
