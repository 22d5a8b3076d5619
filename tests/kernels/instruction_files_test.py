"""A file that is compiled for more instructions than the plainest machine has may not share inline functions with
others: the linker keeps one copy of such a function, and if it is this file's, older machines fault in unrelated
code."""

import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

BUILD = Path(os.environ["FORETOKEN_BUILD_DIR"])


class InstructionFiles(unittest.TestCase):
    def test_share_no_inline_functions(self):
        folder = BUILD / "kernels/CMakeFiles/foretoken_kernels.dir/cpu"
        objects = sorted(path for path in folder.glob("*.o") if re.search(r"_(avx|amx)\w*\.cpp\.o$", path.name))
        self.assertTrue(objects, f"no object files of instruction sets in {folder}")
        for path in objects:
            listing = subprocess.run(["nm", "-C", str(path)], check=True, stdout=subprocess.PIPE, text=True).stdout
            shared = re.findall(r"^[0-9a-f]+ W (.*)$", listing, re.MULTILINE)
            self.assertEqual(shared, [], path.name)


if __name__ == "__main__":
    if not shutil.which("nm") or os.uname().machine != "x86_64":
        print(
            "skipped: the object files of instruction sets were not looked at, since nm is missing or this is no x86-64 machine"
        )
        sys.exit(77)
    unittest.main()
