"""The notebooks, executed by Jupyter with the installed package, those that read results on committed ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("matplotlib")

FOLDER = Path(__file__).resolve().parents[3] / "notebooks"
RESULTS = FOLDER.parent / "experiments/results/cpu/lengths.jsonl.xz"
PROGRAM = Path(sys.executable).with_name("foretoken")


@pytest.fixture
def results(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delenv("FORETOKEN_PROGRAM", raising=False)
    import results

    def none():
        raise AssertionError("the program was asked, and not the package")

    monkeypatch.setattr(results, "program", none)
    return results


def test_the_package_reads_what_the_program_shows(results, monkeypatch):
    shown = subprocess.run([PROGRAM, "show", RESULTS, "--json"], stdout=subprocess.PIPE, check=True, text=True).stdout
    assert results.figures(RESULTS) == json.loads(shown)
    monkeypatch.setenv("FORETOKEN_PROGRAM", str(PROGRAM))
    with pytest.raises(AssertionError, match="the program was asked"):
        results.figures(RESULTS)


def test_what_is_no_results_file_says_why(results, tmp_path):
    (tmp_path / "none.jsonl").write_text("[]\n[]\n")
    with pytest.raises(RuntimeError, match="none.jsonl"):
        results.figures(tmp_path / "none.jsonl")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_by_the_package(path, results, monkeypatch):
    monkeypatch.setenv("FORETOKEN_RESULTS", str(RESULTS))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3",
                            resources={"metadata": {"path": str(FOLDER)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1
