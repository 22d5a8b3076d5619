"""A library that ends the program while it is loaded: the program says which, by which call, and fails. A process that
such a library starts ends as it asks."""

import os
import re
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

BUILD = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve()
PROGRAM = BUILD / "foretoken"
COMPILER = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
SOURCE = """
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

struct Ends {
  Ends() {
    const std::string call = std::getenv("CALL");
    if (call == "exit") exit(0);
    if (call == "quick_exit") quick_exit(3);
    if (call == "_exit") _exit(0);
    if (call == "_Exit") _Exit(7);
    int status = 0;
    const pid_t child = fork();
    if (child == 0) _exit(5);
    waitpid(child, &status, 0);
    std::fprintf(stderr, "the child's code is %d\\n", WEXITSTATUS(status));
  }
} ends;
"""


class EarlyExit(InFolder):
    def setUp(self):
        super().setUp()
        (self.here / "ends.cpp").write_text(SOURCE)
        self.plugin = str(self.here / "ends.so")
        subprocess.run([COMPILER, "-shared", "-fPIC", self.here / "ends.cpp", "-o", self.plugin], check=True)

    def load(self, call):
        done = subprocess.run([PROGRAM, "list", "--plugin", self.plugin], env={**os.environ, "CALL": call},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_each_way_to_end_the_program(self):
        for call, code in (("exit", 0), ("quick_exit", 3), ("_exit", 0), ("_Exit", 7)):
            said = (f"foretoken: {self.plugin} ended the program with {call}({code}); a drafter, policy or verifier "
                    "must throw foretoken::Error instead; correct or omit it\n")
            self.assertEqual(self.load(call), (1, "", said))

    def test_a_child_ends_as_it_asks(self):
        status, out, err = self.load("none")
        self.assertEqual((status, out, err.splitlines()[0]), (1, "", "the child's code is 5"))
        self.assertIn("does not export foretoken_abi()", err)


if __name__ == "__main__":
    unittest.main()
