"""Tiny tokenizers with the pre-tokenizer rules of GPT-2, Llama-3 and Qwen2 and as SentencePiece's come (Llama-2,
Mistral, Gemma), and the ids that Transformers gives."""

import json
import os
import pathlib
import re

import xxhash
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import texts

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


SHARED = pathlib.Path(os.environ.get("FORETOKEN_DATA", pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"))


def split_rule(pattern: str):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
    ])


def train(tokenizer: Tokenizer, vocab: int, special: list[str]) -> None:
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts.corpus(),
        trainers.BpeTrainer(
            vocab_size=vocab,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=special,
            show_progress=False,
        ),
    )


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
    t.add_special_tokens(
        [
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|endoftext|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ]
    )
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


def characters(vocab: int, dropped: str = "") -> models.BPE:
    """A vocabulary as SentencePiece orders it: <unk>, <s>, </s>, the bytes, merges, characters; without the characters `dropped`."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = pre_tokenizers.Split("\u2581", behavior="merged_with_next")
    trained.train_from_iterator(
        texts.corpus(),
        trainers.BpeTrainer(vocab_size=vocab, limit_alphabet=120, special_tokens=["<unk>"], show_progress=False),
    )
    data = json.loads(trained.to_str())["model"]
    words = [w for w in data["vocab"] if w != "<unk>" and not any(c in w for c in dropped)]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in data["merges"]]
    merges = [m for m in merges if not any(c in w for w in m for c in dropped)]
    order = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        *sorted(words, key=lambda w: (len(w) == 1, data["vocab"][w])),
    ]
    return models.BPE(
        vocab={w: i for i, w in enumerate(order)}, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )


def begin_with_bos(t: Tokenizer) -> None:
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", t.token_to_id("<s>"))]
    )


def llama2() -> Tokenizer:
    """As Transformers converts Llama-2's and TinyLlama's; <tool> is found in the normalized text."""
    t = Tokenizer(characters(600))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    t.add_special_tokens(["<unk>", AddedToken("<s>", normalized=False), AddedToken("</s>", normalized=False)])
    t.add_tokens(
        [
            AddedToken("<tool>", normalized=True),
            AddedToken("<left>", lstrip=True, normalized=False),
            AddedToken("<|im_start|>", normalized=False),
        ]
    )
    begin_with_bos(t)
    return t


def mistral() -> Tokenizer:
    """As the newer files have it: Metaspace before the first word alone, no normalizer, [INST] as tokens."""
    t = Tokenizer(characters(500, dropped="xyz0"))
    t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    t.add_special_tokens(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    t.add_tokens(
        [AddedToken("<right>", rstrip=True, normalized=False), AddedToken("tool", single_word=True, normalized=False)]
    )
    begin_with_bos(t)
    return t


def metaspace() -> Tokenizer:
    """No bytes to fall back on: what is not in the vocabulary is <unk>; Metaspace splits, and decodes."""
    bpe = characters(400, dropped="q")
    spec = json.loads(Tokenizer(bpe).to_str())["model"]
    keep = [w for w in spec["vocab"] if not w.startswith("<0x")]
    t = Tokenizer(
        models.BPE(
            vocab={w: i for i, w in enumerate(keep)},
            merges=[tuple(m) for m in spec["merges"]],
            unk_token="<unk>",
            fuse_unk=False,
        )
    )
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="always", split=True)
    t.decoder = decoders.Metaspace("\u2581", prepend_scheme="always", split=True)
    t.add_special_tokens(["<s>", "</s>"])
    return t


def gemma() -> Tokenizer:
    """Spaces become marks, nothing stands before the first word, runs of spaces are split off."""
    t = Tokenizer(characters(500))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens(["<s>", "</s>", "<start_of_turn>", "<end_of_turn>"])
    begin_with_bos(t)
    return t


def write_tiny(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Both ways of writing merges occur: GPT-2's file keeps the old one, "a b"."""
    written = {}
    for make in (gpt2, llama3, qwen2, llama2, mistral, metaspace, gemma):
        directory = folder / make.__name__
        directory.mkdir(parents=True, exist_ok=True)
        data = json.loads(make().to_str())
        if make in (gpt2, llama2):
            data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
        (directory / "tokenizer.json").write_text(
            json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8"
        )
        written[make.__name__] = directory
    return written


def as_text(word: str, falls_back: bool) -> bytes:
    """A word of SentencePiece's inside a text."""
    byte = re.fullmatch("<0x([0-9A-F]{2})>", word) if falls_back else None
    return bytes([int(byte[1], 16)]) if byte else word.replace("\u2581", " ").encode()


def fingerprint(file: pathlib.Path) -> str:
    """Tokenizer::fingerprint, computed here anew: XXH3 over length and bytes of every id."""
    data = json.loads(file.read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(file))  # says as what an added token is found
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(b): b for b in printable}
    byte_of |= {chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
    entries = {}
    byte_level = data["decoder"]["type"] == "ByteLevel"
    falls_back = "ByteFallback" in json.dumps(data["decoder"])
    for word, token in data["model"]["vocab"].items():
        if not byte_level:
            entries[token] = as_text(word, falls_back)
            continue
        inside = all(c in byte_of for c in word)
        entries[token] = bytes(byte_of[c] for c in word) if inside else word.encode()
    for added in data["added_tokens"]:
        entries[added["id"]] = (
            added["content"].encode() if byte_level else as_text(tokenizer.id_to_token(added["id"]), falls_back)
        )
    hashed = xxhash.xxh3_64()
    for token in range(max(entries) + 1):
        word = entries.get(token)
        hashed.update((0xFFFFFFFF if word is None else len(word)).to_bytes(4, "little") + (word or b""))
    return hashed.hexdigest()


def hash_of_ids(tokenizer, strings: list[str]) -> str:
    """XXH3 over the count and the ids of every string, 4 bytes each."""
    hashed = xxhash.xxh3_64()
    for text in strings:
        for number in (len(ids := tokenizer.encode(text)), *ids):
            hashed.update(number.to_bytes(4, "little"))
    return hashed.hexdigest()


def vectors() -> list[str]:
    """Other people's adversarial strings (llama.cpp's), of which only a hash of the ids is kept; none where they are not at hand."""
    file = SHARED / "vectors" / "tokenizer" / "ggml-vocab-gpt-2.gguf.inp"
    return file.read_bytes().decode().split("\n__ggml_vocab_test__\n")[:-1] if file.exists() else []


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
    broken = [
        {"hex": h, "ids": tokenizer.encode(bytes.fromhex(h).decode("utf-8", errors="replace"))} for h in texts.BROKEN
    ]
    special = sorted(a["id"] for a in json.loads(file.read_text(encoding="utf-8"))["added_tokens"] if a["special"])
    golden = {
        "tokenizer": name,
        "fingerprint": fingerprint(file),
        "vocab": len(raw.get_vocab()),
        "special": special,
        "ids": ids,
        "prefix": len(ids[0]),
        "decoded": {str(i): d for i, (t, d) in enumerate(zip(texts.strings(), decoded)) if t != d},
        "broken": broken,
    }
    if strings := vectors():
        golden["vectors"] = hash_of_ids(tokenizer, strings)
    for a, b in zip(ids, plain):
        assert a[golden["prefix"]:] == b
    (folder / f"{name}.golden.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    (folder / "strings.json").write_text(json.dumps(texts.strings(), ensure_ascii=True, indent=0) + "\n")
