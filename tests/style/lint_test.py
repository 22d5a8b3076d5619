"""What ./foretoken lint reads and says, with a build of two files."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

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

    def test_only_missing_tools_end_with_77(self):
        """Files that are not formatted fail whatever else is missing."""
        if not lint.clang_format():
            self.skipTest(f"clang-format {lint.CLANG_FORMAT} is not here; ./foretoken lint installs it")
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            shutil.copy(ROOT / ".clang-format", here)
            (here / "compile_commands.json").write_text("[]")
            good, bad = here / "good.h", here / "bad.h"
            good.write_text("#pragma once\nint one();\n")
            bad.write_text("int  one( );\n")

            def code(files, tidy, program=lint.clang_format()):
                said = io.StringIO()
                with mock.patch.multiple(lint, code_files=lambda: files, CLANG_TIDY=tidy,
                                         clang_format=lambda: program), \
                        mock.patch.object(sys, "argv", ["lint.py", "--build", folder]), \
                        contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                    return lint.main(), said.getvalue()

            there, missing = "true", "clang-tidy-of-no-machine"
            self.assertEqual(code([good], there)[0], 0)
            self.assertEqual(code([good, bad], there)[0], 1)
            self.assertEqual(code([good], missing)[0], 77)
            self.assertIn(f"{missing} is missing", code([good], missing)[1])
            self.assertEqual(code([good, bad], missing)[0], 1)
            self.assertIn(str(bad), code([good, bad], missing)[1])
            self.assertIn("not checked: the format", code([bad], there, program=None)[1])

    def test_integration_skips_lint_for_missing_tools_alone(self):
        """.ci/run with stand-ins for ./foretoken, git, format_test.py and gpu_sources.py."""
        def run(lint_code, format_code=0, known=0):
            with tempfile.TemporaryDirectory() as folder:
                here = Path(folder)
                for name in (".ci", "bin", "tests/style"):
                    (here / name).mkdir(parents=True)
                shutil.copy(ROOT / ".ci" / "run", here / ".ci")
                (here / "tests/style/gpu_sources.py").write_text("")
                (here / "tests/style/format_test.py").write_text(f"import sys\nsys.exit({format_code})\n")
                for name, code in (("foretoken", f'case "$*" in *lint*) exit {lint_code};; esac'),
                                   ("bin/git", f"exit {known}")):
                    (here / name).write_text(f"#!/bin/sh\n{code}\n")
                    (here / name).chmod(0o755)
                path = f"{here}/bin:{os.environ['PATH']}"
                done = subprocess.run([here / ".ci" / "run"], env=dict(os.environ, PATH=path), stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True)
                return done.returncode, done.stdout

        code, said = run(0)
        self.assertEqual((code, "== lint: passed" in said), (0, True), said)
        for known in (0, 1):
            code, said = run(1, known=known)
            self.assertEqual((code, "== lint: FAILED" in said), (1, True), said)
        for formatted, expected, status in ((0, 0, "passed"), (1, 1, "FAILED"), (77, 0, "NOT RUN")):
            code, said = run(77, formatted)
            self.assertEqual((code, "== lint: not run: clang-tidy cannot be had" in said), (expected, True), said)
            self.assertIn(f"== format: {status}", said)


if __name__ == "__main__":
    unittest.main()
