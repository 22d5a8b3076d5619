"""experiments/models/train_heads.py: every family learns, is interrupted and goes on, and computes what the golden heads
do. Skips where PyTorch, safetensors or tokenizers are missing."""

import importlib.util
import json
import lzma
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
MODELS = SOURCE / "experiments" / "models"
DATA = SOURCE / "tests" / "data"
NEEDED = ("torch", "safetensors", "tokenizers")
SMALL = ["heads=2", "kv_heads=1", "head_dim=16", "ffn=32", "rows=4"]
OWN = {"eagle3": ["draft_vocab=8"], "dspark": ["rank=4"]}

SENTENCE = "The {} captain looked over the grey water and counted the boats that came home before the storm number {}. "
FUNCTION = "def total_of_{0}(values):\n    result = 0\n    for value in values:\n        result += value * {0}\n" \
           "    # the total of all values, each of them times the number\n    return result\n"
SPEECH = "USER: Is there a table for {0} tonight?\nSYSTEM: There is, at {0} o'clock.\n"


def texts():
    """Path: contents, of the layout that training/data.py reads; little, but of every kind that it cuts tasks from."""
    sources = importlib.import_module("training.data").SOURCES
    prose = ["\n".join(SENTENCE.format("old", n * 9 + i) + SENTENCE.format("tall", i) for i in range(30))
             for n in range(30)]
    kinds = {"books": prose, "peps": [d.replace("\n", "\n\n") for d in prose],
             "sympy": ["\n\n\n".join(FUNCTION.format(n * 7 + i) for i in range(9)) for n in range(30)],
             "dialogues": ["".join(SPEECH.format(n + i) for i in range(6)).strip() for n in range(30)]}
    kinds["algorithms"] = kinds["sympy"]
    questions = "".join(json.dumps({"question": f"How many are {n} and {n}?", "answer": f"They are {2 * n}."}) + "\n"
                        for n in range(30))
    for path, (domain, *_) in sources.items():
        yield path, questions if domain == "math" else "".join(d + "\n<|endoftext|>\n" for d in kinds[domain])


def write_models(folder):
    """A target and a draft of random weights with the demo tokenizer."""
    import torch
    from tokenizers import Tokenizer

    from training.model import Llama, Shape, save
    torch.manual_seed(1)
    tokenizer = Tokenizer.from_file(str(MODELS / "target" / "tokenizer.json"))
    for name, layers in (("target", 8), ("draft", 2)):
        shape = Shape(dim=32, layers=layers, heads=2, kv_heads=1, head_dim=16, ffn=32)
        save(Llama(shape), folder / name, tokenizer)


