"""The texts: where they come from, how they are split, tokenised and served as windows.

Knows files and tokens; knows nothing of models. The texts are third-party material found under `--data`
and never committed; `manifest` records what was read.
"""

import hashlib
import json
import lzma
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

EOS = "<|endoftext|>"
EOS_ID = 0
VOCAB = 4096
DOMAINS = ("books", "sympy", "peps", "dialogues", "algorithms", "math")

# path under --data -> (domain, split, source at its revision, licence)
SOURCES = {
    "text/classics/train_100M.txt.xz": (
        "books",
        "train",
        "mlschmitt/classic-books-markdown @944882722e9a",
        "public domain",
    ),
    "text/classics/valid.txt.xz": ("books", "valid", "mlschmitt/classic-books-markdown @944882722e9a", "public domain"),
    "text/code/sympy_src.txt.xz": ("sympy", "both", "sympy/sympy @e950d313a932", "BSD-3-Clause"),
    "text/peps/peps_public_domain.rst.txt.xz": ("peps", "both", "python/peps @ba4deeb79695", "public domain / CC0-1.0"),
    "text/sgd/train.txt.xz": (
        "dialogues",
        "train",
        "google-research-datasets/dstc8-schema-guided-dialogue @e852981ae349",
        "CC BY-SA 4.0",
    ),
    "text/sgd/dev.txt.xz": (
        "dialogues",
        "valid",
        "google-research-datasets/dstc8-schema-guided-dialogue @e852981ae349",
        "CC BY-SA 4.0",
    ),
    "text/code/thealgorithms_python.txt.xz": ("algorithms", "both", "TheAlgorithms/Python @f5988cc09713", "MIT"),
    "prompts/gsm8k/train.jsonl.xz": ("math", "train", "openai/grade-school-math @3101c7d50724", "MIT"),
    "prompts/gsm8k/test.jsonl": ("math", "valid", "openai/grade-school-math @3101c7d50724", "MIT"),
}
HELD_OUT_EVERY = 25  # of a source without a split of its own, every 25th file is held out


def read_documents(path):
    raw = path.read_bytes()
    text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")
    if ".jsonl" in path.name:
        rows = [json.loads(line) for line in text.splitlines() if line]
        documents = [f"Question: {row['question']}\nAnswer: {row['answer']}" for row in rows]
    else:
        documents = [d.strip("\n") for d in text.split(EOS + "\n")]
    return raw, text, [d for d in documents if d]


def load(data_dir, limit=None):
    """Returns ({domain: {"train": [str], "valid": [str]}}, manifest rows). `limit` keeps that many documents."""
    texts = {d: {"train": [], "valid": []} for d in DOMAINS}
    manifest = []
    for name, (domain, split, source, licence) in SOURCES.items():
        raw, text, documents = read_documents(Path(data_dir) / name)
        documents = documents[:limit]
        if split == "both":
            held = [d for i, d in enumerate(documents) if i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1]
            kept = [d for i, d in enumerate(documents) if i % HELD_OUT_EVERY != HELD_OUT_EVERY - 1]
        else:
            held, kept = (documents, []) if split == "valid" else ([], documents)
        texts[domain]["train"] += kept
        texts[domain]["valid"] += held
        manifest.append({
            "path": name, "domain": domain, "source": source, "licence": licence,
            "sha256": hashlib.sha256(raw).hexdigest(), "file_bytes": len(raw), "text_bytes": len(text.encode()),
            "train_documents": len(kept), "train_bytes": sum(len(d.encode()) for d in kept),
            "held_out_documents": len(held), "held_out_bytes": sum(len(d.encode()) for d in held)})
    return texts, manifest


