"""Trains a draft head on the outputs of a frozen target and writes it in its published layout.

    python3 train_heads.py FAMILY --target DIR --data DATA --out DIR [--work DIR] [--steps N | --seconds S] [--resume]

FAMILY is eagle3, mtp, pard, dflash, eagle, medusa, hydra, dspark, kangaroo or linear. DATA holds text/ and prompts/ as
train.py wants them; prompts are cut from it, and the target's outputs are kept under --work for all families.
"""

import argparse
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from training.heads.settings import FAMILIES, settings_of
from training.heads.trainer import train

HERE = Path(__file__).resolve().parent


class Log:
    """Lines on the standard output and in a file."""

    def __init__(self, file):
        self.file, self.start = file, time.time()

    def __call__(self, text):
        line = f"[{time.time() - self.start:6.1f}] {text}"
        print(line, flush=True)
        self.file.write(line + "\n")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("family", choices=sorted(FAMILIES))
    p.add_argument("--target", type=Path, default=HERE / "target", help="directory of the target, a Llama")
    p.add_argument("--data", help="folder with text/ and prompts/; needed once, until --work has outputs")
    p.add_argument("--out", type=Path, required=True, help="directory of the head")
    p.add_argument("--work", type=Path, default=Path("/tmp/foretoken-heads"), help="outputs, checkpoints, logs")
    length = p.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="train for so many steps")
    length.add_argument("--seconds", type=float, help="train for so long (default: that of the family)")
    p.add_argument("--resume", action="store_true", help="go on from the checkpoint under --work")
    p.add_argument("--stop-at", type=int, help="leave a checkpoint at this step and end, to be resumed")
    p.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings other than the family's")
    p.add_argument("--mask", type=int, help="mask token (default: that of the byte 0xFF, which no text has)")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--eager", action="store_true", help="do not compile (as always on a CPU)")
    for name, value, text in (
            ("outputs", 49152, "outputs to train on"), ("held-out", 768, "outputs to measure on"),
            ("rollout-batch", 8192, "outputs generated together"), ("new-tokens", 256, "longest output"),
            ("prompt-tokens", 192, "longest prompt"), ("shortest", 32, "shortest prompt cut from running text"),
            ("seed", 5, "of the initial weights"), ("log-every", 50, "steps"), ("measure-every", 500, "steps"),
            ("keep-every", 60, "seconds between checkpoints")):
        p.add_argument(f"--{name}", type=int, default=value, help=f"{text} (default {value})")
    args = p.parse_args()
    args.eager = args.eager or not args.device.startswith("cuda")
    args.target, args.out = args.target.resolve(), args.out.resolve()
    return args


def main():
    args = arguments()
    settings = settings_of(args.family, args.set)
    if args.seconds:
        settings["seconds"] = args.seconds
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    tokenizer = Tokenizer.from_file(str(args.target / "tokenizer.json"))
    with open(args.work / f"{args.family}.log", "a", buffering=1) as file:
        log = Log(file)
        log(f"{args.family} on {args.device}, torch {torch.__version__}")
        train(args.family, settings, args, log, tokenizer)


if __name__ == "__main__":
    main()
