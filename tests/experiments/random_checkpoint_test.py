"""experiments/peers/random_checkpoint.py: where its tokenizer comes from, with matrices of no size that matters."""

import importlib.util
import json
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]


def program():
    path = SOURCE / "experiments" / "peers" / "random_checkpoint.py"
    spec = importlib.util.spec_from_file_location("random_checkpoint", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.HIDDEN, module.VOCAB, module.MATRICES = 8, 16, {"mlp.up_proj": (8, 8)}
    return module


class RandomCheckpoint(InFolder):
    def run_it(self, *arguments):
        """In a folder that is not that of the source."""
        before = Path.cwd()
        os.chdir(self.here)
        try:
            with mock.patch.object(sys, "argv", ["random_checkpoint.py", *arguments]):
                program().main()
        finally:
            os.chdir(before)

    def test_the_tokenizer_is_found_from_elsewhere(self):
        self.run_it("model", "--layers", "2")
        model = self.here / "model"
        target = SOURCE / "experiments" / "models" / "target"
        self.assertEqual((model / "tokenizer.json").read_bytes(), (target / "tokenizer.json").read_bytes())
        self.assertEqual(json.loads((model / "config.json").read_text())["num_hidden_layers"], 2)

    def test_a_tokenizer_that_is_absent_is_refused_before_writing(self):
        with self.assertRaises(SystemExit) as refused:
            self.run_it("model", "--layers", "1", "--tokenizer", "nowhere")
        self.assertEqual(refused.exception.code,
                         "nowhere has no tokenizer.json; give a directory that has one with --tokenizer")
        self.assertFalse((self.here / "model").exists())


if __name__ == "__main__":
    if not importlib.util.find_spec("numpy"):
        print("skipped: NumPy is not here")
        sys.exit(77)
    unittest.main()