class Training(InFolder):
    def setUp(self):
        super().setUp()
        write_models(self.here)
        for path, text in texts():
            file = self.here / "data" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(lzma.compress(text.encode()) if file.suffix == ".xz" else text.encode())

    def run_it(self, family, out, *more, data=True):
        import train_heads
        arguments = ["train_heads.py", family, "--target", str(self.here / "target"), "--out", str(self.here / out),
                     "--work", str(self.here / "work"), "--device", "cpu", "--outputs", "12", "--held-out", "6",
                     "--rollout-batch", "6", "--new-tokens", "12", "--prompt-tokens", "160", "--log-every", "1",
                     "--steps", "4", *more]
        if data:
            arguments += ["--data", str(self.here / "data")]
        with mock.patch.object(sys, "argv", arguments), mock.patch("builtins.print"):
            train_heads.main()

    def tensors(self, out):
        from safetensors.torch import load_file
        return load_file(self.here / out / "model.safetensors")

    def test_every_family_goes_on_where_it_stopped(self):
        """A run of 4 steps, and one that stops after 2 and is resumed, write the same weights."""
        import torch
        from training.heads.settings import FAMILIES
        torch.set_num_threads(1)
        for family in FAMILIES:
            with self.subTest(family):
                changes = ["--set", *SMALL, *OWN.get(family, [])]
                self.run_it(family, f"{family}-whole", *changes)
                self.run_it(family, f"{family}-parts", *changes, "--stop-at", "2")
                self.assertFalse((self.here / f"{family}-parts").exists())
                self.run_it(family, f"{family}-parts", *changes, "--resume", data=False)
                whole, parts = self.tensors(f"{family}-whole"), self.tensors(f"{family}-parts")
                self.assertEqual(whole.keys(), parts.keys())
                for name in whole:
                    self.assertTrue(torch.equal(whole[name], parts[name]), name)
                card = (self.here / f"{family}-whole" / "README.md").read_text()
                self.assertIn("| T=0 |", card)
                json.loads((self.here / f"{family}-whole" / "config.json").read_text())
                log = (self.here / "work" / f"{family}.log").read_text()
                self.assertIn("goes on at step 2", log)
        ids = self.tensors("eagle3-whole")
        own = ids["d2t"] + torch.arange(8)
        self.assertEqual(own.tolist(), ids["t2d"].nonzero()[:, 0].tolist())

    def test_a_checkpoint_of_other_settings_is_refused(self):
        self.run_it("kangaroo", "one", "--set", *SMALL, "--stop-at", "1")
        with self.assertRaises(SystemExit) as refused:
            self.run_it("kangaroo", "one", "--set", *SMALL, "rate=0.001", "--resume")
        self.assertIn("is of other settings", str(refused.exception))
        with self.assertRaises(SystemExit) as refused:
            self.run_it("kangaroo", "one", "--set", "tap=1")
        self.assertIn("has no setting 'tap'", str(refused.exception))

    def test_outputs_are_made_once_and_learned(self):
        """The losses of a hundred steps on 12 outputs fall, and outputs of another target are not taken."""
        self.run_it("medusa", "one", "--set", *SMALL, "depth=1", "--steps", "100")
        log = (self.here / "work" / "medusa.log").read_text()
        losses = [float(line.split("loss ")[1].split()[0]) for line in log.splitlines() if "loss " in line]
        self.assertEqual(len(losses), 100)
        self.assertLess(sum(losses[-3:]), 0.7 * sum(losses[:3]))
        made = (self.here / "work" / "outputs.pt").read_bytes()
        self.run_it("medusa", "two", "--set", *SMALL, data=False)
        self.assertEqual((self.here / "work" / "outputs.pt").read_bytes(), made)
        write_models(self.here / "other")
        with self.assertRaises(SystemExit) as refused:
            self.run_it("medusa", "two", "--new-tokens", "14", data=False)
        self.assertIn("give --data", str(refused.exception))


class Texts(InFolder):
    def test_a_sample_of_the_texts(self):
        """It is within its bytes, has the layout, and documents of both splits of every domain."""
        from training import data
        for path, text in texts():
            file = self.here / "data" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            text = text * 6  # more than fits
            file.write_bytes(lzma.compress(text.encode(), preset=0) if file.suffix == ".xz" else text.encode())
        limit = 24_000
        subprocess.run([sys.executable, MODELS / "cut_texts.py", self.here / "data", self.here / "cut", "--bytes",
                        str(limit)], check=True, stdout=subprocess.DEVNULL)
        size = sum(file.stat().st_size for file in (self.here / "cut").rglob("*") if file.is_file())
        self.assertTrue(limit / 4 < size <= limit, size)
        found, _ = data.load(self.here / "cut")
        whole, _ = data.load(self.here / "data")
        for domain, splits in found.items():
            for split, documents in splits.items():
                self.assertGreater(len(documents), 0, f"{domain} {split}")
        self.assertLess(len(found["math"]["valid"]), len(whole["math"]["valid"]))


# Golden head: family, settings beside those in its config.json.
GOLDEN = {"eagle1": ("eagle", {}), "eagle3": ("eagle3", {}), "mtp_mimo": ("mtp", {}),
          "medusa1": ("medusa", {"layers": 1}), "hydra": ("hydra", {"layers": 2}),
          "dflash_zlab": ("dflash", {"taps": [1, 2]}), "dspark_deepspec": ("dspark", {"taps": [0, 2], "rank": 8}),
          "kangaroo": ("kangaroo", {"exit": 1})}


