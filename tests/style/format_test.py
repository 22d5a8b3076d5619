"""Every file of C++ and CUDA is what the pinned clang-format makes of it. Where that version is absent the test skips."""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sources import CLANG_FORMAT, CODE, ROOT, clang_format, code_files, differing

PROGRAM = clang_format()


class Format(unittest.TestCase):
    def test_every_file_is_formatted(self):
        found = code_files()
        self.assertEqual({path.suffix for path in found}, set(CODE))
        self.assertEqual(differing(PROGRAM, found), [], f"{PROGRAM} -i FILE formats a file")

    def test_each_file_that_differs_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / ".clang-format", folder)
            good, *bad = (Path(folder, name) for name in ("good.h", "first.cpp", "second.cu"))
            good.write_text("#pragma once\nint one();\n")
            for path in bad:
                path.write_text("int  one( );\nint  two( );\n")
            found = differing(PROGRAM, [good, *bad])
            self.assertEqual(len(found), 2, found)
            for line, path in zip(found, bad):
                self.assertIn(str(path), line)


if __name__ == "__main__":
    if not PROGRAM:
        print(f"skipped: clang-format {CLANG_FORMAT} is not here; ./foretoken lint installs it")
        sys.exit(77)
    unittest.main()
