"""Steps of vLLM on one GPU for the scenarios of `foretoken bench --steps`: the same shapes with random weights.

    python3 experiments/peers/vllm_steps.py [--steps FILE.json] [--only WORDS] [--expect 0.23] [--out FILE.jsonl]

Nothing is fetched: vLLM fills a model of a config.json by itself (`load_format="dummy"`). A scenario is measured as

- decoding, (time of a long generation - time of a short one) / (steps between them), each the shortest of --repeats;
- a prompt (`"prompt": true`): the shortest time of generating one token, of eight after one that is not counted;
- a round (`"drafter"` draft_model): the same difference over the steps of the engine, with vLLM's method draft_model;
- rows of verification (`"guesses": k`): the same with vLLM's method ngram and k tokens, on prompts of few distinct ids;
  where fewer than 0.95 of the k tokens were drafted in a step there is an error in place of the time;
- `"numerics": "invariant"`: VLLM_BATCH_INVARIANT=1.

Prefix caching is off, sampling is greedy, nothing is detokenized; everything else is vLLM's default. Scenarios with a
temperature, trees, quantized weights or caches, and attention alone, are left out. Each scenario has a process of its
own. A line of results names vLLM's version, all arguments, the variables of the environment, torch, CUDA, GPU, driver,
power limit, clocks and date. --expect: vLLM's version must begin so, since arguments and defaults change with it.
"""

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMON = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "rope_theta": 500000.0,
          "torch_dtype": "bfloat16", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu",
          "initializer_range": 0.02, "bos_token_id": 1, "eos_token_id": 2, "attention_bias": False, "mlp_bias": False}
SHAPES = {
    "llama-3.1-8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                     "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                     "tie_word_embeddings": False},
    "llama-3.2-1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                     "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
                     "tie_word_embeddings": True},
}
KNOWN = {"name", "target", "batch", "context", "guesses", "prompt", "drafter", "length", "steps", "engine", "bar_ms",
         "peer_ms"}
LONG = 256  # tokens between a short and a long generation
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}


def shape_of(model):
    """The name of a model with random weights in a published shape; None for any other."""
    plain = isinstance(model, dict) and set(model) <= {"random", "seed"}
    return model["random"] if plain and model.get("random") in SHAPES else None


def is_measured(scenario):
    """Whether vLLM has the scenario's work."""
    if not set(scenario) <= KNOWN or set(scenario["target"]) != {"model"}:
        return False
    if shape_of(scenario["target"]["model"]) is None or not set(scenario.get("engine", {})) <= {"numerics"}:
        return False
    drafter = scenario.get("drafter")
    return drafter is None or (drafter["name"] == "draft_model" and shape_of(drafter["model"]) is not None)


def drafted(scenario):
    """Tokens that a step drafts."""
    return scenario["length"] if "drafter" in scenario else scenario.get("guesses", 0)


def directory(name, home):
    path = pathlib.Path(home) / name
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(COMMON | SHAPES[name]))
    return str(path)


def arguments(scenario, home):
    """Those of vllm.LLM."""
    made = {"model": directory(shape_of(scenario["target"]["model"]), home), "load_format": "dummy",
            "skip_tokenizer_init": True, "dtype": "bfloat16", "seed": 0, "enable_prefix_caching": False,
            "disable_log_stats": False, "max_num_seqs": scenario["batch"],
            "max_model_len": max(4096, scenario["context"] + 3 * LONG)}
    tokens = drafted(scenario)
    if "drafter" in scenario:
        made["speculative_config"] = {"method": "draft_model", "num_speculative_tokens": tokens,
                                      "model": directory(shape_of(scenario["drafter"]["model"]), home)}
    elif tokens:
        made["speculative_config"] = {"method": "ngram", "num_speculative_tokens": tokens, "prompt_lookup_min": 1,
                                      "prompt_lookup_max": 3}
    return made


def environment(scenario):
    invariant = scenario.get("engine", {}).get("numerics") == "invariant"
    return ENVIRONMENT | ({"VLLM_BATCH_INVARIANT": "1"} if invariant else {})


def counters(llm):
    """{"steps": of the engine, "drafts", "draft_tokens", "accepted"} since it was made."""
    names = {"spec_decode_num_drafts": "drafts", "spec_decode_num_draft_tokens": "draft_tokens",
             "spec_decode_num_accepted_tokens": "accepted"}
    found = dict.fromkeys(["steps", *names.values()], 0)
    for metric in llm.get_metrics():
        name = metric.name.split(":")[-1]
        if name in names:
            found[names[name]] += metric.value
        if name.startswith("iteration_tokens"):
            found["steps"] += metric.count
    return found