def train_tokenizer(texts):
    """A byte-level BPE of 4096 tokens with GPT-2's pre-tokenizer, from a slice of every domain."""
    budget = {"books": 14e6, "sympy": 8e6, "peps": 6e6, "dialogues": 6e6, "algorithms": 4e6, "math": 4e6}
    sample = []
    for domain, size in budget.items():
        used = 0
        for i, document in enumerate(texts[domain]["train"]):
            part = document[:200_000]
            sample.append(part)
            used += len(part)
            if used > size:
                break
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[AddedToken(EOS, special=True, normalized=False)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def encode_stream(tokenizer, documents):
    """All documents as one int16 stream, each followed by the end-of-text token."""
    parts = []
    for i in range(0, len(documents), 64):
        for encoding in tokenizer.encode_batch_fast(documents[i:i + 64], add_special_tokens=False):
            parts.append(torch.tensor(encoding.ids + [EOS_ID], dtype=torch.int16))
    return torch.cat(parts)


def encode_tasks(tokenizer, tasks, longest):
    """(prompt, answer) pairs as id lists; pairs whose prompt is longer than `longest` tokens are dropped."""
    prompts = tokenizer.encode_batch_fast([p for p, _ in tasks], add_special_tokens=False)
    return [e.ids for e in prompts if len(e.ids) <= longest]


def openers(tokenizer):
    """[vocabulary] bool: tokens that open a word (a blank first) or stand for no letter or digit."""
    first = [tokenizer.decode([i])[:1] for i in range(VOCAB)]
    return torch.tensor([i != EOS_ID and not (c.isalnum() or c in "_\ufffd") for i, c in enumerate(first)])


def math_tasks(documents):
    return [tuple(d.split("\nAnswer:")) for d in documents if d.count("\nAnswer:") == 1]


class Corpus:
    """Token streams and task prompts of one split on one device, sampled at random."""

    def __init__(self, streams, prompts, device):
        self.streams = {d: s.to(device) for d, s in streams.items()}
        self.prompts = prompts  # domain -> list of id lists, for the domains whose prompts are whole tasks
        self.device = device

    def windows(self, mix, rows, length, generator):
        """[rows, length] int64; each row is cut at random from a domain drawn with the weights `mix`."""
        names = list(mix)
        weights = torch.tensor([mix[d] for d in names], device=self.device)
        choice = torch.multinomial(weights, rows, replacement=True, generator=generator)
        out = torch.empty(rows, length, dtype=torch.int64, device=self.device)
        reach = torch.arange(length, device=self.device)
        for i, domain in enumerate(names):
            stream, where = self.streams[domain], (choice == i).nonzero()[:, 0]
            last = len(stream) - length
            start = (torch.rand(len(where), device=self.device, generator=generator, dtype=torch.float64) * last).long()
            out[where] = stream[start[:, None] + reach].long()
        return out

    def ordered_windows(self, domain, count, length):
        """Up to `count` windows spread evenly over one domain, the same ones each time."""
        stream = self.streams[domain]
        length = min(length, len(stream) - 1)
        count = max(1, min(count, len(stream) // length))
        start = torch.linspace(0, len(stream) - length - 1, count, device=self.device).long()
        return stream[start[:, None] + torch.arange(length, device=self.device)].long()

    def draw_prompts(self, counts, width, generator, shortest=32):
        """Prompts for generation: ([n, width] ids, lengths, domain index), right-padded with end-of-text."""
        rows, lengths, owner = [], [], []
        for index, (domain, count) in enumerate(counts.items()):
            if count == 0:
                continue
            if domain in self.prompts:
                pool = self.prompts[domain]
                picks = torch.randint(len(pool), (count,), generator=generator, device=self.device).tolist()
                block = torch.full((count, width), EOS_ID, dtype=torch.int64)
                for r, pick in enumerate(picks):
                    block[r, :len(pool[pick])] = torch.tensor(pool[pick])
                size = torch.tensor([len(pool[p]) for p in picks], device=self.device)
                block = block.to(self.device)
            else:
                block = self.windows({domain: 1.0}, count, width, generator)
                size = torch.randint(shortest, width + 1, (count,), generator=generator, device=self.device)
            rows.append(block)
            lengths.append(size)
            owner.append(torch.full((count,), index, device=self.device))
        return torch.cat(rows), torch.cat(lengths), torch.cat(owner)
