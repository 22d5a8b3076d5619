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
    flags: tuple = ()    # of the compiler that reads a source
    proofs: bool = False  # tests that prove that laws see faults count too: the sources are the laws


def folder(name, bar, tests, *sources, without=(), flags=(), proofs=False):
    return Folder(name, bar, sources or (f"{name}/*.cpp", f"{name}/*.h"), tests, without, flags, proofs)


def scripts(*names):
    return tuple(f"tests/experiments/{name}_test.py" for name in names)


def room(name, *named, flags=(), also=(), without=()):
    tests = (f"tests/experiments/{name}", *also, *scripts(*named))
    return folder(f"experiments/{name}", 80, tests, flags=flags, without=without)


DISTRIBUTIONS = ("kernels/distribution.*", "kernels/residual.h", "kernels/philox.h")
# Intrinsics, which libclang does not know without headers of its own.
INTRINSICS = ("kernels/cpu/*_avx*", "kernels/cpu/operations_*", "kernels/cpu/product_octets.h",
              "kernels/cpu/read_octets.h", "kernels/cpu/product_tiles.h")
EIGEN = ("-isystem", "/usr/include/eigen3", "-DEIGEN_DONT_VECTORIZE")
STATISTICS = ("experiments/conformance/statistics.*", "experiments/report/statistics.*")
PLUGIN_HASH = ("tests/plugins/plugin_hash_test.py",)
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
    folder("framework/components", 80, (*STEP, *PLUGIN_HASH, "tests/experiments/early_exit_test.py")),
    folder("framework/model", 80, MODEL),
    folder("framework/model/gguf", 80, MODEL),
    folder("framework/model/quantized", 80, MODEL),
    folder("framework/text", 80, ("tests/framework/text", "tests/framework/model")),
    folder("experiments/conformance", 80,
           ("tests/experiments/conformance", "tests/laws", "tests/oracle", *scripts("cli", "terminal")),
           without=STATISTICS, proofs=True),
    room("report", *COMMANDS, "page", "readme_tables", "tree_shape", "costs", also=("tests/experiments/sweep", "tests/laws"),
         without=STATISTICS),
    room("session", *COMMANDS, "generate", also=("tests/experiments/sweep", "tests/oracle")),
    room("sweep", *COMMANDS, "shards", "failed_requests", "quickstart",
         also=("tests/oracle", "tests/experiments/trace", "tests/experiments/program")),
    room("trace", "replay", "trace_file", "failed_requests"),
    room("bench", "cli"),
    room("quality", "quality"),
    room("quantize", "quantize", flags=EIGEN),
    room("costs", "costs"),
    room("datastore", "datastore"),
    room("serve", "serve", "gateway"),
    room("load", "load"),
    room("program", *COMMANDS, "check_command", "early_exit", "generate", "quality", "quantize", "replay", "serve", "shards",
         "tree_shape", "costs", also=PLUGIN_HASH),
)


def executable(tests):
    """What ninja builds for a folder of tests; a script needs the program, and is itself what runs."""
    return tests if tests.endswith(".py") else "test_" + tests.removeprefix("tests/").replace("/", "_")
