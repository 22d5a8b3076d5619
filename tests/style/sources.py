"""The files of this repository that were written by hand, and the one version of clang-format that formats them."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLANG_FORMAT = "19.1.7"
CODE = (".h", ".cpp", ".cu", ".cuh")


def files():
    """Paths of all files that git knows or would add; without git, of all files outside build/."""
    try:
        listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
                                 "--exclude-standard"],
                                cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        found = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = [path for path in ROOT.rglob("*") if "build" not in path.relative_to(ROOT).parts]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def code_files():
    return [path for path in files() if path.suffix in CODE]


def clang_format():
    """The pinned clang-format, or None: what ./foretoken lint installed, else what is on PATH."""
    for name in (ROOT / "build" / "lint" / "bin" / "clang-format", "clang-format", "clang-format-19"):
        program = shutil.which(name)
        if program:
            said = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            if f"version {CLANG_FORMAT}" in said.stdout:
                return program
    return None


def differing(program, paths):
    """What clang-format says of the files that it would write otherwise: one line for each."""
    said = subprocess.run([program, "--dry-run", "--ferror-limit=1", *map(str, paths)], cwd=ROOT,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = [line for line in said.stderr.splitlines() if ": warning: code should be clang-formatted" in line]
    if said.returncode != 0:
        found.append(said.stderr)
    return found
