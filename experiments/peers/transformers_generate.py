"""The time of Hugging Face Transformers for the work of `foretoken bench --steps`: the same shapes, random weights, the
same GPU.

    python3 experiments/peers/transformers_generate.py [--tokens 32] [--context 1024] [--out FILE.jsonl]

Prints milliseconds a token of `generate` (greedy) with a Llama-3.1-8B and a Llama-3.2-1B shape at batch 1 and 64, and
of assisted generation where the small one drafts 4 tokens a round for the large one. Needs PyTorch and Transformers;
nothing of this project depends on it.
"""

import argparse
import json
import time

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SHAPES = {
    "llama-3.1-8b": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "head_dim": 128, "intermediate_size": 14336, "rope_parameters": {**LLAMA3, "factor": 8.0}},
    "llama-3.2-1b": {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "head_dim": 64, "intermediate_size": 8192, "tie_word_embeddings": True,
                     "rope_parameters": {**LLAMA3, "factor": 32.0}},
}


def model(name):
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=128256, max_position_embeddings=131072, **SHAPES[name])
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        made = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    made.generation_config.eos_token_id = None
    return made


def timed(f):
    f()  # warm up
    torch.cuda.synchronize()
    start = time.time()
    f()
    torch.cuda.synchronize()
    return time.time() - start


def measure(target, tokens, context, batch, **more):
    """Milliseconds a token (of each sequence), without the prompt's time."""
    prompt = torch.randint(0, 128256, (batch, context), device="cuda", generator=torch.Generator("cuda").manual_seed(2))
    run = lambda n: timed(lambda: target.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                                                  max_new_tokens=n, min_new_tokens=n, pad_token_id=0, **more))
    short, long = run(1), run(tokens + 1)
    return 1e3 * (long - short) / tokens


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--out", help="append JSON lines here")
    args = p.parse_args()
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}"

    def report(what, target, batch, **more):
        ms = measure(target, args.tokens, args.context, batch, **more)
        print(f"{what:45s} {ms:8.2f} ms a token", flush=True)
        if args.out:
            with open(args.out, "a") as f:
                f.write(
                    json.dumps(
                        {
                            "peer": "transformers",
                            "what": what,
                            "ms_per_token": ms,
                            "context": args.context,
                            "tokens": args.tokens,
                            "machine": machine,
                            "date": time.strftime("%Y-%m-%d"),
                        }
                    )
                    + "\n"
                )

    draft = model("llama-3.2-1b")
    for batch in (1, 64):
        report(f"1b: generate, batch {batch}", draft, batch)
    target = model("llama-3.1-8b")
    for batch in (1, 64):
        report(f"generate, batch {batch}", target, batch)
    draft.generation_config.num_assistant_tokens = 4
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    report("assisted generation, 1b drafts 4, batch 1", target, 1, assistant_model=draft)


if __name__ == "__main__":
    main()
