"""Trains the demo models: `target`, `draft` and `draft-large`, as Hugging Face directories.

    python3 train.py --data DIR [--out DIR] [--work DIR] [--stages data,pretrain,unloop,rollouts,distil,measure]

DIR holds text/ and prompts/ as SOURCES of training/data.py lists them. Stages leave what the next ones need under
--work, so a run can be taken up at any stage. See README.md for the exact command behind the committed weights.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from training import data, distil, measure, stages
from training.copying import copy_tasks
from training.model import SHAPES, Llama, load, save, shape_line

HERE = Path(__file__).resolve().parent
NAMES = ("target", "draft", "draft-large")


class Log:
    def __init__(self, path):
        self.file, self.start = open(path, "a", buffering=1), time.time()

    def __call__(self, text):
        line = f"[{time.time() - self.start:6.0f}] {text}"
        print(line, flush=True)
        self.file.write(line + "\n")


def prepare(args, log):
    """Texts -> tokenizer, manifest, token streams and task prompts of both splits."""
    texts, manifest = data.load(args.data, args.documents)
    tokenizer = Tokenizer.from_file(args.tokenizer) if args.tokenizer else data.train_tokenizer(texts)
    tokenizer.save(str(args.work / "tokenizer.json"))
    (args.work / "data_manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    streams, prompts = {}, {}
    for split, count, seed in (("train", args.copy_tasks, 11), ("valid", max(200, args.copy_tasks // 100), 12)):
        tasks = copy_tasks(texts, split, count, seed)
        streams[split] = {d: data.encode_stream(tokenizer, texts[d][split]) for d in data.DOMAINS}
        streams[split]["copy"] = data.encode_stream(tokenizer, [p + a for p, a in tasks])
        prompts[split] = {
            "math": data.encode_tasks(tokenizer, data.math_tasks(texts["math"][split]), stages.PROMPT),
            "copy": data.encode_tasks(tokenizer, tasks[:40_000], stages.PROMPT)}
        log(f"data {split}: " + " ".join(f"{d} {len(s) / 1e6:.2f} M" for d, s in streams[split].items()) + " tokens")
    torch.save({"streams": streams, "prompts": prompts}, args.work / "data.pt")


def corpus_of(args, split):
    stored = torch.load(args.work / "data.pt", weights_only=True)
    return data.Corpus(stored["streams"][split], stored["prompts"][split], args.device)


def stored_target(args, name):
    model = Llama(SHAPES["target"])
    model.load_state_dict(torch.load(args.work / name, weights_only=True, map_location="cpu"))
    return model.to(args.device)


def train(args, log):
    tokenizer = Tokenizer.from_file(str(args.work / "tokenizer.json"))
    corpus = corpus_of(args, "train")
    fast = {"device": args.device, "log": log, "compiled": not args.eager}
    if "pretrain" in args.stages:
        model = stages.pretrain(corpus, args.pretrain_steps, rows=args.rows, **fast)
        torch.save(model.state_dict(), args.work / "pretrained.pt")
    if "unloop" in args.stages:
        model, base = (stored_target(args, "pretrained.pt") for _ in range(2))
        if not args.eager:
            model.compile_blocks(), base.compile_blocks()
        openers = data.openers(tokenizer).to(args.device)
        stages.unloop(model, base, corpus, openers, args.unloop_rounds, batch=args.unloop_batch, **fast)
        save(model, args.out / "target", tokenizer)
    if "rollouts" in args.stages:
        target = load("target", args.out / "target", args.device)
        rolled = stages.rollouts(target, corpus, args.rollout_batches, args.device, log, args.rollout_batch)
        torch.save(rolled, args.work / "rollouts.pt")
    if "distil" in args.stages:
        target = load("target", args.out / "target", args.device)
        rolled = torch.load(args.work / "rollouts.pt", weights_only=True, map_location=args.device)
        drafts = distil.distil(target, corpus, rolled, args.distil_steps, rows=args.distil_rows,
                               windows=args.distil_windows, start=args.drafts_from, seconds=args.distil_seconds, **fast)
        for name, model in drafts.items():
            save(model, args.out / name, tokenizer)


def evaluate(args, log):
    torch.backends.cuda.matmul.allow_tf32 = False
    tokenizer = Tokenizer.from_file(str(args.out / "target" / "tokenizer.json"))
    models = {n: load(n, args.out / n, args.device) for n in NAMES}
    for name, model in models.items():
        log(shape_line(name, model))
    corpus = corpus_of(args, "valid")
    measure.held_out_loss(models, corpus, log)
    measure.acceptance_on_texts(models, corpus, log)
    if args.before and (args.work / "pretrained.pt").exists():
        before = {**models, "target": stored_target(args, "pretrained.pt")}
        measure.held_out_loss({"target before unloop": before["target"]}, corpus, log)
        measure.describe(
            before, measure.held_out_prompts(corpus, args.device, args.held_out), log, "before unloop, held-out"
        )
    measure.describe(models, measure.held_out_prompts(corpus, args.device, args.held_out), log, "held-out")
    if args.prompts.exists():
        entries, groups = measure.own_prompts(args.prompts, tokenizer, args.device)
        lengths = torch.cat([l for _, l in groups.values()])
        log(f"prompts.jsonl: {len(entries)} prompts of {int(lengths.min())} to {int(lengths.max())} tokens")
        measure.describe(models, groups, log, "prompts", repeats=4)
        measure.show_samples(models["target"], entries, groups, tokenizer, log)
        measure.compare_with_transformers(models, {n: args.out / n for n in NAMES}, groups, log)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", required=True, help="folder with text/ and prompts/")
    p.add_argument("--out", type=Path, default=HERE, help="where target/, draft/ and draft-large/ are written")
    p.add_argument(
        "--work", type=Path, default=Path("/tmp/foretoken-training"), help="streams and checkpoints between stages"
    )
    p.add_argument("--log", type=Path, help="default: WORK/train.log")
    p.add_argument("--stages", default="data,pretrain,unloop,rollouts,distil,measure")
    p.add_argument("--tokenizer", help="reuse this tokenizer.json instead of training one")
    p.add_argument("--prompts", type=Path, default=HERE.parent / "prompts.jsonl")
    p.add_argument(
        "--drafts-from", type=Path, help="folder whose draft/ and draft-large/ the distillation goes on from"
    )
    p.add_argument("--distil-seconds", type=int, help="distil for so long instead of --distil-steps")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--eager", action="store_true", help="do not compile")
    p.add_argument("--before", action="store_true", help="also measure the target before the unloop stage")
    p.add_argument("--documents", type=int, help="read only so many documents of each source (a trial run)")
    for name, value in (("copy-tasks", 60_000), ("pretrain-steps", 5600), ("rows", 128), ("unloop-rounds", 70),
                        ("unloop-batch", 1536), ("rollout-batches", 22), ("rollout-batch", 4096),
                        ("distil-steps", 5000), ("distil-rows", 256), ("distil-windows", 12), ("held-out", 192)):
        p.add_argument(f"--{name}", type=int, default=value)
    args = p.parse_args()
    args.stages = args.stages.split(",")
    return args


def main():
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    log = Log(args.log or args.work / "train.log")
    torch._dynamo.config.recompile_limit = 64
    machine = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    log(
        f"{machine}, torch {torch.__version__}, "
        + " ".join(
            f"{k}={v}"
            for k, v in vars(args).items()
            if k not in ("data", "out", "work", "log", "prompts", "tokenizer", "drafts_from")
        )
    )
    if "data" in args.stages:
        prepare(args, log)
    if {"pretrain", "unloop", "rollouts", "distil"} & set(args.stages):
        train(args, log)
    if "measure" in args.stages:
        evaluate(args, log)


if __name__ == "__main__":
    main()