class Golden(unittest.TestCase):
    """The forward of training, all chains of a row at once, gives what that of tests/golden does row by row."""

    def head_of(self, name, family, more):
        import torch
        from safetensors.torch import load_file
        from training.heads.batches import Target
        from training.heads.settings import settings_of
        from training.heads.trainer import build
        folder = DATA / "heads" / name
        config, weights = json.loads((folder / "config.json").read_text()), {}
        for file in folder.glob("*.safetensors"):
            weights |= {n: t.float() if t.is_floating_point() else t for n, t in load_file(file).items()}
        theta = config.get("rope_parameters", config).get("rope_theta", 10000.0)
        s = {**settings_of(family), "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 32, "theta": theta, "depth": 4,
             "block": config.get("block_size"), "draft_vocab": config.get("draft_vocab_size"), **more}
        target = Target(DATA / "models" / "llama2", "cpu")
        target.embedding = weights.pop("embed_tokens.weight", target.embedding)
        if family == "dspark":
            target.head = weights.pop("lm_head.weight")
        ids = weights.pop("d2t") + torch.arange(s["draft_vocab"]) if "d2t" in weights else None
        row = torch.zeros(1, 1, dtype=torch.int64) if ids is None else ids[None]
        columns = [row, torch.tensor([0]), torch.tensor([row.shape[1]]), None]
        head = build(family, s, target, columns, 95)
        weights = {n: t for n, t in weights.items() if n not in ("t2d", "input_embed_fn.weight")}
        head.load_state_dict(weights)
        return head.eval(), target, ids

    def test_forwards(self):
        import torch
        from training.heads.batches import Batch
        names = [name for name in GOLDEN if (DATA / "heads" / name).exists()]
        self.assertGreaterEqual(len(names), 3)
        for name in names:
            head, target, ids = self.head_of(name, *GOLDEN[name])
            golden = json.loads((DATA / "heads" / name / "golden.json").read_text())
            taps = head.taps = golden["taps"] if name == "eagle3" else head.taps
            for number, stored in enumerate(golden["rounds"]):
                tokens, expected = stored["tokens"] + stored["drafts"] + [0], stored["logits"]
                anchor = torch.tensor([len(stored["tokens"]) - 1])
                batch = Batch(torch.tensor([tokens]), anchor, anchor + 9, torch.tensor([True]), target).read(taps)
                with torch.no_grad():
                    drafts, _ = head(batch, torch.zeros(1, 1, dtype=torch.int64), len(expected))
                self.assertEqual([d.k for d in drafts], list(range(1, len(expected) + 1)), name)
                for draft, row in zip(drafts, expected):
                    want = torch.tensor([-1e9 if x is None else x for x in row])
                    found = draft.logits()[0, 0].detach()
                    gap = (found - (want if ids is None else want[ids])).abs().max()
                    self.assertLess(gap, 2e-3 * (1 + want[want > -1e8].abs().max()), f"{name}, {number}, {draft.k}")

    def test_masks_of_many_chains(self):
        """PARD: in one forward with chains at several roots, what an ordinary forward of text and masks gives each."""
        import torch
        from training.heads.batches import Batch, Target
        from training.heads.parallel import Pard
        folder = DATA / "models" / "llama2"
        target, mask, depth = Target(folder, "cpu"), 95, 3
        head = Pard({"start": folder, "keep": 0.7, "least": 0.2}, target, mask).eval()
        tokens = torch.tensor([[1, 7, 33, 20, 5, 60, 40, 31], [1, 9, 9, 52, 17, 3, 88, 2]])
        lengths, roots = torch.tensor([2, 4]), torch.tensor([[2, 0], [0, 1]])
        batch = Batch(tokens, lengths, lengths + 4, torch.tensor([True, True]), target)
        with torch.no_grad():
            drafts, _ = head(batch, roots, depth)
            for row in range(2):
                for i, root in enumerate(roots[row].tolist()):
                    known = tokens[row, :lengths[row] + root + 1]
                    read = torch.cat([known, torch.full((depth - 1,), mask)])[None]
                    states = head.llama(read, torch.float32)[0, -depth:]
                    for k, want in enumerate(states @ head.llama.head.T):
                        gap = (drafts[k].logits()[row, i] - want).abs().max()
                        self.assertLess(gap, 1e-3, f"{row}, {root}, {k}")


if __name__ == "__main__":
    for module in NEEDED:
        if not importlib.util.find_spec(module):
            print(f"skipped: the Python module {module} is not here")
            sys.exit(77)
    sys.path.insert(0, str(MODELS))
    unittest.main()