class Measurement:
    def __init__(self, scenario, llm, sampling, repeats):
        self.scenario, self.llm, self.sampling, self.repeats = scenario, llm, sampling, repeats
        draw = random.Random(0)
        few = "drafter" not in scenario and drafted(scenario) > 0
        ids = (1000, 1064) if few else (1000, 120000)
        self.prompts = [{"prompt_token_ids": [draw.randrange(*ids) for _ in range(scenario["context"])]}
                        for _ in range(scenario["batch"])]

    def generate(self, tokens):
        """Seconds, and what the engine counted meanwhile."""
        before = counters(self.llm)
        begin = time.perf_counter()
        done = self.llm.generate(self.prompts, self.sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True,
                                                             detokenize=False), use_tqdm=False)
        seconds = time.perf_counter() - begin
        if any(len(one.outputs[0].token_ids) != tokens for one in done):
            sys.exit("vllm_steps.py: an output is shorter than was asked for, so steps are not what they seem.")
        after = counters(self.llm)
        return seconds, {name: after[name] - before[name] for name in after}

    def prompt(self):
        self.generate(1)
        samples = [1e3 * self.generate(1)[0] for _ in range(8)]
        return {"ms": min(samples), "samples_ms": samples}

    def steps(self):
        budget = self.llm.llm_engine.vllm_config.scheduler_config.max_num_batched_tokens
        # All sequences are behind their prompts before the short generation ends.
        short = 32 + 2 * math.ceil(self.scenario["batch"] * self.scenario["context"] / budget)
        self.generate(short)
        turns = [(self.generate(short), self.generate(short + LONG)) for _ in range(self.repeats)]
        (a, counted_a), (b, counted_b) = (min((turn[i] for turn in turns), key=lambda one: one[0]) for i in (0, 1))
        counted = {name: counted_b[name] - counted_a[name] for name in counted_a}
        steps = counted["steps"] if drafted(self.scenario) else LONG
        found = {"ms": 1e3 * (b - a) / steps, "steps": steps, "counted": counted,
                 "short_s": [turn[0][0] for turn in turns], "long_s": [turn[1][0] for turn in turns]}
        whole = drafted(self.scenario) * self.scenario["batch"] * steps
        if whole and counted["draft_tokens"] < 0.95 * whole:
            found["error"] = f"{counted['draft_tokens']} of {whole} tokens were drafted, so a step has fewer rows"
            del found["ms"]
        return found


def measure_one(scenario, repeats):
    """In a process of its own, whose environment is set: prints a line."""
    import torch
    import vllm
    with tempfile.TemporaryDirectory() as home:
        given = arguments(scenario, home)
        llm = vllm.LLM(**given)
        measurement = Measurement(scenario, llm, vllm.SamplingParams, repeats)
        found = measurement.prompt() if scenario.get("prompt") else measurement.steps()
    found |= {"arguments": given, "torch": torch.__version__, "cuda": torch.version.cuda}
    print("RESULT " + json.dumps(found), flush=True)
    os._exit(0)  # vLLM's own processes may not let it end


def gpu_facts():
    """{"gpu", "driver", "power_limit_watts", "clocks_mhz"} of the first visible GPU, as far as nvidia-smi says."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    query = "name,driver_version,power.limit,clocks.max.sm,clocks.max.memory"
    try:
        line = subprocess.run(["nvidia-smi", f"--id={gpu}", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return {}
    name, driver, *numbers = (field.strip() for field in line.split(","))
    watts, sm, memory = (round(float(field)) if field[:1].isdigit() else None for field in numbers)
    return {"gpu": name, "driver": driver, "power_limit_watts": watts, "clocks_mhz": {"sm": sm, "memory": memory}}


def line_of(scenario, options):
    """The line of results of a scenario, measured in a child, which is ended with all that it started."""
    command = [sys.executable, __file__, "--one", json.dumps(scenario), "--repeats", str(options.repeats)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=os.environ | environment(scenario), process_group=0)
    try:
        said, _ = child.communicate(timeout=options.seconds)
    except subprocess.TimeoutExpired:
        said = f"it took more than {options.seconds} seconds"
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
    results = [line.partition("RESULT ")[2] for line in said.splitlines() if "RESULT {" in line]
    if results:
        return json.loads(results[-1])
    lines = [line for line in said.splitlines() if line.strip()]
    reasons = [line for line in lines if "Error" in line] or lines or ["nothing was printed"]
    return {"error": reasons[-1].strip()[-500:]}


def version_of(expected):
    """vLLM's version, which must begin as is expected."""
    try:
        version = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        sys.exit("vllm_steps.py: vLLM is not installed here; pip install vllm==0.23.* in an environment of its own.")
    if not (version + ".").startswith(expected + "."):
        sys.exit(f"vllm_steps.py: this is vLLM {version}, not {expected}: arguments and defaults may differ; install that "
                 f"one, or measure this one with --expect {version}")
    return version


def options_of():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=pathlib.Path, default=ROOT / "experiments" / "configs" / "steps.json")
    p.add_argument("--only", default="", help="only scenarios whose name contains this")
    p.add_argument("--expect", default="0.23", help="the version of vLLM (default: 0.23)")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--seconds", type=int, default=400, help="the most that a scenario may take, loading included")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "vllm_steps.jsonl", help="lines are appended")
    p.add_argument("--one", help=argparse.SUPPRESS)
    return p.parse_args()


def main():
    options = options_of()
    if options.one:
        return measure_one(json.loads(options.one), options.repeats)
    version = version_of(options.expect)
    scenarios = [s for s in json.loads(options.steps.read_text())["scenarios"]
                 if is_measured(s) and options.only in s["name"]]
    if not scenarios:
        sys.exit(f"vllm_steps.py: no scenario of {options.steps} that vLLM has contains '{options.only}'.")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    facts = gpu_facts()
    failed = 0
    for scenario in scenarios:
        line = {"peer": f"vLLM {version}", "scenario": scenario["name"], **line_of(scenario, options), **facts,
                "environment": environment(scenario),
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
        failed += "error" in line
        print(f"{line['scenario']:50s} " + (line["error"] if "error" in line else f"{line['ms']:8.3f} ms"), flush=True)
        with open(options.out, "a") as file:
            file.write(json.dumps(line) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
