"""Cuts a small sample of the training texts, of the same layout and balanced over the domains.

    python3 cut_texts.py DATA OUT [--bytes N]      OUT/text and OUT/prompts together have at most N bytes (5 MiB)
"""

import argparse
import json
import lzma
from pathlib import Path

from training.data import EOS, SOURCES, read_documents

# Share of the bytes of each source; the last one has what is left. LONGEST: characters of one document.
SHARES = {"prompts/gsm8k/test.jsonl": 0.015, "prompts/gsm8k/train.jsonl.xz": 0.09, "text/sgd/dev.txt.xz": 0.02,
          "text/sgd/train.txt.xz": 0.14, "text/code/thealgorithms_python.txt.xz": 0.11,
          "text/code/sympy_src.txt.xz": 0.18, "text/peps/peps_public_domain.rst.txt.xz": 0.17,
          "text/classics/valid.txt.xz": 0.03, "text/classics/train_100M.txt.xz": 1.0}
LONGEST = 24_000
PACKING = {"preset": 9 | lzma.PRESET_EXTREME}


def clipped(document):
    """Whole lines from the beginning: a book has its title page there, so those begin a fifth in."""
    if len(document) <= LONGEST:
        return document
    begin = document.find("\n", len(document) // 5) + 1
    part = document[begin:begin + LONGEST]
    return part[:part.rfind("\n") + 1].strip("\n") or part


def documents_of(path):
    if ".jsonl" not in path.name:
        return [clipped(d) for d in read_documents(path)[2]]
    raw = path.read_bytes()
    text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    return [json.dumps({k: row[k] for k in ("question", "answer")})
            for row in map(json.loads, filter(None, text.splitlines()))]


def spread(documents, count):
    """So many of the documents, evenly over the file."""
    count = max(1, min(len(documents), count))
    return [documents[i * len(documents) // count] for i in range(count)]


def packed(path, documents):
    text = "\n".join(documents) + "\n" if ".jsonl" in path.name else "".join(f"{d}\n{EOS}\n" for d in documents)
    return lzma.compress(text.encode(), **PACKING) if path.suffix == ".xz" else text.encode()


def fitted(path, documents, limit):
    """The largest sample found that is within `limit`."""
    best, count = b"", 60
    for _ in range(5):
        sample = spread(documents, count)
        found = packed(path, sample)
        if len(best) < len(found) <= limit:
            best = found
        if len(found) <= limit and len(sample) == len(documents):
            break
        count = int(len(sample) * 0.985 * limit / len(found))
    if not best:
        raise SystemExit(f"{path} cannot be cut to {limit} bytes; give more --bytes")
    return best


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--bytes", type=int, default=5 << 20)
    args = p.parse_args()
    assert SHARES.keys() == SOURCES.keys()
    together = 0
    for name, share in SHARES.items():
        found = fitted(args.data / name, documents_of(args.data / name),
                       min(int(args.bytes * share), args.bytes - together))
        (args.out / name).parent.mkdir(parents=True, exist_ok=True)
        (args.out / name).write_bytes(found)
        together += len(found)
        print(f"{name}: {len(found)} bytes", flush=True)
    print(f"together {together} bytes")


main()
