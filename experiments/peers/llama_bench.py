"""Steps of llama.cpp, timed by its own benches, beside the same steps of `foretoken bench --steps`.

    python3 experiments/peers/llama_bench.py BINARIES [--turns 3] [--models demo] [--formats bf16,f32,w8a8,w4a8]
        [--threads 2] [--out FILE.jsonl]

BINARIES: the folder with llama-bench and llama-batched-bench; experiments/results/cpu/README.md says how they are
built. Nothing is installed and nothing is fetched: the models are written as GGUF files under build/peers, the demo
target (`demo`) with its own weights, a 1B shape (`1b`) with random ones.

A turn times every step on one side, then on the other; turns begin with alternating sides. These are steps of a model
in a given state, not requests from end to end. Ours include the choice of a token, llama.cpp's do not. A ratio is
llama.cpp's time over ours in the same turn. --out is written anew; the tables of the pages are made from the committed
file, which is the default.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import gguf_models

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "peers"
RESULTS = ROOT / "experiments" / "results" / "cpu" / "llama_bench.jsonl"
TYPES = {"bf16": "BF16", "f32": "F32", "w8a8": "Q8_0", "w4a8": "Q4_0"}  # llama.cpp rounds inputs of the last two too
PROMPT = 512
# Of a model: tokens before a decoding step; sequences that decode together, and tokens before each; whether one thread
# is timed as well; tokens that llama.cpp decodes in a sample, and samples; samples of a prompt; our steps.
WORK = {
    "demo": {"contexts": [32, 256, 1024], "batches": [8, 32], "of_batch": 256, "alone": True, "tokens": 8,
             "samples": 6, "prompts": 3, "steps": 40, "memory_mib": 512},
    "1b": {"contexts": [32, 256], "batches": [8], "of_batch": 32, "alone": False, "tokens": 4, "samples": 3,
           "prompts": 1, "steps": 10, "memory_mib": 512},
}


def steps_of(model, threads):
    """(name, scenario's own keys) of every step, in the order of the table."""
    work = WORK[model]
    steps = [(f"decode at context {n}", {"context": n}) for n in work["contexts"]]
    if work["alone"] and threads > 1:
        steps.append(("decode at context 256, one thread", {"context": 256, "engine": {"threads": 1}}))
    steps += [(f"decode, {n} sequences at context {work['of_batch']}", {"context": work["of_batch"], "batch": n})
              for n in work["batches"]]
    return steps + [(f"prompt of {PROMPT}", {"context": PROMPT, "prompt": True})]


def lines_of(command):
    """The JSON lines that a program prints; the script ends with one sentence where the program fails."""
    done = subprocess.run([str(x) for x in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    name = pathlib.Path(command[0]).name
    if done.returncode == -signal.SIGILL:
        sys.exit(f"{name} has instructions that this processor lacks; build llama.cpp on this machine, or for it.")
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing was printed"]
        sys.exit(f"{name} failed with exit code {done.returncode}: {said[-1]}")
    return [json.loads(line) for line in (done.stdout + done.stderr).splitlines() if line.startswith("{")]


def generations(options, model, file, threads, contexts):
    """llama-bench: milliseconds of a decoding step at each of the contexts."""
    work = WORK[model]
    lines = lines_of([options.binaries / "llama-bench", "-m", file, "-t", threads, "-p", 0, "-n", work["tokens"], "-r",
                      work["samples"], "-d", ",".join(map(str, contexts)), "-o", "jsonl"])
    theirs.build = lines[0]["build_commit"]
    return [statistics.median(line["samples_ns"]) / line["n_gen"] / 1e6 for line in lines]


def theirs(options, model, kind):
    """Milliseconds of the steps, in the order of steps_of."""
    work, file = WORK[model], HOME / f"{model}-{kind}.gguf"
    times = generations(options, model, file, options.threads, work["contexts"])
    if work["alone"] and options.threads > 1:
        times += generations(options, model, file, 1, [256])
    for batch in work["batches"]:
        context, tokens = work["of_batch"], 2 * work["tokens"]
        places = -(-(context + tokens) // 256) * 256  # of a sequence; llama.cpp rounds up so
        lines = lines_of([options.binaries / "llama-batched-bench", "-m", file, "-t", options.threads, "-c",
                          batch * places, "-b", 2048, "-ub", 512, "-npp", context, "-ntg", tokens, "-npl",
                          ",".join([str(batch)] * work["prompts"]), "--output-format", "jsonl"])
        times.append(statistics.median(1e3 * line["t_tg"] / line["tg"] for line in lines))
    lines = lines_of([options.binaries / "llama-bench", "-m", file, "-t", options.threads, "-p", PROMPT, "-n", 0, "-r",
                      work["prompts"], "-o", "jsonl"])
    return times + [statistics.median(lines[0]["samples_ns"]) / 1e6]


def ours(options, model, dtype):
    """The lines of `foretoken bench`, in the order of steps_of."""
    work = WORK[model]
    weights = {"directory": str(gguf_models.TARGET)} if model == "demo" else {"random": "llama-3.2-1b", "seed": 2}
    target = {"model": weights | {"dtype": dtype, "head_dtype": dtype}}
    common = {"batch": 1, "target": target, "steps": work["steps"]}
    scenarios = HOME / "llama_bench_scenarios.json"
    scenarios.write_text(json.dumps({
        "engine": {"device": "cpu", "threads": options.threads, "memory_mib": work["memory_mib"],
                   "step_rows": PROMPT},
        "scenarios": [common | own | {"name": name} | ({"steps": work["prompts"]} if "prompt" in own else {})
                      for name, own in steps_of(model, options.threads)]}))
    return lines_of([options.program, "bench", "--steps", scenarios, "--json"])


def measure(options, model, dtype):
    """The lines of results of a model in one format."""
    kind = TYPES[dtype]
    file = HOME / f"{model}-{kind}.gguf"
    if not file.exists():
        print(f"writing {file}", file=sys.stderr, flush=True)
        gguf_models.write(file, model, kind)
    turns = []
    for turn in range(options.turns):
        sides = {}
        for side in ("llama.cpp", "foretoken")[::1 if turn % 2 == 0 else -1]:
            sides[side] = theirs(options, model, kind) if side == "llama.cpp" else ours(options, model, dtype)
        turns.append(sides)
        print(f"{model} {dtype}: turn {turn + 1} of {options.turns}", file=sys.stderr, flush=True)
    for k, (name, own) in enumerate(steps_of(model, options.threads)):
        lines = [turn["foretoken"][k] for turn in turns]
        yield {"model": model, "dtype": dtype, "type": kind, "step": name,
               "threads": own.get("engine", {}).get("threads", options.threads),
               "llama_cpp_ms": [turn["llama.cpp"][k] for turn in turns],
               "foretoken_ms": [line["step_ms"] for line in lines],
               "llama_cpp_bytes": file.stat().st_size,
               "foretoken_bytes": turns[0]["foretoken"][-1]["bytes"],  # of a prompt, which reads no cache
               "read_bytes_per_second": [line["read_bytes_per_second"] for line in lines],
               "peer": f"llama.cpp {theirs.build}", "commit": lines[0]["commit"], "machine": lines[0]["machine"],
               "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def spread(values, digits=".3g"):
    return f"{statistics.median(values):{digits}} [{min(values):{digits}}, {max(values):{digits}}]"


def shown(line):
    """Of a line of results: both times, their ratio, and GB/s of weights where one sequence decodes."""
    ratios = [a / b for a, b in zip(line["llama_cpp_ms"], line["foretoken_ms"])]
    row = [spread(line["llama_cpp_ms"]), spread(line["foretoken_ms"]), spread(ratios, ".2f")]
    if "decode at" not in line["step"]:
        return row + ["", ""]
    return row + [f"{line[side + '_bytes'] / statistics.median(line[side + '_ms']) / 1e6:.0f}"
                  for side in ("llama_cpp", "foretoken")]


def print_row(line):
    a, b, ratio, *rates = shown(line)
    print(f"{line['model'] + ' ' + line['dtype'] + '/' + line['type']:16}{line['step']:38}{a:>24}{b:>24}{ratio:>20}"
          f"{rates[0]:>6}{rates[1]:>6}", flush=True)


def options_of():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binaries", type=pathlib.Path, help="the folder with llama-bench and llama-batched-bench")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--models", default="demo", help=", ".join(WORK))
    p.add_argument("--formats", default=",".join(TYPES), help="of Foretoken")
    p.add_argument("--threads", type=int, default=min(2, os.cpu_count()))
    p.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "cpu" / "foretoken")
    p.add_argument("--out", type=pathlib.Path, default=RESULTS, help="JSON lines, written anew")
    options = p.parse_args()
    options.models, options.formats = options.models.split(","), options.formats.split(",")
    for given, known in ((options.models, WORK), (options.formats, TYPES)):
        for name in given:
            if name not in known:
                p.error(f"'{name}' is not known; known: {', '.join(known)}")
    for program, remedy in ((options.binaries / "llama-bench", "build it as experiments/results/cpu/README.md says"),
                            (options.binaries / "llama-batched-bench", "build it as the page says, in the same folder"),
                            (options.program, "run ./foretoken build, or name the program with --program")):
        if not program.exists():
            sys.exit(f"{program} is not there: {remedy}.")
    if options.turns < 1 or options.threads < 1:
        p.error("--turns and --threads are at least 1")
    return options


def main():
    options = options_of()
    HOME.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    if load > 0.3:
        print(f"other programs run here (load {load:.1f}): times will be too long", file=sys.stderr)
    print(f"{'milliseconds, median [range] of turns':54}{'llama.cpp':>24}{'foretoken':>24}{'ratio':>20}  GB/s of each")
    made = []
    for model in options.models:
        for dtype in options.formats:
            if (model, dtype) == ("1b", "f32"):
                continue  # 5 GB, and nobody runs it so
            for line in measure(options, model, dtype):
                line["load_before"] = load
                made.append(line)
                print_row(line)
    print("These are steps, not requests from end to end; experiments/results/cpu/README.md says where they differ.")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("".join(json.dumps(line) + "\n" for line in made))


if __name__ == "__main__":
    main()
