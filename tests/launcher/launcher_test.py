"""The launcher, run as a user runs it, in a copy of the checkout with fakes of apt, cmake, nvcc and the rest.

Every fake but dpkg-query appends a line `name arguments` to a journal and responds as the files in the folder
`facts` specify.
"""

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

NOBODY = 65534
SOURCE = Path(__file__).resolve().parents[2]

# $HERE/facts/ holds: installed (packages), nvidia-smi, nvcc, sudo (exit codes), apt (what it prints before it fails).
STAND_INS = {
    "dpkg-query": 'for p in "$@"; do grep -qx -e "$p" "$HERE/facts/installed" && echo "$p installed"; done; exit 1',
    "apt-get": '[ -f "$HERE/facts/apt" ] && cat "$HERE/facts/apt" && exit 100\n'
    'echo "frontend $DEBIAN_FRONTEND" >> "$HERE/journal"; [ -z "$(cat)" ] || exit 99; exit 0',
    "sudo": '[ "$(cat "$HERE/facts/sudo")" = 0 ] || exit 1; [ "$1" = -n ] && exit 0; exec "$@"',
    "nvidia-smi": 'echo "GPU 0: stand-in"; exit "$(cat "$HERE/facts/nvidia-smi")"',
    "nvcc": 'exit "$(cat "$HERE/facts/nvcc")"',
    "ctest": r"""mkdir -p "$HERE/checkout it/build/$2/Testing/Temporary"
printf 'Output:\nskipped: a tool is missing\nend\n' > "$HERE/checkout it/build/$2/Testing/Temporary/LastTest.log"; exit 8""",
    "ninja": "exit 0",
    "c++": "exit 0",
    "cmake": r'''
if [ "$1" = --preset ]; then
  mkdir -p "$HERE/checkout it/build/$2"; cd "$HERE/checkout it/build/$2"
  echo "CMAKE_HOME_DIRECTORY:INTERNAL=$HERE/checkout it" > CMakeCache.txt
  case "$*" in *FORETOKEN_TESTS=ON*) echo "FORETOKEN_TESTS:BOOL=ON" >> CMakeCache.txt;; esac
  touch build.ninja
elif [ "$1" = --build ]; then
  [ -f "$HERE/facts/slow" ] && sleep 1 && echo "built" >> "$HERE/journal"
  if [ -f "$HERE/facts/broken" ]; then
    echo "[1/2] Building CXX object good.o"; echo "FAILED: bad.o"; echo "bad.cpp:1: error: no such room"; exit 1
  fi
  printf '#!/bin/sh\necho "ran in $PWD with: $*"\nexit 7\n' > "$2/foretoken"; chmod +x "$2/foretoken"
fi''',
}
# Runs the launcher with another user id and another /etc/os-release than this machine's; UNPRIVILEGED: as a user who
# may not write everywhere.
DRIVER = """
import importlib.machinery, importlib.util, os, pathlib, sys
loader = importlib.machinery.SourceFileLoader("launcher", sys.argv[1])
spec = importlib.util.spec_from_loader("launcher", loader)
launcher = importlib.util.module_from_spec(spec)
loader.exec_module(launcher)
launcher.os.geteuid = lambda: int(os.environ["USER_ID"])
if "UNPRIVILEGED" in os.environ and os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(os.environ["UNPRIVILEGED"]))
    os.setuid(int(os.environ["UNPRIVILEGED"]))
launcher.OS_RELEASE = pathlib.Path(os.environ["HERE"], "facts", "os-release")
try:
    sys.exit(launcher.main(sys.argv[2:]))
except launcher.Stop as stop:
    print(stop, file=sys.stderr)
    sys.exit(stop.code)
"""


