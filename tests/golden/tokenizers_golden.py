"""Tiny tokenizers with the pre-tokenizer rules of GPT-2, Llama-3 and Qwen2, and the ids that Transformers gives."""

import json
import pathlib

import xxhash
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import texts

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split_rule(pattern: str):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
    ])


def train(tokenizer: Tokenizer, vocab: int, special: list[str]) -> None:
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts.corpus(), trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special, show_progress=False))


def gpt2() -> Tokenizer:
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    train(t, 700, ["<|endoftext|>"])
    return t


def llama3() -> Tokenizer:
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = split_rule(LLAMA3)
    train(t, 800, [])
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|endoftext|>"])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                                      special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))]),
    ])
    return t


def qwen2() -> Tokenizer:
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = split_rule(QWEN2)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    train(t, 640, [])
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([
        AddedToken("<tool>", normalized=False), AddedToken("tool", single_word=True, normalized=False),
        AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
        AddedToken("<norm\u1ec7>", normalized=True), AddedToken("<|im", normalized=False),
    ])
    return t


def write_tiny(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Both ways of writing merges occur: GPT-2's file keeps the old one, "a b"."""
    written = {}
    for make in (gpt2, llama3, qwen2):
        directory = folder / make.__name__
        directory.mkdir(parents=True, exist_ok=True)
        data = json.loads(make().to_str())
        if make is gpt2:
            data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
        (directory / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
        written[make.__name__] = directory
    return written


def fingerprint(file: pathlib.Path) -> str:
    """Tokenizer::fingerprint, computed here from the file alone: XXH3 over length and bytes of every id."""
    data = json.loads(file.read_text(encoding="utf-8"))
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(b): b for b in printable}
    byte_of |= {chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
    entries = {}
    for word, token in data["model"]["vocab"].items():
        inside = all(c in byte_of for c in word)
        entries[token] = bytes(byte_of[c] for c in word) if inside else word.encode()
    for added in data["added_tokens"]:
        entries[added["id"]] = added["content"].encode()
    hashed = xxhash.xxh3_64()
    for token in range(max(entries) + 1):
        word = entries.get(token)
        hashed.update((0xFFFFFFFF if word is None else len(word)).to_bytes(4, "little") + (word or b""))
    return hashed.hexdigest()


def write_golden(name: str, directory: pathlib.Path, folder: pathlib.Path) -> None:
    file = directory / "tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), clean_up_tokenization_spaces=False)
    raw = Tokenizer.from_file(str(file))
    ids, plain, decoded = [], [], []
    for text in texts.strings():
        ids.append(tokenizer.encode(text))
        plain.append(tokenizer.encode(text, add_special_tokens=False))
        decoded.append(tokenizer.decode(ids[-1], skip_special_tokens=True, clean_up_tokenization_spaces=False))
        assert ids[-1] == raw.encode(text).ids, text
    broken = [{"hex": h, "ids": tokenizer.encode(bytes.fromhex(h).decode("utf-8", errors="replace"))} for h in texts.BROKEN]
    special = sorted(a["id"] for a in json.loads(file.read_text(encoding="utf-8"))["added_tokens"] if a["special"])
    golden = {"tokenizer": name, "fingerprint": fingerprint(file), "vocab": len(raw.get_vocab()), "special": special,
              "ids": ids, "prefix": len(ids[0]), "decoded": {str(i): d for i, (t, d) in enumerate(zip(texts.strings(), decoded)) if t != d},
              "broken": broken}
    for a, b in zip(ids, plain):
        assert a[golden["prefix"]:] == b
    (folder / f"{name}.golden.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    (folder / "strings.json").write_text(json.dumps(texts.strings(), ensure_ascii=True, indent=0) + "\n")
