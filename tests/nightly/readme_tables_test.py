"""The tables of the pages are what experiments/readme_tables.py makes of the committed results, of enough prompts and
alternations."""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
sys.path.insert(0, str(SOURCE / "experiments"))
from committed_results import RESULTS, lines_of  # noqa: E402

PAGES = ("README.md", "experiments/results/cpu/README.md", "experiments/results/tables.md",
         "experiments/results/h200/README.md")
NOTHING = "Nothing is recorded"


class ReadmeTables(InFolder):
    def make(self, *arguments, code=0, program=PROGRAM):
        done = subprocess.run([sys.executable, SOURCE / "experiments" / "readme_tables.py", "--program", program,
                               *arguments], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def pages(self):
        """A folder with copies of the pages."""
        for name in PAGES:
            (self.here / name).parent.mkdir(parents=True, exist_ok=True)
            (self.here / name).write_text((SOURCE / name).read_text())
        return self.here

    def test_the_tables_of_the_pages_are_those_of_the_results(self):
        self.make("--check")

    def spoiled(self, text):
        """With another number, or word, in every table."""
        for name in re.findall("<!-- table (.*) -->", text):
            begin = text.index(f"<!-- table {name} -->")
            end = text.index("<!-- end", begin)
            if text[begin:end].count("\n") == 2 and NOTHING in text[begin:end]:
                text = text[:begin] + text[begin:].replace(NOTHING, "All", 1)
            else:
                at = [found.end() - 1 for found in re.finditer(r"\d\.\d+", text[begin:end])][-1] + begin
                text = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:]
        return text

    def test_another_number_is_noticed_and_put_right(self):
        folder = self.pages()
        texts = {name: (folder / name).read_text() for name in PAGES}
        for name, text in texts.items():
            (folder / name).write_text(self.spoiled(text))
        said = self.make("--check", "--pages", folder, code=1)
        self.assertIn("python3 experiments/readme_tables.py", said)
        for name, text in texts.items():
            self.assertIn(str(folder / name), said)
            self.assertEqual((folder / name).read_text(), self.spoiled(text), "--check writes nothing")
        self.make("--pages", folder)
        for name, text in texts.items():
            self.assertEqual((folder / name).read_text(), text)

    def test_sweeps_on_gpus_have_six_prompts_a_place_and_three_alternations(self):
        paths = sorted((RESULTS / "h100").glob("*inflated.jsonl*"))
        self.assertIn("inflated", {path.name.split(".")[0] for path in paths})
        for path in paths:
            batches = set()
            for line in map(json.loads, lines_of(path)):
                batch = line["run"]["engine"]["batch"]
                batches.add(batch)
                self.assertGreaterEqual(len(line["repeats"]), 3, path)
                for side in ("baseline", "speculative"):
                    for repeat in line["repeats"]:
                        prompts = {request["prompt"] for request in repeat[side]["requests"]}
                        self.assertGreaterEqual(len(prompts), 6 * batch, path)
            self.assertEqual(batches, {1, 4, 16, 64}, path)

    def test_large_results_are_compressed(self):
        for path in RESULTS.rglob("*.jsonl"):
            self.assertLess(path.stat().st_size, 100_000, f"{path}: compress it with xz -9e")

    def test_what_is_in_the_way_is_one_sentence(self):
        folder = self.pages()
        for name, table in zip(PAGES, ("heads", "peer_times", "formats")):
            page = folder / name
            text = page.read_text()
            page.write_text(text.replace(f"<!-- table {table} -->\n", ""))
            err = self.make("--pages", folder, code=1)
            self.assertIn(f"{table}", err)
            self.assertIn("<!-- table NAME -->", err)
            self.assertEqual(err.count("\n"), 1, err)
            page.write_text(text)
        self.assertIn("cannot show", self.make("--check", code=1, program="/bin/false"))


if __name__ == "__main__":
    unittest.main()