class Launcher(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        self.checkout = self.here / "checkout it"
        (self.checkout / "tests" / "kernels").mkdir(parents=True)
        for name in ("foretoken", "CMakePresets.json"):
            shutil.copy(SOURCE / name, self.checkout)
        tools = self.here / "tools"
        tools.mkdir()
        for name, body in STAND_INS.items():
            journal = f'echo "{name} $*" >> "$HERE/journal"\n' if name != "dpkg-query" else ""
            (tools / name).write_text(f"#!/bin/sh\n{journal}{body}\n")
            (tools / name).chmod(0o755)
        for name in ("sh", "cat", "grep", "mkdir", "touch", "chmod", "sleep", "env"):
            (tools / name).symlink_to(shutil.which(name))
        self.fact("os-release", "ID=debian\n")
        self.fact("nvidia-smi", "9")
        self.fact("nvcc", "0")
        self.fact("sudo", "1")
        self.packages = self.constant("PACKAGES") + self.constant("TEST_PACKAGES")
        self.fact("installed", "\n".join(self.packages) + "\n")

    def constant(self, name):
        scope = {"__name__": "launcher", "__file__": str(SOURCE / "foretoken")}
        exec(compile((SOURCE / "foretoken").read_text(), "foretoken", "exec"), scope)
        return scope[name]

    def fact(self, name, text):
        (self.here / "facts").mkdir(exist_ok=True)
        (self.here / "facts" / name).write_text(text)

    def start(self, *arguments, user=0, cwd=None, under=(), stderr=subprocess.PIPE, **environment):
        environment = {"PATH": str(self.here / "tools"), "HERE": str(self.here), "USER_ID": str(user),
                       "CUDACXX": str(self.here / "tools" / "nvcc"), **environment}
        return subprocess.Popen([*under, sys.executable, "-c", DRIVER, str(self.checkout / "foretoken"), *arguments],
                                cwd=cwd or self.checkout, env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=stderr, text=True)

    def refused(self, *words, **options):
        """One sentence with these words, nothing else, and exit code 1."""
        code, out, err = self.run_it("--preset", "cpu", "list", **options)
        self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
        for word in words:
            self.assertIn(word, err)

    def run_it(self, *arguments, **options):
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def journal(self, tool):
        path = self.here / "journal"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.split()[0] == tool]

    def test_builds_and_hands_over_arguments_folder_and_exit_code(self):
        code, out, err = self.run_it("run", "a file.json", "--json", cwd=self.here)
        self.assertEqual((code, out), (7, f"ran in {self.here} with: run a file.json --json\n"), err)
        self.assertEqual(self.journal("apt-get"), [])
        self.assertEqual(self.journal("cmake")[0], "cmake --preset cpu")
        self.assertIn("--target foretoken", self.journal("cmake")[1])

    def test_installs_into_a_prefix(self):
        prefix = self.here / "my prefix"
        code, out, err = self.run_it("install", "--prefix", str(prefix))
        self.assertEqual((code, out), (0, ""), err)
        self.assertIn("--target foretoken", self.journal("cmake")[1])
        self.assertEqual(self.journal("cmake")[2], f"cmake --install {self.checkout}/build/cpu --prefix {prefix}")
        self.assertIn(f"-DCMAKE_PREFIX_PATH='{prefix}'", err)
        self.assertIn("drafters/template", err)
        self.run_it("install", "--prefix=relative", cwd=self.here)
        self.assertTrue(self.journal("cmake")[-1].endswith(f"--prefix {self.here}/relative"))
        before = len(self.journal("cmake"))
        code, _, err = self.run_it("install", "--prefx", "x")
        self.assertEqual((code, len(self.journal("cmake"))), (1, before))
        self.assertIn("install --prefix DIR", err)

    def test_configures_once_and_again_for_tests(self):
        self.run_it("list")
        self.run_it("list")
        self.assertEqual(len([line for line in self.journal("cmake") if "--preset" in line]), 1)
        self.run_it("test")
        self.assertIn("cmake --preset cpu -DFORETOKEN_TESTS=ON", self.journal("cmake"))

    def test_builds_everything_or_one_target(self):
        self.run_it("build")
        self.assertRegex(self.journal("cmake")[-1], "--target all$")
        self.assertEqual(self.run_it("build", "foretoken_engine")[0], 0)
        self.assertRegex(self.journal("cmake")[-1], "--target foretoken_engine$")
        code, _, err = self.run_it("build", "one", "two")
        self.assertEqual(code, 1)
        self.assertIn("leave two out", err)

    def test_starts_afresh_after_the_checkout_moved(self):
        self.run_it("list")
        cache = self.checkout / "build" / "cpu" / "CMakeCache.txt"
        cache.write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/somewhere/else\n")
        self.run_it("list")
        self.assertEqual(len([line for line in self.journal("cmake") if "--preset" in line]), 2)

    def test_installs_what_is_missing_and_says_it(self):
        self.fact("installed", "\n".join(set(self.packages) - {"cmake", "libxxhash-dev", "libgtest-dev"}) + "\n")
        code, _, err = self.run_it("list")
        self.assertEqual(code, 7, err)
        self.assertIn("missing packages: cmake libxxhash-dev\n", err)
        update, install = self.journal("apt-get")
        self.assertRegex(update, "update$")
        self.assertRegex(install, "install -y --no-install-recommends cmake libxxhash-dev$")
        self.assertEqual(self.journal("frontend"), ["frontend noninteractive"] * 2)
        self.run_it("test")
        self.assertRegex(self.journal("apt-get")[-1], "libgtest-dev$")
        self.run_it("--preset", "fuzz", "build")
        self.assertRegex(self.journal("apt-get")[-1], "clang-19 libclang-rt-19-dev$")

    def test_goes_through_sudo_where_it_is_not_root(self):
        self.fact("installed", "\n".join(set(self.packages) - {"cmake"}) + "\n")
        self.fact("sudo", "0")
        code, _, err = self.run_it("list", user=1000)
        self.assertEqual(code, 7, err)
        self.assertEqual(len(self.journal("apt-get")), 2)
        self.assertRegex(self.journal("sudo")[-1], "apt-get .* install -y .* cmake$")

    def test_prints_the_command_where_it_may_not_install(self):
        self.fact("installed", "\n".join(set(self.packages) - {"cmake"}) + "\n")
        code, _, err = self.run_it("list", user=1000)
        self.assertEqual(code, 1)
        self.assertIn("sudo apt-get update && sudo apt-get install -y --no-install-recommends cmake\n", err)
        self.assertEqual(self.journal("apt-get") + self.journal("cmake"), [])
        code, _, err = self.run_it("--no-install", "list", user=1000)
        self.assertEqual(code, 7, err)

    def test_names_universe_on_ubuntu(self):
        self.fact("installed", "")
        self.fact("apt", "E: Unable to locate package libcli11-dev\n")
        self.fact("os-release", "ID=ubuntu\n")
        code, _, err = self.run_it("list")
        self.assertEqual(code, 1)
        self.assertIn("Unable to locate package libcli11-dev", err)
        self.assertIn("add-apt-repository -y universe", err)
        self.fact("os-release", "ID=debian\n")
        self.assertNotIn("universe", self.run_it("list")[2])

    def test_picks_cuda_only_where_gpu_and_nvcc_work(self):
        for gpu, nvcc, preset in (("0", "0", "cuda"), ("0", "1", "cpu"), ("9", "0", "cpu")):
            shutil.rmtree(self.checkout / "build", ignore_errors=True)
            (self.here / "journal").unlink(missing_ok=True)
            self.fact("nvidia-smi", gpu)
            self.fact("nvcc", nvcc)
            self.run_it("list")
            self.run_it("list")
            self.assertEqual(self.journal("cmake")[0], f"cmake --preset {preset}", (gpu, nvcc))
            self.assertLessEqual(len(self.journal("nvcc")), 1)
        self.run_it("--preset", "cuda", "list")
        self.assertIn("cmake --preset cuda", self.journal("cmake"))

    def test_says_where_a_build_failed(self):
        self.fact("broken", "")
        code, out, err = self.run_it("list")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("bad.cpp:1: error: no such room", err)
        log = self.checkout / "build" / "cpu" / "build.log"
        self.assertIn(str(log), err)
        self.assertIn("good.o", log.read_text())

    def test_passes_arguments_to_ctest_and_names_what_was_not_run(self):
        (self.checkout / "tests" / "kernels" / "linear_gpu_test.cpp").touch()
        code, _, err = self.run_it("test", "-L", "quick")
        self.assertEqual(code, 8)
        self.assertRegex(self.journal("ctest")[0], "^ctest --preset cpu -j [0-9]+ -L quick -LE gpu$")
        self.assertIn("not run: the tests labelled gpu (tests/kernels/linear_gpu_test.cpp)", err)
        self.assertIn("foretoken: skipped: a tool is missing\n", err)
        self.assertIn("--target all", self.journal("cmake")[1])
        code, _, err = self.run_it("test", "--gpu")
        self.assertEqual(code, 1)
        self.assertIn("--gpu needs a GPU", err)
        self.fact("nvidia-smi", "0")
        self.run_it("--preset", "cuda", "test", "--gpu")
        self.assertRegex(self.journal("ctest")[-1], "^ctest --preset cuda -j [0-9]+$")

    def test_builds_no_more_than_the_tests_of_the_preset(self):
        """The sanitizers run the tests of one label alone."""
        self.run_it("--preset", "asan", "test")
        self.assertIn("--target quick_tests", self.journal("cmake")[1])

    def test_lint_has_what_it_needs(self):
        style = self.checkout / "tests" / "style"
        style.mkdir()
        (style / "sources.py").write_text("CLANG_FORMAT = '1.2.3'\ndef clang_format():\n    return None\n")
        (style / "lint.py").write_text("import sys\nprint(*sys.argv[1:])\nsys.exit(5)\n")
        self.fact("nvidia-smi", "0")
        code, out, err = self.run_it("lint", "--since", "main")
        self.assertEqual((code, out), (5, f"--build {self.checkout}/build/lint --since main\n"), err)
        self.assertIn("missing packages: clang-tidy-19 clang-format-19\n", err)
        self.assertIn(f"installing clang-format 1.2.3 from PyPI in {self.checkout}/build/lint", err)
        self.assertEqual(self.journal("cmake")[0], "cmake --preset lint -DFORETOKEN_TESTS=ON")
        self.assertIn("--target foretoken_generated", self.journal("cmake")[1])
        (style / "sources.py").write_text("CLANG_FORMAT = '1.2.3'\ndef clang_format():\n    return '/bin/x'\n")
        self.fact("installed", "\n".join(self.packages + self.constant("LINT_PACKAGES")) + "\n")
        code, _, err = self.run_it("lint")
        self.assertEqual((code, "PyPI" in err, "missing" in err), (5, False, False), err)
        self.fact("installed", "\n".join(self.packages) + "\n")
        self.fact("apt", "E: Unable to locate package clang-tidy-19\n")
        code, out, err = self.run_it("lint")
        self.assertEqual((code, out, "apt-get failed" in err), (77, "", True), err)
        self.assertEqual(self.run_it("--preset", "fuzz", "build")[0], 1, "lint alone has the code 77")

    def test_builds_one_at_a_time(self):
        self.fact("slow", "")
        first = self.start("list")
        while not self.journal("cmake"):
            time.sleep(0.01)
        second = self.run_it("list")
        first.communicate(timeout=60)
        self.assertEqual((first.returncode, second[0]), (7, 7))
        self.assertIn("another ./foretoken is building", second[2])
        journal = (self.here / "journal").read_text().splitlines()
        order = [line.split()[0] for line in journal if line == "built" or line.startswith("cmake --build")]
        self.assertEqual(order, ["cmake", "built", "cmake", "built"])

    def test_says_what_another_user_may_not_write(self):
        self.here.chmod(0o755)
        build = self.checkout / "build"
        mine = "let this user write there, or work in a copy of the checkout"
        self.checkout.chmod(0o555)
        self.refused(f"{build}: Permission denied", mine, UNPRIVILEGED=str(NOBODY))
        self.checkout.chmod(0o755)
        build.mkdir()
        build.chmod(0o777)
        (build / "lock").touch(0o444)
        (build / "lock").chmod(0o444)
        self.refused(f"{build}/lock: Permission denied", mine, UNPRIVILEGED=str(NOBODY))
        (build / "lock").unlink()
        (build / "cpu").mkdir()
        (build / "cpu").chmod(0o555)
        self.refused(f"{build}/cpu/build.log: Permission denied", mine, UNPRIVILEGED=str(NOBODY))
        (build / "cpu").chmod(0o755)
        (build / "cpu" / "foretoken").touch(0o755)
        (build / "lock").touch()
        (build / "lock").chmod(0o444)
        self.refused(f"runs without the launcher: {build}/cpu/foretoken", UNPRIVILEGED=str(NOBODY))

    def test_says_that_a_checkout_is_read_only(self):
        mount = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"',
            str(self.checkout),
        ]
        if not shutil.which("unshare") or subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
            self.skipTest("no file system may be mounted here; a folder that may not be written stands for it")
        tools = {"PATH": f"{self.here / 'tools'}:{os.environ['PATH']}"}
        self.refused(f"{self.checkout}/build: Read-only file system", "a copy of the checkout", under=mount, **tools)

    def test_says_which_tool_is_missing(self):
        (self.here / "tools" / "cmake").unlink()
        self.refused("cmake: No such file or directory")

    def test_starts_with_closed_descriptors(self):
        for closed in ("2>&-", "1>&-", "<&-", "<&- >&- 2>&-"):
            (self.here / "journal").unlink(missing_ok=True)
            code, out, err = self.run_it("list", under=["sh", "-c", f'exec "$@" {closed}', "sh"])
            self.assertEqual((code, "Traceback" in err), (7, False), (closed, err))
            self.assertEqual(bool(out), ">&-" not in closed.replace("2>&-", ""), closed)
            self.assertIn("--target foretoken", self.journal("cmake")[-1])
        code, _, err = self.run_it("--fast", under=["sh", "-c", 'exec "$@" 2>&-', "sh"])
        self.assertEqual((code, err), (1, ""))

    def test_says_that_presets_are_damaged(self):
        for text in (b"{", b"[]", b"{}", b'{"buildPresets": [{}]}', b'{"buildPresets": 5}', b"\xff"):
            (self.checkout / "CMakePresets.json").write_bytes(text)
            self.refused(str(self.checkout / "CMakePresets.json"), "git checkout")

    def test_a_cache_that_is_no_utf8_is_read(self):
        self.run_it("list")
        cache = self.checkout / "build" / "cpu" / "CMakeCache.txt"
        cache.write_bytes(b"NAME:STRING=\xff\n" + cache.read_bytes())
        code, _, err = self.run_it("list")
        self.assertEqual((code, "Traceback" in err), (7, False), err)
        self.assertEqual(len([line for line in self.journal("cmake") if "--preset" in line]), 1)

    def test_sentences_hold_no_control_characters(self):
        err = self.run_it(b"--\x1b[31m\xff\xc2\x85", "list")[2]
        self.assertIn(r"unknown option --\u001b[31m\xff\u0085:", err)

    def test_progress_fits_a_narrow_terminal(self):
        steps = "".join(f"echo '[{i}/9] Building CXX object {'long' * 20}.o'; " for i in range(1, 10))
        cmake = self.here / "tools" / "cmake"
        cmake.write_text(
            cmake.read_text().replace("elif", f"elif [ \"$1\" = --build ] && {{ {steps} false; }}; then :; elif", 1)
        )
        try:
            terminal, end = pty.openpty()
        except OSError as e:
            self.skipTest(f"no terminal can be opened here: {e}")
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        process = self.start("list", stderr=end)
        process.communicate(timeout=60)
        os.close(end)
        shown = os.read(terminal, 1 << 16).decode()
        os.close(terminal)
        lines = [line for line in shown.replace("\n", "").split("\r\033[K") if line]
        self.assertTrue(any(line.startswith("foretoken: building") for line in lines), lines)
        self.assertLess(max(map(len, lines)), 20, lines)

    def test_refuses_unknown_options_and_presets(self):
        self.assertIn("there are cpu, cuda, nightly, lint, asan, tsan, fuzz", self.run_it("--preset", "gpu", "list")[2])
        self.assertIn("unknown option --fast", self.run_it("--fast", "list")[2])
        code, out, _ = self.run_it("--help")
        self.assertEqual((code, self.journal("cmake")), (0, []))
        self.assertIn("quickstart", out)


if __name__ == "__main__":
    unittest.main()
