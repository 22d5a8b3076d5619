"""Whether the tests of a GPU compile, without compiling kernels: a machine without a GPU builds none of them else.

    python3 tests/style/gpu_sources.py     # behind ./foretoken --preset cuda build foretoken_engine
"""
import json
import shlex
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    configure = ["cmake", "--preset", "cuda", "-DFORETOKEN_TESTS=ON"]
    subprocess.run(configure, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    folder = ROOT / "build" / "cuda"
    failed = sources = 0
    for unit in json.loads((folder / "compile_commands.json").read_text()):
        command = [word for word in shlex.split(unit["command"]) if not word.endswith("ccache")]
        output = command.index("-o")
        if "_gpu.dir/" not in command[output + 1] or not unit["file"].endswith((".cpp", ".cxx")):
            continue
        if "-x" in command:  # by nvcc
            continue
        del command[output : output + 2]
        command = [word for word in command if word != "-c"] + ["-fsyntax-only", "-O0"]
        sources += 1
        failed += subprocess.run(command, cwd=unit["directory"], check=False).returncode != 0
    print(f"{sources} sources of tests for a GPU read, {failed} failed")
    return 1 if failed or sources == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
