"""A head's directory: its weights in bf16 and the configuration of its published layout, and its model card."""

import json
import platform
import shutil

import torch
from safetensors.torch import load_file, save_file

from ..model import save as save_model
from .rollouts import sha256, weights_hash

NAMES = {"eagle3": "EAGLE-3", "mtp": "multi-token prediction (MiMo's layout)", "pard": "PARD", "dflash": "DFlash",
         "eagle": "EAGLE", "medusa": "Medusa", "hydra": "Hydra", "dspark": "DSpark", "kangaroo": "Kangaroo",
         "linear": "linear"}


def configuration(head):
    s = head.shape
    layer = {"vocab_size": s.vocab, "hidden_size": s.dim, "intermediate_size": s.ffn, "num_hidden_layers": 1,
             "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads, "head_dim": s.head_dim,
             "hidden_act": "silu", "max_position_embeddings": s.context, "rms_norm_eps": s.eps, "rope_theta": s.theta,
             "torch_dtype": "bfloat16"}
    return {**layer, **head.config()}


def in_bf16(tensors):
    """Floating-point ones as bf16, tables as they are; on the CPU."""
    return {name: (t.detach().to(torch.bfloat16) if t.is_floating_point() else t).cpu().contiguous()
            for name, t in tensors.items()}


def save_pard(head, folder, target, tokenizer):
    save_model(head.llama, folder, tokenizer)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "pard_token": head.mask, "spd_type": "pard"}, indent=2) + "\n")
    for file in target.folder.glob("tokenizer*.json"):
        shutil.copyfile(file, folder / file.name)


def save(family, head, folder, target, tokenizer):
    folder.mkdir(parents=True, exist_ok=True)
    if family == "pard":
        return save_pard(head, folder, target, tokenizer)
    tensors = head.tensors() if hasattr(head, "tensors") else head.state_dict()
    save_file(in_bf16(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(configuration(head), indent=2) + "\n")


def reload(family, head, folder):
    """The weights as saved, so that what is measured is what is in the file."""
    stored = load_file(folder / "model.safetensors")
    stored = {name: t.float() for name, t in stored.items() if name not in ("d2t", "t2d")}
    (head.llama if family == "pard" else head).load_state_dict(stored)


def machine(device):
    return torch.cuda.get_device_name() if device.startswith("cuda") else f"{platform.machine()} CPU"


def table(measured):
    depth = len(measured["greedy"]["positions"])
    rows = [f"| | {' | '.join(str(k + 1) for k in range(depth))} | tau |", "|---|" + "---|" * (depth + 1)]
    for name, title in (("greedy", "T=0"), ("sampled", "T=1")):
        part = measured[name]
        rows.append(f"| {title} | " + " | ".join(f"{p:.3f}" for p in part["positions"]) + f" | {part['tau']:.2f} |")
    return "\n".join(rows)


def card(family, head, folder, target, about, run, measured):
    """Writes README.md. `run`: what the trainer says of itself."""
    count = sum(p.numel() for p in head.parameters())
    own = ", ".join(f"`{k}` {json.dumps(v)}" for k, v in run["settings"].items())
    texts = "\n".join(f"| `{row['path']}` | {row['sha256']} |" for row in about["texts"])
    made = about["settings"]
    (folder / "README.md").write_text(f"""# {NAMES[family]} head of {target.folder.name}

| | |
|---|---|
| family | {NAMES[family]} |
| target | `{target.folder.name}`; SHA-256 of its weights {weights_hash(target.folder)}, of its tokenizer.json {sha256(target.folder / "tokenizer.json")} |
| weights | {count:,} parameters, {(folder / "model.safetensors").stat().st_size / 1e6:.2f} MB, bf16; SHA-256 {sha256(folder / "model.safetensors")} |
| data | {made["train"]} outputs of the target, two of three greedy, the others sampled at T=1; at most {made["prompt_tokens"]} tokens of prompt and {made["new_tokens"]} new ones |
| training | {run["steps"]} steps, {run["seconds"]:.0f} s on {run["machine"]}, torch {torch.__version__}; `experiments/models/train_heads.py` |
| settings | {own} |

## Held-out acceptance

Along {made["held-out"]} outputs of the target whose prompts are from held-out documents: the chance that the draft at a
position of a chain is accepted, given that the ones before it were. T=0: the draft's first choice is the target's
token; T=1: the mean of the sum over tokens of min(p, q). tau: mean number of tokens of a round with a chain so long,
the target's own one included.

{table(measured)}

## Texts

Prompts are cut from these files; `experiments/models/README.md` says where they come from and under which licences.

| file | SHA-256 |
|---|---|
{texts}
""")
