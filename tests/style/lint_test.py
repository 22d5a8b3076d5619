"""What ./foretoken lint reads and says, with a build of two files."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import lint
from sources import ROOT

FAULT = """#include <string>
#include <utility>
auto f(std::string s) {
  const std::string t = std::move(s);
  return s.size() + t.size();
}
"""


class Lint(unittest.TestCase):
    def test_a_change_concerns_what_includes_it(self):
        sources = [ROOT / "framework/engine/engine.cpp", ROOT / "kernels/host_memory.cpp"]
        self.assertTrue(all(path.exists() for path in sources))
        self.assertEqual(lint.touched(sources, {ROOT / "framework/engine/engine.h"}), sources[:1])
        at_second_hand = {ROOT / "kernels/philox.h"}
        self.assertNotIn("kernels/philox.h", sources[0].read_text() + sources[1].read_text())
        self.assertIn(sources[0], lint.touched(sources, at_second_hand))
        self.assertEqual(lint.touched(sources, {sources[1]}), sources[1:])
        self.assertEqual(lint.touched(sources, {ROOT / "README.md"}), [])
        self.assertEqual(lint.touched(sources, {ROOT / ".clang-tidy"}), sources)
        changed = {sources[1], ROOT / "framework/engine/engine.h"}
        self.assertEqual(lint.touched(sources, changed), sources[::-1], "what changed itself is read first")

    def test_a_fault_is_found(self):
        if not shutil.which(lint.CLANG_TIDY):
            self.skipTest(f"{lint.CLANG_TIDY} is not here; ./foretoken lint installs it")
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            shutil.copy(ROOT / ".clang-tidy", here)
            (here / "bad.cpp").write_text(FAULT)
            (here / "good.cpp").write_text("int g(int x) { return x; }\n")
            (here / "broken.cpp").write_text("int g(int x) { return y; }\n")
            (here / "compile_commands.json").write_text(json.dumps([
                {"directory": folder, "file": str(path), "command": f"c++ -std=c++20 -c {path}"}
                for path in sorted(here.glob("*.cpp"))]))
            found, read = lint.check_sources(here, [here / "bad.cpp", here / "bad.cpp", here / "good.cpp"], 1000)
            self.assertEqual((len(found), read), (1, 3), found)
            self.assertIn("bugprone-use-after-move", found[0])
            self.assertEqual(lint.check_sources(here, [here / "good.cpp"], 1000), ([], 1))
            self.assertIn("undeclared identifier 'y'", lint.check_sources(here, [here / "broken.cpp"], 1000)[0][0])
            self.assertEqual(lint.check_sources(here, [here / "bad.cpp"], 0), ([], 0), "there was no time")


if __name__ == "__main__":
    unittest.main()
