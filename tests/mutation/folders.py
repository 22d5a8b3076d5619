"""Which sources are one folder of the score, the share of slips that must be seen there, and which tests ought to."""

from dataclasses import dataclass

STEP = ("tests/framework/engine", "tests/framework/cache", "tests/framework/decode", "tests/framework/components",
        "tests/drafters", "tests/verifiers", "tests/oracle", "tests/laws")
KERNELS = ("tests/kernels", "tests/kernels/cpu", "tests/kernels/formats")
MODEL = ("tests/framework/model", "tests/framework/model/quantized")


@dataclass(frozen=True)
class Folder:
    name: str
    bar: int         # percent
    sources: tuple   # patterns, from the root of the repository
    tests: tuple     # folders of tests/ that become one executable each, and scripts
    without: tuple = ()
    flags: tuple = ()  # of the compiler that reads a source


def folder(name, bar, tests, *sources, without=(), flags=()):
    return Folder(name, bar, sources or (f"{name}/*.cpp", f"{name}/*.h"), tests, without, flags)


def room(name, *scripts, flags=()):
    scripts = tuple(f"tests/experiments/{script}_test.py" for script in scripts)
    return folder(f"experiments/{name}", 80, (f"tests/experiments/{name}", *scripts), flags=flags)


DISTRIBUTIONS = ("kernels/distribution.*", "kernels/residual.h", "kernels/philox.h")
# Intrinsics, which libclang does not know without headers of its own.
INTRINSICS = ("kernels/cpu/*_avx*", "kernels/cpu/operations_*", "kernels/cpu/product_octets.h",
              "kernels/cpu/read_octets.h", "kernels/cpu/product_tiles.h")
EIGEN = ("-isystem", "/usr/include/eigen3", "-DEIGEN_DONT_VECTORIZE")
STATISTICS = ("experiments/conformance/statistics.*", "experiments/report/statistics.*")
COMMANDS = ("cli", "files", "hardening", "terminal")
FOLDERS = (
    folder("framework/engine", 90, STEP),
    folder("framework/cache", 90, STEP),
    folder("framework/decode", 90, STEP),
    folder("distributions", 90, ("tests/kernels", *STEP), *DISTRIBUTIONS),
    folder("drafters", 90, STEP, "drafters/*.cpp", "drafters/*.h", "drafters/policies/*.cpp"),
    folder("verifiers", 90, STEP),
    folder("statistics", 90, ("tests/experiments/report", "tests/experiments/conformance", *STEP),
           *STATISTICS),
    folder("kernels", 80, (*KERNELS, "tests/framework/components", "tests/verifiers"), without=DISTRIBUTIONS),
    folder("kernels/formats", 80, (*KERNELS, *MODEL), "kernels/formats/*", "kernels/formats/activations/*"),
    folder("kernels/cpu", 80, KERNELS, without=INTRINSICS, flags=("-include", "tests/mutation/vectors.h")),
    folder("kernels/reference", 80, KERNELS, flags=EIGEN),
    folder("framework/components", 80, STEP),
    folder("framework/model", 80, MODEL),
    folder("framework/model/gguf", 80, MODEL),
    folder("framework/model/quantized", 80, MODEL),
    folder("framework/text", 80, ("tests/framework/text", "tests/framework/model")),
    folder("experiments/conformance", 80, ("tests/laws", "tests/oracle"), without=STATISTICS),
    folder("experiments/report", 80, ("tests/experiments/report",), without=STATISTICS),
    room("sweep", *COMMANDS, "shards", "failed_requests"),
    room("trace", "cli", "failed_requests"),
    room("bench", "cli"),
    room("quality", "quality"),
    room("quantize", "quantize", flags=EIGEN),
    room("program", *COMMANDS, "tree_shape", "quality", "quantize", "shards"),
)


def executable(tests):
    """What ninja builds for a folder of tests; a script needs the program, and is itself what runs."""
    return tests if tests.endswith(".py") else "test_" + tests.removeprefix("tests/").replace("/", "_")
