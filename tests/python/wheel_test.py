"""Builds the wheel on what this build folder has compiled, installs it into a fresh virtual environment, and runs the
tests of package/ there by pytest. Exit code 77 (skipped) where a tool is missing or PyPI cannot be reached."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("FORETOKEN_BUILD_DIR") or ROOT / "build" / "cpu").resolve()
FOLDER = BUILD / "python"
TOOLS = ["scikit-build-core>=0.10", "nanobind>=2.4", "numpy", "pandas", "pytest", "nbclient", "ipykernel", "matplotlib",
         "openai"]
UNREACHABLE = ("Temporary failure in name resolution", "No matching distribution found", "Network is unreachable",
               "Connection refused", "ProxyError", "ConnectTimeoutError", "Could not find a version")


def skip(reason):
    print(f"skipped: the Python package was not tested, since {reason}")
    sys.exit(77)


def run(*command, **how):
    print("$", *command, flush=True)
    return subprocess.run([str(word) for word in command], **how)


def expect(done, what):
    if done.returncode != 0:
        print((done.stdout or "")[-6000:])
        sys.exit(f"{what} failed with exit code {done.returncode}")


def environment_of(folder):
    """A fresh virtual environment with the tools; its pip."""
    shutil.rmtree(folder, ignore_errors=True)
    done = run(sys.executable, "-m", "venv", folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect(done, "making a virtual environment")
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    done = run(*pip, "install", "--quiet", "--retries", "1", *TOOLS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
               text=True)
    if done.returncode != 0 and any(sign in done.stdout for sign in UNREACHABLE):
        skip("PyPI cannot be reached: " + done.stdout.strip().splitlines()[-1])
    expect(done, "installing its tools")
    return pip


def main():
    if sys.version_info < (3, 10):
        skip(f"it needs Python 3.10, and this is {sys.version.split()[0]}")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        skip("the headers of Python are missing here (Debian: python3-dev)")
    if importlib.util.find_spec("ensurepip") is None:
        skip("virtual environments cannot be made here (Debian: python3-venv)")
    pip = environment_of(FOLDER / "environment")
    wheels = FOLDER / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    settings = [f"build-dir={FOLDER / 'module'}", f"cmake.define.FORETOKEN_BUILT={BUILD}"]
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    done = run(*pip, "wheel", ROOT, "--no-build-isolation", "--no-deps", "--wheel-dir", wheels,
               *(word for setting in settings for word in ("--config-settings", setting)), env=environment,
               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect(done, "building the wheel")
    wheel, = wheels.glob("foretoken-*.whl")
    done = run(*pip, "install", "--quiet", "--no-deps", wheel, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
               text=True)
    expect(done, "installing the wheel")
    # Elsewhere, so that nothing but the installed package is imported.
    environment = {**os.environ, "FORETOKEN_BUILD_DIR": str(BUILD), "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": ""}
    return run(pip[0], "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5", HERE / "package",
               *sys.argv[1:], cwd=FOLDER, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
