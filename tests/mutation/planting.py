"""The scratch copy: draws slips, plants them behind the switch, builds, and drops what does not compile."""

import concurrent.futures
import hashlib
import json
import os
import random
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import sites
from folders import FOLDERS, executable

SWITCH = """// Which slip is on: the number in FORETOKEN_SLIP. FORETOKEN_SEEN names a file with one byte for each number, which
// becomes 1 where the program comes by.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace mutation {

inline const int active = std::getenv("FORETOKEN_SLIP") ? std::atoi(std::getenv("FORETOKEN_SLIP")) : 0;
inline unsigned char* map_seen() {
  const char* const path = std::getenv("FORETOKEN_SEEN");
  const int file = path ? open(path, O_RDWR) : -1;
  if (file < 0) return nullptr;
  void* const at = mmap(nullptr, %d, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<unsigned char*>(at);
}
inline unsigned char* const seen = map_seen();

[[gnu::always_inline]] constexpr bool on(int slip) {
  if (__builtin_is_constant_evaluated()) return false;
  if (seen) seen[slip] = 1;
  return slip == active;
}

}  // namespace mutation
"""
SITES = Path(sites.__file__)
FOLDER_ROOM = 10000  # numbers of one folder
NUMBERS = FOLDER_ROOM * (len(FOLDERS) + 1)
MENTION = re.compile(r"^(/[^\s:]+):(\d+):", re.MULTILINE)
ERROR = re.compile(r"^(/[^\s:]+):(\d+):\d+: error:", re.MULTILINE)


