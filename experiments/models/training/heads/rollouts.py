"""The target's own outputs: generated once for all families, and kept under --work."""

import hashlib
import os
import time

import torch
from tokenizers import Tokenizer

from .. import data
from ..copying import copy_tasks
from ..model import generate, load

WHOLE = ("math", "copy")  # domains whose prompts are whole tasks, not cut from running text


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights_hash(folder):
    """Of a model's weight files in the order of their names."""
    together = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        together.update(bytes.fromhex(sha256(file)))
    return together.hexdigest()


def store(value, path):
    """Whole or not at all: an interrupted write leaves the file that was there."""
    part = path.with_suffix(".part")
    torch.save(value, part)
    os.replace(part, path)


def prompts_of(texts, split, tokenizer, counts, longest, device):
    """A corpus of one split, cut as training/data.py does; domains without text are left out of `counts`."""
    tasks = copy_tasks(texts, split, max(200, 3 * counts["copy"]), 11 if split == "train" else 12)
    pools = {"math": data.encode_tasks(tokenizer, data.math_tasks(texts["math"][split]), longest),
             "copy": data.encode_tasks(tokenizer, tasks, longest)}
    running = [d for d in data.DOMAINS if d not in WHOLE]
    streams = {d: data.encode_stream(tokenizer, texts[d][split]) for d in running}
    for name, stream in streams.items():
        if len(stream) <= longest:
            raise SystemExit(f"the domain {name} has only {len(stream)} tokens in the split {split}; "
                             "give --data with more text")
    return data.Corpus(streams, pools, device)


def shares(count):
    """How many prompts of each domain."""
    mix = {**{d: 1.0 for d in data.DOMAINS}, "copy": 1.2, "books": 1.3}
    counts = {d: int(count * v / sum(mix.values())) for d, v in mix.items()}
    counts["books"] += count - sum(counts.values())
    return counts


def continued(model, corpora, counts, args, log):
    """For each corpus its count of [rows, lengths, totals, greedy].

    Of three batches two are greedy, one is sampled at T=1; each has prompts of all corpora and domains.
    """
    generator = torch.Generator(args.device).manual_seed(21)
    batches = max(3, -(-sum(counts) // args.rollout_batch))
    sizes = [-(-count // batches) for count in counts]
    parts, start, made = [], time.time(), 0
    kind = torch.int16 if model.shape.vocab < 1 << 15 else torch.int32
    for step in range(batches):
        drawn = [corpus.draw_prompts(shares(size), args.prompt_tokens, generator, args.shortest)
                 for corpus, size in zip(corpora, sizes)]
        prompts, lengths = (torch.cat([d[i] for d in drawn]) for i in (0, 1))
        sampled = step % 3 == 2
        rows, total = generate(model, prompts, lengths, args.new_tokens, float(sampled), generator)
        columns = (rows.to(kind), lengths.int(), total.int(), torch.full_like(lengths, not sampled).bool())
        parts.append([column.cpu().split(sizes) for column in columns])
        made += int((total - lengths).sum())
        log(f"outputs: batch {step + 1}/{batches}, {made / 1e6:.2f} M tokens in {time.time() - start:.0f} s")
    return [[torch.cat([part[column][i] for part in parts]) for column in range(4)] for i in range(len(corpora))]


def outputs(args, log):
    """{"train", "held-out": columns of Rows, "about"}: what --work has, or else new ones of the target."""
    path = args.work / "outputs.pt"
    about = {"target": weights_hash(args.target), "train": args.outputs, "held-out": args.held_out,
             "new_tokens": args.new_tokens, "prompt_tokens": args.prompt_tokens}
    if path.exists():
        stored = torch.load(path, weights_only=True)
        if stored["about"]["settings"] == about:
            return stored
        log(f"{path} is of other settings or another target and is made anew")
    if not args.data:
        raise SystemExit(f"{path} is not there yet: give --data, the folder of the texts that prompts are cut from")
    texts, manifest = data.load(args.data)
    tokenizer = Tokenizer.from_file(str(args.target / "tokenizer.json"))
    start, counts = time.time(), (args.outputs, args.held_out)
    corpora = [prompts_of(texts, split, tokenizer, shares(count), args.prompt_tokens, args.device)
               for split, count in zip(("train", "valid"), counts)]
    log(f"texts read in {time.time() - start:.0f} s")
    model = load(None, args.target, args.device, torch.bfloat16 if args.device.startswith("cuda") else torch.float32)
    made = dict(zip(("train", "held-out"), continued(model, corpora, counts, args, log)))
    made["about"] = {"settings": about, "seconds": round(time.time() - start),
                     "texts": [{k: row[k] for k in ("path", "sha256")} for row in manifest]}
    store(made, path)
    return made


def frequent(columns, count):
    """The `count` tokens that the outputs have most often, ascending."""
    rows, lengths, total, _ = columns
    where = torch.arange(rows.shape[1])
    emitted = rows[(where >= lengths[:, None]) & (where < total[:, None])].long()
    often = torch.bincount(emitted)
    if count > len(often):
        raise SystemExit(f"a draft vocabulary of {count} tokens is larger than the {len(often)} of the outputs; "
                         "choose a smaller draft_vocab")
    return often.topk(count).indices.sort().values
