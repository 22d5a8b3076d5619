#!/usr/bin/env python3
"""Makes tests/data/golden/penalties.json: greedy texts that Transformers writes with the tiny models under
penalties and biases.

  penalties_golden.py [FILE]        needs torch and transformers; the tiny models must be there (make_golden.py)

Biases (`sequence_bias`) and the repetition penalty are Transformers' own; frequency and presence penalties, which it
lacks, are the formula of OpenAI's documentation, behind them: mu[j] - c[j] * frequency - (c[j] > 0) * presence.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList

import models_golden

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
OPTIONS = [
    dict(repetition_penalty=1.3),
    dict(repetition_penalty=0.8),
    dict(frequency_penalty=0.7),
    dict(presence_penalty=1.5),
    dict(logit_bias={"5": 2.0, "40": -100.0}),
    dict(repetition_penalty=1.2, frequency_penalty=0.4, presence_penalty=-0.3, logit_bias={"7": -1.5, "61": 1.0}),
]
TOKENS, LEAST_MARGIN = 24, 1e-3


class OfTheOutput(LogitsProcessor):
    def __init__(self, prompt, frequency, presence):
        self.prompt, self.frequency, self.presence = prompt, frequency, presence

    def __call__(self, input_ids, scores):
        counts = torch.bincount(input_ids[0, self.prompt:], minlength=scores.shape[-1]).to(scores.dtype)
        return scores - counts * self.frequency - (counts > 0) * self.presence


@torch.no_grad()
def write(model, prompt, options):
    arguments = {}
    if "repetition_penalty" in options:
        arguments["repetition_penalty"] = options["repetition_penalty"]
    if "logit_bias" in options:
        arguments["sequence_bias"] = [[[int(token)], bias] for token, bias in options["logit_bias"].items()]
    own = OfTheOutput(len(prompt), options.get("frequency_penalty", 0), options.get("presence_penalty", 0))
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=TOKENS,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
        logits_processor=LogitsProcessorList([own]),
        **arguments,
    )
    margins = [float(s[0].topk(2).values.diff().abs()) for s in out.scores]
    return out.sequences[0, len(prompt):].tolist(), min(margins)


def main():
    file = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "golden" / "penalties.json"
    lines = []
    for name in ("llama2", "llama3", "sharded", "qwen3", "mistral"):
        model = AutoModelForCausalLM.from_pretrained(
            DATA / "models" / name, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        model.generation_config.eos_token_id = None
        for prompt in models_golden.random_prompts():
            for options in OPTIONS:
                tokens, margin = write(model, prompt, options)
                if margin > LEAST_MARGIN:  # else rounding may decide
                    lines.append(
                        json.dumps(
                            {
                                "model": name,
                                "prompt": prompt,
                                "options": options,
                                "tokens": tokens,
                                "least_margin": round(margin, 6),
                            }
                        )
                    )
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(lines), "texts, the least margin of two logits", min(json.loads(line)["least_margin"] for line in lines))


if __name__ == "__main__":
    main()
