"""Tokenizers as metadata of GGUF files, as llama.cpp's convert_hf_to_gguf.py writes them, and the ids that they
give."""

import io
import json
import pathlib
import tempfile

import gguf
import sentencepiece
from gguf import TokenType
from tokenizers import Tokenizer, models, normalizers
from transformers.convert_slow_tokenizer import SentencePieceExtractor

import texts
from tokenizers_golden import hash_of_ids

TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
CHAT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def write_numbered(writer: gguf.GGUFWriter, size: int) -> None:
    """A vocabulary of which only the size matters."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(size)])
    writer.add_token_types([TokenType.NORMAL] * size)
    writer.add_token_merges([])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_bytes(writer: gguf.GGUFWriter, pre: str, contents: dict, size: int = 0) -> None:
    """A byte-level tokenizer.json; at least `size` tokens, as many as the embedding has rows."""
    words = {i: (word, TokenType.NORMAL) for word, i in contents["model"]["vocab"].items()}
    for added in contents["added_tokens"]:
        kind = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
        words[added["id"]] = (added["content"], kind)
    size = max(size, max(words) + 1)
    tokens = [words.get(i, (f"[PAD{i}]", TokenType.UNUSED)) for i in range(size)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in contents["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([t for t, _ in tokens])
    writer.add_token_types([k for _, k in tokens])
    writer.add_token_merges(merges)


def close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def contents_of(name: str, data: pathlib.Path) -> dict:
    contents = json.loads((data / "tokenizers" / name / "tokenizer.json").read_text(encoding="utf-8"))
    # A GGUF file cannot say that white space beside an added token belongs to it, or that it is a word of its own.
    flags = ("lstrip", "rstrip", "single_word")
    contents["added_tokens"] = [
        a for a in contents["added_tokens"] if not any(a[f] for f in flags) and (a["special"] or not a["normalized"])
    ]
    return contents


def id_of(contents: dict, text: str) -> int:
    return next(a["id"] for a in contents["added_tokens"] if a["content"] == text)


def write_qwen2(writer: gguf.GGUFWriter, data: pathlib.Path, size: int) -> None:
    contents = contents_of("qwen2", data)
    write_bytes(writer, "qwen2", contents, size)
    writer.add_eos_token_id(id_of(contents, "<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT)


def qwen2_ids(data: pathlib.Path) -> str:
    return ids_of(contents_of("qwen2", data))


def ids_of(contents: dict) -> str:
    return hash_of_ids(IdsOf(Tokenizer.from_str(json.dumps(contents))), texts.strings())


def write_byte_level(name: str, contents: dict, data: pathlib.Path, bos: bool) -> None:
    writer = gguf.GGUFWriter(data / "gguf" / f"{name}.gguf", "llama")
    write_bytes(writer, name, contents)
    if bos:
        writer.add_bos_token_id(id_of(contents, "<|begin_of_text|>"))
    close(writer)
    expect(name, data, ids_of(contents))


class IdsOf:
    """encode() gives ids."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids


def expect(name: str, data: pathlib.Path, ids: str) -> None:
    (data / "gguf" / f"{name}.json").write_text(json.dumps({"ids": ids}) + "\n")


class WithBos:
    def __init__(self, processor: sentencepiece.SentencePieceProcessor):
        self.processor = processor

    def encode(self, text: str) -> list[int]:
        return [self.processor.bos_id(), *self.processor.encode(text)]


def plain_strings(control: list[str]) -> list[str]:
    """SentencePiece reads the tokens of control in a text as text; Foretoken finds them, as Transformers does."""
    return [s for s in texts.strings() if not any(c in s for c in control) and "\0" not in s]


def converted(model: bytes) -> Tokenizer:
    """The tokenizer.json that Transformers makes of a SentencePiece model, with the normalizer of Llama-2's."""
    with tempfile.NamedTemporaryFile(suffix=".model") as file:
        file.write(model)
        file.flush()
        parts = SentencePieceExtractor(file.name).extract(models.BPE)
    t = Tokenizer(models.BPE(parts["vocab"], parts["merges"], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    return t


def write_sentence_piece(data: pathlib.Path) -> None:
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts.corpus()), model_writer=trained, model_type="bpe", vocab_size=500,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.99,
        split_digits=True, minloglevel=2,
    )
    p = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    kinds = [
        TokenType.UNKNOWN if p.is_unknown(i) else TokenType.CONTROL if p.is_control(i) else
        TokenType.UNUSED if p.is_unused(i) else TokenType.BYTE if p.is_byte(i) else TokenType.NORMAL
        for i in range(p.vocab_size())
    ]
    writer = gguf.GGUFWriter(data / "gguf" / "sentencepiece.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([p.id_to_piece(i) for i in range(p.vocab_size())])
    writer.add_token_scores([p.get_score(i) for i in range(p.vocab_size())])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(p.bos_id())
    writer.add_eos_token_id(p.eos_id())
    writer.add_unk_token_id(p.unk_id())
    close(writer)
    strings = plain_strings(["<unk>", "<s>", "</s>"])
    transformers = converted(trained.getvalue())
    for text in strings:
        assert transformers.encode(text).ids == p.encode(text), text
    expect("sentencepiece", data, hash_of_ids(WithBos(p), strings))


def write_all(data: pathlib.Path) -> None:
    gpt2, llama3 = (contents_of(name, data) for name in ("gpt2", "llama3"))
    write_byte_level("gpt-2", gpt2, data, bos=False)
    write_byte_level("llama-bpe", llama3, data, bos=True)
    digits = {"type": "Digits", "individual_digits": True}
    smollm = gpt2 | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, BYTES]}}
    write_byte_level("smollm", smollm, data, bos=False)
    split = {"type": "Split", "pattern": {"Regex": TEKKEN}, "behavior": "Isolated", "invert": False}
    bytes_alone = BYTES | {"use_regex": False}
    tekken = llama3 | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_alone]}}
    write_byte_level("tekken", tekken, data, bos=True)
    write_sentence_piece(data)
