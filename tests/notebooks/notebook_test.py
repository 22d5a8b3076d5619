"""What can be known of the notebooks without Jupyter: they are valid, without outputs, and their code compiles."""

import ast
import json
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


class Notebooks(unittest.TestCase):
    def setUp(self):
        self.documents = {path.name: json.loads(path.read_text()) for path in NOTEBOOKS}

    def cells(self, kind):
        return [
            (name, cell)
            for name, document in self.documents.items()
            for cell in document["cells"]
            if cell["cell_type"] == kind
        ]

    def test_there_is_a_first_look(self):
        self.assertIn("first_look.ipynb", self.documents)

    def test_format(self):
        for name, document in self.documents.items():
            self.assertEqual(document["nbformat"], 4, name)
            self.assertEqual(document["metadata"]["kernelspec"]["name"], "python3", name)
            for cell in document["cells"]:
                self.assertIn(cell["cell_type"], ("markdown", "code"), name)
                self.assertTrue(all(isinstance(line, str) for line in cell["source"]), name)

    def test_no_outputs(self):
        for name, cell in self.cells("code"):
            self.assertEqual(cell["outputs"], [], name)
            self.assertIsNone(cell["execution_count"], name)

    def test_code_compiles(self):
        for name, cell in self.cells("code"):
            ast.parse("".join(cell["source"]), name)
        for path in FOLDER.glob("*.py"):
            ast.parse(path.read_text(), path.name)

    def test_texts_are_short(self):
        for name, cell in self.cells("markdown"):
            self.assertLess(len("".join(cell["source"])), 600, name)

    def test_readme_lists_every_file(self):
        readme = (FOLDER / "README.md").read_text()
        for path in [*NOTEBOOKS, *FOLDER.glob("*.py")]:
            self.assertIn(f"| `{path.name}` |", readme)


if __name__ == "__main__":
    unittest.main()
