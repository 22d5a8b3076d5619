"""What `pip install` leaves: the module, and the program of the same build."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import foretoken

BUILT = Path(os.environ["FORETOKEN_BUILD_DIR"]) / "foretoken"
PROGRAM = Path(sys.executable).with_name("foretoken")


def test_the_program_on_the_path_is_the_same():
    assert PROGRAM.read_bytes() == BUILT.read_bytes()
    said = subprocess.run([PROGRAM, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said.startswith(f"foretoken {foretoken.__version__} (")
    by_module = subprocess.run([sys.executable, "-m", "foretoken", "--version"], stdout=subprocess.PIPE, text=True,
                               check=True).stdout
    assert by_module == said


def test_the_package_is_the_installed_one():
    assert Path(foretoken.__file__).is_relative_to(sys.prefix)
    assert (Path(foretoken.__file__).parent / "py.typed").is_file()


def test_public_names_have_docstrings():
    for name in foretoken.__all__:
        assert (getattr(foretoken, name).__doc__ or "").strip(), name


def stubbed(body):
    """The names that a stub declares, those of classes with their own."""
    names = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = set(stubbed(node.body))
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = set()
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = set()
    return names


def test_the_stub_has_what_the_module_has():
    from foretoken import _core
    stub = stubbed(ast.parse((Path(foretoken.__file__).parent / "_core.pyi").read_text()).body)
    assert set(stub) == {name for name in dir(_core) if not name.startswith("_")}
    for name, members in stub.items():
        if isinstance(getattr(_core, name), type) and name != "Error":
            public = {member for member in vars(getattr(_core, name)) if not member.startswith("_")}
            assert public == {member for member in members if not member.startswith("_")}, name
