"""The hash that names a plugin in results is of every byte of its file: the first, the last, and any between."""

import json
import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve()
COMPILER = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
ROOM = 1 << 18  # bytes of the plugin that nothing reads
FLAGS = 0x30    # in the header of a library: the processor's, which no loader reads
CODE = f"""
#include <foretoken/plugin.h>

__attribute__((used)) const char room[{ROOM}] = "nothing reads what follows";

struct Silent final : foretoken::Drafter {{
  std::vector<foretoken::DraftTree> draft(std::span<const foretoken::DraftRequest>) override {{ return {{}}; }}
}};

extern "C" const char* foretoken_abi() {{ return foretoken::kAbi; }}
extern "C" void foretoken_plugin(foretoken::Registries& registries) {{
  registries.drafters.add("silent", {{"proposes nothing", "", {{}}, [](const nlohmann::json&, foretoken::Host&) {{
                                       return std::make_unique<Silent>();
                                     }},
                                     [](const nlohmann::json&, const foretoken::ModelInfo&) {{
                                       return foretoken::Needs{{}};
                                     }}}});
}}
"""


class PluginHash(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        (self.here / "silent.cpp").write_text(CODE)
        include = [f"-I{at}" for at in (SOURCE, SOURCE / "framework" / "include", BUILD / "abi", BUILD / "generated")]
        subprocess.run([COMPILER, "-std=c++20", "-shared", "-fPIC", *include, self.here / "silent.cpp", "-o",
                        self.here / "silent.so"], check=True)

    def hash_of(self, name, content):
        path = self.here / name
        path.write_bytes(content)
        done = subprocess.run([BUILD / "foretoken", "check", "--plugin", path, "--drafter", "none", "--verifier",
                               "coupled", "--laws", "limits", "--json"], cwd=self.here, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(shlex.split(report["command"])[:4], ["foretoken", "check", "--plugin", str(path)])
        [plugin] = report["plugins"]
        self.assertEqual(plugin["path"], str(path))
        return plugin["hash"]

    def test_every_part_of_the_file_counts(self):
        whole = (self.here / "silent.so").read_bytes()
        room = whole.index(b"nothing reads what follows")
        hashes = [self.hash_of("whole.so", whole), self.hash_of("longer.so", whole + b"\0")]
        # Odd steps, so that no stride of a power of two would leave all of them out.
        for at in (FLAGS, *range(room, room + ROOM, ROOM // 8 - 1), room + ROOM - 1):
            changed = bytearray(whole)
            changed[at] ^= 1
            hashes.append(self.hash_of(f"changed{at}.so", bytes(changed)))
        last = bytearray(whole + b"\0")
        last[-1] = 1
        hashes.append(self.hash_of("last.so", bytes(last)))
        self.assertEqual(len(set(hashes)), len(hashes), hashes)
        self.assertEqual(self.hash_of("again.so", whole), hashes[0], "the name does not count")


if __name__ == "__main__":
    unittest.main()
