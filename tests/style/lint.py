"""What ./foretoken lint runs: the format of every file, and clang-tidy over sources.

usage: python3 tests/style/lint.py --build DIR [--seconds S] [--since REVISION | FILE...]

DIR holds compile_commands.json. Without files clang-tidy reads every source; with --since those that differ from a
revision of git, then those that include a file that does. With --seconds no source is begun after so many seconds, and
the number of those that were left out is printed. CUDA sources are not read: clang-tidy has no CUDA here.

Exit codes: 0 nothing found; 1 files that are not formatted, warnings, or an invalid argument; 77 every file is
formatted, as far as clang-format is there, but clang-tidy is missing.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sources import CLANG_FORMAT, ROOT, clang_format, code_files, differing

CLANG_TIDY = "clang-tidy-19"
NO_TOOLS = 77
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
OURS = f"^{re.escape(str(ROOT))}/(kernels|framework|drafters|verifiers|experiments|tests)/"


def say(text):
    print(f"foretoken: {text}", file=sys.stderr, flush=True)


def compiled(build):
    """The C++ sources of this repository that the build compiles."""
    found = {Path(entry["file"]) for entry in json.loads((build / "compile_commands.json").read_text())}
    return sorted(path for path in found if path.suffix == ".cpp" and build not in path.parents)


def changed_since(revision):
    listed = subprocess.run(["git", "diff", "--name-only", revision], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                            check=True)
    return {ROOT / name for name in listed.stdout.splitlines()}


def touched(sources, changed):
    """The sources that changed, then those that include, directly or not, what changed."""
    includes = {path: {ROOT / name for name in INCLUDE.findall(path.read_text())} for path in code_files()}

    def reached(path, seen):
        for other in includes.get(path, set()) - seen:
            seen.add(other)
            reached(other, seen)
        return seen

    if ROOT / ".clang-tidy" in changed:
        return sources
    return sorted((path for path in sources if changed & reached(path, {path})), key=lambda path: path not in changed)


def tidy(build, path):
    """Warnings of one source, each as lines that begin with its file; those of system headers are left out."""
    # The build's flags are those of GCC, and its warnings are not asked for here.
    flags = [f"--extra-arg=-Wno-{name}" for name in ("unknown-warning-option", "error", "deprecated-declarations")]
    done = subprocess.run([CLANG_TIDY, "-p", str(build), "--quiet", f"--header-filter={OURS}", *flags, str(path)],
                          cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = re.split(r"(?m)^(?=/.*?: (?:warning|error): )", done.stdout)[1:]
    if done.returncode != 0 and not found:
        found = [f"{path}: error: {CLANG_TIDY} failed: {done.stderr.strip()[-2000:]}\n"]
    return found


def check_format():
    program = clang_format()
    if not program:
        say(f"not checked: the format of files, since clang-format {CLANG_FORMAT} could not be had")
        return []
    return differing(program, code_files())


def check_sources(build, sources, seconds):
    """The warnings, and how many sources were read."""
    found, done, read, end = {}, 0, 0, time.monotonic() + seconds

    def warnings_of(path):
        return tidy(build, path) if time.monotonic() < end else None

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for warnings in pool.map(warnings_of, sources):
            done += 1
            if warnings is None:
                continue
            read += 1
            if sys.stderr.isatty():
                print(f"\r\033[K{f'foretoken: clang-tidy [{done}/{len(sources)}]'}", end="", file=sys.stderr)
            found.update(dict.fromkeys(warnings))  # of a header once, however many include it
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return list(found), read


def main():
    parser = argparse.ArgumentParser(prog="./foretoken lint", description="format, and clang-tidy's checks")
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no source after so many seconds")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--since", metavar="REVISION", help="only sources that changed since, or include what changed")
    which.add_argument("files", nargs="*", default=[], metavar="FILE", help="only these sources")
    given = parser.parse_args()
    build = given.build.resolve()
    sources = compiled(build)
    if given.files:
        wanted = {Path(name).resolve() for name in given.files}
        unknown = wanted - set(sources)
        if unknown:
            raise SystemExit(f"foretoken: {min(unknown)} is no C++ source of this build; name a .cpp file of it")
        sources = [path for path in sources if path in wanted]
    elif given.since:
        try:
            sources = touched(sources, changed_since(given.since))
        except (OSError, subprocess.CalledProcessError):
            raise SystemExit(f"foretoken: git does not know the revision {given.since}; leave --since out to read all")
    unformatted = check_format()
    for text in unformatted:
        print(text.rstrip(), flush=True)
    if not shutil.which(CLANG_TIDY):
        say(f"{len(unformatted)} files differ from their format")
        say(f"{CLANG_TIDY} is missing; ./foretoken lint installs it where it may")
        return 1 if unformatted else NO_TOOLS
    warnings, read = check_sources(build, sources, given.seconds)
    for text in warnings:
        print(text.rstrip(), flush=True)
    left = f"; {len(sources) - read} more were not read in {given.seconds:g} seconds" if read < len(sources) else ""
    say(f"{len(unformatted)} files differ from their format; {len(warnings)} warnings in {read} sources{left}")
    return 1 if unformatted or warnings else 0


if __name__ == "__main__":
    sys.exit(main())
