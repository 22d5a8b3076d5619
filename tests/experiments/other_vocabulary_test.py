"""Draft models of another vocabulary through the program. A draft model whose ids are permuted computes what it computed
before, so every figure stays; one without some of its tokens drafts the others, and outputs stay those of the target."""

import json
import os
import struct
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
TARGET, DRAFT = (SOURCE / "experiments" / "models" / name for name in ("target", "draft"))
TABLE = "model.embed_tokens.weight"
PROMPT = "The old man and the sea: a story of two friends, Anna and Zo\u00eb."


def read_tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return header, {name: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
                    for name, t in header.items() if name != "__metadata__"}


def write_tensors(path, header, tensors):
    at = 0
    for name, values in tensors.items():
        header[name]["data_offsets"] = [at, at + len(values)]
        at += len(values)
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(tensors.values()))


class OtherVocabulary(InFolder):
    def draft_with(self, name, kept, merges=None):
        """The draft model with these of its ids, as 0, 1, ... in this order."""
        folder = self.here / name
        folder.mkdir()
        new = {old: i for i, old in enumerate(kept)}
        config = json.loads((DRAFT / "config.json").read_text())
        config["vocab_size"] = len(kept)
        config["eos_token_id"] = new[config["eos_token_id"]]
        (folder / "config.json").write_text(json.dumps(config))
        words = json.loads((DRAFT / "tokenizer.json").read_text())
        words["model"]["vocab"] = {w: new[i] for w, i in words["model"]["vocab"].items() if i in new}
        if merges is not None:
            words["model"]["merges"] = merges
        for token in words["added_tokens"]:
            token["id"] = new[token["id"]]
        (folder / "tokenizer.json").write_text(json.dumps(words))
        header, tensors = read_tensors(DRAFT / "model.safetensors")
        width = len(tensors[TABLE]) // header[TABLE]["shape"][0]
        tensors[TABLE] = b"".join(tensors[TABLE][i * width:(i + 1) * width] for i in kept)
        header[TABLE]["shape"][0] = len(kept)
        write_tensors(folder / "model.safetensors", header, tensors)
        return folder

    def generate(self, *arguments, succeeds=True):
        done = subprocess.run([PROGRAM, "generate", "--model", TARGET, "--prompt", PROMPT, "--max-new-tokens", "48",
                               "--device", "cpu", "--threads", "1", "--json", *map(str, arguments)], cwd=self.here,
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode == 0, succeeds, done.stderr)
        return (json.loads(done.stdout), done.stderr) if succeeds else done.stderr

    def outputs(self, *arguments):
        return self.generate(*arguments)[0]["outputs"]

    def drafters(self, folder):
        yield {"name": "draft_model", "model": str(folder)}
        yield {"name": "draft_tree", "model": str(folder), "shape": [2, 1, 1], "draws": "independent"}
        yield {"name": "draft_dynamic", "model": str(folder), "width": 3, "expand": 2}

    def test_a_permuted_vocabulary_changes_nothing(self):
        permuted = self.draft_with("permuted", [(i * 1237 + 5) % 4096 for i in range(4096)])
        for own, other in zip(self.drafters(DRAFT), self.drafters(permuted)):
            for temperature in (0, 1):
                options = ("--temperature", temperature, "--set", "/policy/nodes=8")
                first = self.outputs("--drafter", json.dumps(own), *options)
                self.assertEqual(self.outputs("--drafter", json.dumps(other), *options), first, own)
                self.assertGreater(first[0]["accepted"], 5)
        self.assertIn(f"the model {permuted} has 4096 of the 4096 tokens of the target {TARGET}",
                      self.generate("--draft", permuted)[1])

    def test_a_smaller_vocabulary_drafts_what_it_has(self):
        words = json.loads((DRAFT / "tokenizer.json").read_text())
        merges, vocabulary = words["model"]["merges"], words["model"]["vocab"]
        gone = {vocabulary["".join(m.split(" ") if isinstance(m, str) else m)] for m in merges[-2500:]}
        smaller = self.draft_with("smaller", [i for i in range(4096) if i not in gone], merges[:-2500])
        plain = [o["tokens"] for o in self.outputs("--drafter", "none")]
        self.assertTrue(gone & set(plain[0]), "the output has tokens that the model lacks")
        for drafter in self.drafters(smaller):
            outputs = self.outputs("--drafter", json.dumps(drafter), "--set", "/policy/nodes=8")
            self.assertEqual([o["tokens"] for o in outputs], plain, drafter)
            self.assertGreater(outputs[0]["accepted"], 0)
        self.assertIn(f"has {4096 - len(gone)} of the 4096 tokens", self.generate("--draft", smaller)[1])

    def test_vocabularies_without_a_common_token_are_refused(self):
        folder = self.draft_with("foreign", [0, 1, 2])
        (folder / "tokenizer.json").write_text(json.dumps({
            "model": {"type": "BPE", "unk_token": "<none>", "merges": [],
                      "vocab": {"<none>": 0, "\u4e9c": 1, "\u4e9d": 2}},
            "added_tokens": [{"id": 0, "content": "<none>", "special": True}],
            "pre_tokenizer": {"type": "Metaspace"}, "decoder": {"type": "Metaspace"}}))
        stderr = self.generate("--draft", folder, succeeds=False)
        self.assertIn(f"the draft model {folder} and the target {TARGET} have no token in common", stderr)
        self.assertEqual(len(stderr.strip().splitlines()), 1, stderr)


if __name__ == "__main__":
    unittest.main()