def digest(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def candidates(root, path, flags, seed):
    """The sites of a file as plain values."""
    os.chdir(root)  # flags name files from there
    text = (root / path).read_bytes()
    found, errors = sites.find(root / path, flags, random.Random(f"{seed} {path}"))
    if errors:
        print(f"mutation: {path}: {errors[0]}", flush=True)
    return [{"file": path, "kind": s.kind, "says": s.says, "line": text.count(b"\n", 0, s.span()[0]) + 1,
             "last": text.count(b"\n", 0, s.span()[1]) + 1,
             "text": text.split(b"\n")[text.count(b"\n", 0, s.span()[0])].decode().strip(),
             "edits": [[b, e, new.decode()] for b, e, new in s.edits]} for s in found]


class Scratch:
    def __init__(self, root, folder, seed, each, jobs):
        self.root, self.folder, self.seed, self.each, self.jobs = root, folder, seed, each, jobs
        self.tree, self.build = folder / "tree", folder / "build"
        self.drawn_file, self.header = folder / "drawn.json", folder / "switch.h"
        self.tree.mkdir(parents=True, exist_ok=True)
        self.drawn = json.loads(self.drawn_file.read_text()) if self.drawn_file.exists() else {}
        self.write(self.header, (SWITCH % NUMBERS).encode())

    def write(self, path, text):
        """Leaves the time of a file alone that does not change, so that nothing is built again."""
        if not path.exists() or path.read_bytes() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)

    def listed(self):
        names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=self.root,
                               stdout=subprocess.PIPE, check=True).stdout
        return [os.fsdecode(n) for n in names.split(b"\0") if n and (self.root / os.fsdecode(n)).is_file()]

    def sources(self, folder):
        found = {p for pattern in folder.sources for p in self.root.glob(pattern)}
        found -= {p for pattern in folder.without for p in self.root.glob(pattern)}
        return sorted(str(p.relative_to(self.root)) for p in found if p.suffix in (".cpp", ".h"))

    def draw(self, folders, pool):
        """The sites of these folders, in the order in which they are drawn: kinds in turn, chance within each."""
        flags = [f"-I{self.root}", f"-I{self.root}/framework/include",
                 f"-I{self.build}/abi", f"-I{self.build}/generated"]
        common = self.folder / "common.pch"
        sites.precompile(common, flags)
        flags += ["-include-pch", str(common)]
        for folder in folders:
            files = self.sources(folder)
            state = digest(self.seed, SITES.read_bytes(), *(f + (self.root / f).read_text() for f in files))
            if self.drawn.get(folder.name, {}).get("state") == state:
                continue
            kinds = defaultdict(list)
            parts = pool.map(candidates, *zip(*((self.root, f, [*flags, *folder.flags], self.seed) for f in files)))
            for site in (s for part in parts for s in part):
                kinds[site["kind"]].append(site)
            for of_kind in kinds.values():  # where one is gone the others keep their order
                of_kind.sort(key=lambda s: digest(self.seed, s["file"], s["text"], s["says"], s["edits"][0][0]))
            order = [s for turn in range(8 * self.each) for k in sorted(kinds) for s in kinds[k][turn:turn + 1]]
            self.drawn[folder.name] = {"state": state, "order": order[:FOLDER_ROOM], "dropped": [], "sites":
                                       sum(map(len, kinds.values()))}
        self.save()

    def save(self):
        self.drawn_file.write_text(json.dumps(self.drawn, indent=0))

    def slips(self):
        """Of each folder that was drawn, the first `each` that compile and do not overlap, with their numbers."""
        chosen, taken = [], defaultdict(list)
        for base, folder in enumerate(FOLDERS, 1):
            drawn, count = self.drawn.get(folder.name), 0
            for i, site in enumerate(drawn["order"] if drawn else ()):
                spans = taken[site["file"]]
                begin, end = site["edits"][0][0], site["edits"][-1][1]
                if i in drawn["dropped"] or any(begin < e and b < end for b, e in spans):
                    continue
                spans.append((begin, end))
                chosen.append({"number": base * FOLDER_ROOM + i, "folder": folder.name, **site})
                count += 1
                if count == self.each:
                    break
        return chosen

    def plant(self):
        """Makes the scratch copy what the repository is, with the slips in it."""
        by_file = defaultdict(list)
        for slip in self.slips():
            by_file[slip["file"]].append(slip)
        for name in self.listed():
            text = (self.root / name).read_bytes()
            edits = [(*e[:2], e[2].replace("%N", str(s["number"]))) for s in by_file.get(name, ()) for e in s["edits"]]
            for begin, end, new in sorted(edits, reverse=True):
                text = text[:begin] + new.encode() + text[end:]
            if edits:
                text = f'#include "{self.header}"\n#line 1\n'.encode() + text
            self.write(self.tree / name, text)
            (self.tree / name).chmod((self.root / name).stat().st_mode)

    def configure(self):
        subprocess.run(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                        "-DFORETOKEN_TESTS=ON"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["ninja", "-C", self.build, "foretoken_generated"], check=True, stdout=subprocess.DEVNULL)

    def compile(self, folders):
        """Plants and builds until everything compiles."""
        log = self.folder / "build.log"
        targets = sorted({"foretoken" if t.endswith(".py") else executable(t) for f in folders for t in f.tests})
        while True:
            self.plant()
            flags_of = {f.name: f.flags for f in FOLDERS}
            headers = sorted({(s["file"], flags_of[s["folder"]]) for s in self.slips() if s["file"].endswith(".h")})
            said = "".join(self.checked(*h) for h in headers)
            if not self.drop(said):
                with log.open("w") as out:
                    done = subprocess.run(["ninja", "-C", self.build, f"-j{self.jobs}", "-k", "0", *targets],
                                          stdout=out, stderr=subprocess.STDOUT)
                if done.returncode == 0:
                    return
                if not self.drop(log.read_text()):
                    raise SystemExit(f"mutation: the build fails, not by a slip; see {log}")

    def checked(self, header, flags):
        """What the compiler says of a header alone, since with a fault in it everything would be compiled in vain."""
        includes = [f"-I{self.tree}", f"-I{self.tree}/framework/include", f"-I{self.build}/abi",
                    f"-I{self.build}/generated"]
        return subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-w", *includes, *flags, "-include", "algorithm",
                               "-x", "c++", self.tree / header], cwd=self.tree, stderr=subprocess.PIPE,
                              text=True).stderr

    def drop(self, said):
        """Drops the slips that errors of the compiler name; whether there were any."""
        lines = {(p, int(n)) for p, n in ERROR.findall(said)}
        named = self.at(lines)
        if lines and not named:  # the error lies in what a slip uses
            named = self.at({(p, int(n)) for p, n in MENTION.findall(said)})
        for slip in named:
            print(f"mutation: does not compile: {slip['file']}:{slip['line']}: {slip['says']}", flush=True)
            self.drawn[slip["folder"]]["dropped"].append(slip["number"] % FOLDER_ROOM)
        self.save()
        return bool(named)

    def at(self, lines):
        return [s for s in self.slips() if any(Path(p) == self.tree / s["file"] and s["line"] <= n <= s["last"]
                                               for p, n in lines)]
