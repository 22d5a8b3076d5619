"""Tests that run the program in a folder of their own, which is removed afterwards."""

import json
import tempfile
import unittest
from pathlib import Path


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)

    def write(self, name, content):
        """A file of text, or of JSON where it is no text; its path."""
        path = self.here / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)
