"""`foretoken datastore` as a user runs it: what it writes, that rest drafts from it, and bad input."""

import json
import os
import struct
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODELS = SOURCE / "experiments" / "models"
HEADER = struct.Struct("<16sIIQQQQQ")


class Datastore(InFolder):
    def run_it(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.here, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def build(self, *texts, out="s.rest", model="target"):
        return self.run_it("datastore", *texts, "--model", str(MODELS / model), "--out", out)

    def generate(self, drafter, *arguments):
        prompt = "The quick brown fox jumps over"
        status, out, err = self.run_it("generate", "--model", str(MODELS / "target"), "--prompt", prompt,
                                       "--max-new-tokens", "24", "--ignore-eos", "--drafter", json.dumps(drafter),
                                       "--length", "8", "--json", *arguments)
        return status, json.loads(out) if status == 0 else out, err

    def test_what_is_written(self):
        """Tokens with a separator between texts, and their suffixes in order."""
        self.write("a.txt", "one two one two")
        self.write("b.jsonl", '{"text": "one two three"}\n{"turns": ["two one", "one"]}\n')
        status, out, err = self.build("a.txt", "b.jsonl")
        self.assertEqual(status, 0, err)
        whole = (self.here / "s.rest").read_bytes()
        magic, version, width, _, vocab, count, _, _ = HEADER.unpack_from(whole)
        self.assertEqual((magic, version, width), (b"foretoken rest\n\0", 1, 2))
        tokens = struct.unpack_from(f"<{count}H", whole, HEADER.size)
        suffixes = struct.unpack_from(f"<{count}I", whole, (HEADER.size + 2 * count + 3) // 4 * 4)
        self.assertEqual(tokens.count(0xffff), 3, "four texts")
        self.assertTrue(all(t < vocab or t == 0xffff for t in tokens))
        # No token is an end of text or its beginning: a match would stop there.
        self.assertEqual(list(suffixes), sorted(range(count), key=lambda i: tokens[i:]))
        self.assertIn(f"{count} tokens of 4 texts, {len(whole)} bytes", out)
        status, out, err = self.run_it("datastore", "a.txt", "--model", str(MODELS / "target"), "--out", "s.rest",
                                       "--json")
        self.assertEqual((status, json.loads(out)["texts"]), (0, 1), err)

    def test_drafts(self):
        """A datastore of the output itself: all of it is accepted, and nothing changes."""
        status, plain, err = self.generate({"name": "none"})
        self.assertEqual(status, 0, err)
        self.write("out.txt", "The quick brown fox jumps over" + plain["outputs"][0]["text"])
        self.assertEqual(self.build("out.txt")[0], 0)
        status, drafted, err = self.generate({"name": "rest", "datastore": "s.rest"})
        self.assertEqual(status, 0, err)
        self.assertEqual(drafted["outputs"][0]["tokens"], plain["outputs"][0]["tokens"])
        self.assertLess(drafted["figures"]["rounds"], plain["figures"]["rounds"] / 3)

    def test_bad_input(self):
        self.write("a.txt", "one two one two")
        self.write("empty.txt", "")
        self.write("bad.jsonl", '{"number": 1}\n')
        for texts, options, words in (
            (["absent.txt"], {}, ["absent.txt", "does not exist"]),
            (["empty.txt"], {}, ["no tokens"]),
            (["bad.jsonl"], {}, ["bad.jsonl:1", "text"]),
            (["a.txt"], {"out": "no/s.rest"}, ["--out", "does not exist"]),
            (["a.txt"], {"out": "."}, ["--out", "is a folder"]),
            (["a.txt"], {"model": "absent"}, ["absent", "does not exist"]),
        ):
            status, out, err = self.build(*texts, **options)
            err = "".join(line for line in err.splitlines(True) if not line.startswith("foretoken datastore: "))
            self.assertEqual((status, out, err.count("\n")), (1, "", 1), err)
            for word in words:
                self.assertIn(word, err)
        self.assertEqual(self.build("a.txt")[0], 0)
        whole = (self.here / "s.rest").read_bytes()
        (self.here / "cut.rest").write_bytes(whole[:-1])
        (self.here / "other.rest").write_bytes((MODELS / "target" / "tokenizer.json").read_bytes())
        for name, words in (("cut.rest", ["cut.rest", "its header says", "foretoken datastore"]),
                            ("other.rest", ["is no datastore", "foretoken datastore"]),
                            ("absent.rest", ["absent.rest", "foretoken datastore"])):
            status, out, err = self.generate({"name": "rest", "datastore": name})
            self.assertEqual((status, out, err.count("\n")), (1, "", 1), err)
            for word in words:
                self.assertIn(word, err)


if __name__ == "__main__":
    unittest.main()
