"""Reads the committed results, plain or compressed with gzip or xz. Results are named without the end of their file's
name: "cpu/quickstart" is experiments/results/cpu/quickstart.jsonl, .jsonl.gz or .jsonl.xz."""

import gzip
import lzma
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
UNPACK = {b"\x1f\x8b": gzip.decompress, b"\xfd7zXZ\0": lzma.decompress}  # by the first bytes


def file_of(name):
    """Whichever of the three is there."""
    for ending in ("", ".gz", ".xz"):
        path = RESULTS / f"{name}.jsonl{ending}"
        if path.exists():
            return path
    raise FileNotFoundError(f"no results are committed as {RESULTS / name}.jsonl, .jsonl.gz or .jsonl.xz")


def lines_of(path):
    """Without their newlines."""
    found = path.read_bytes()
    unpack = next((unpack for first, unpack in UNPACK.items() if found.startswith(first)), bytes)
    text = unpack(found).decode()
    return text.removesuffix("\n").split("\n")  # not splitlines(), which parts texts at other characters too
