"""The tables of README.md are what experiments/readme_tables.py makes of the committed results."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
README = SOURCE / "README.md"


class ReadmeTables(InFolder):
    def make(self, *arguments, code=0, program=PROGRAM):
        done = subprocess.run([sys.executable, SOURCE / "experiments" / "readme_tables.py", "--program", program,
                               *arguments], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_the_tables_of_the_readme_are_those_of_the_results(self):
        self.make("--check")

    def test_another_number_is_noticed_and_put_right(self):
        text = README.read_text()
        for name in re.findall("<!-- table (.*) -->", text):
            begin = text.index(f"<!-- table {name} -->")
            number = list(re.finditer(r"\d\.\d+", text[begin : text.index("<!-- end", begin)]))[-1]
            at = begin + number.end() - 1
            wrong = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
            page = self.write("page.md", wrong)
            self.assertIn("python3 experiments/readme_tables.py", self.make("--check", "--page", page, code=1))
            self.assertEqual(Path(page).read_text(), wrong)
            self.make("--page", page)
            self.assertEqual(Path(page).read_text(), text)

    def test_what_is_in_the_way_is_one_sentence(self):
        page = self.write("page.md", README.read_text().replace("<!-- table steps -->\n", ""))
        err = self.make("--page", page, code=1)
        self.assertIn("<!-- table NAME -->", err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn("cannot show", self.make("--check", code=1, program="/bin/false"))


if __name__ == "__main__":
    unittest.main()
