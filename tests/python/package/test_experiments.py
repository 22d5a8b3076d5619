"""Sweeps and results, the examples of the page, and what a component costs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import foretoken
from conftest import DRAFT, TARGET

HERE = Path(__file__).resolve()
ROOT = HERE.parents[3]
PAGES = "".join((ROOT / page).read_text() for page in ("README.md", "experiments/python/README.md"))
RUN = {"target": {"model": TARGET}, "engine": {"batch": 2, "device": "cpu"},
       "workload": {"prompts": "experiments/prompts.jsonl", "limit": 2, "max_new_tokens": 6},
       "measure": {"busy": "accept", "seconds": 0.1}}


@foretoken.drafter("py_swept", options={"most": 2})
class Swept:
    """the last token again"""

    def __init__(self, most):
        self.most = most

    def draft(self, batch):
        return np.repeat(batch.last[:, None], self.most, axis=1)


def test_a_sweep_with_a_drafter_in_python(tmp_path):
    out = tmp_path / "out.jsonl"
    sweep = foretoken.Sweep({"base": {**RUN, "drafter": {"name": "py_swept"}}, "axes": {"/drafter/most": [1, 3]}})
    outcome = sweep.run(out, quiet=True)
    assert (outcome.path, outcome.runs, outcome.failed, outcome.refused) == (out, 2, 0, 0)
    table = outcome.results()
    assert list(table["drafter.most"]) == [1, 3] and (table.tau >= 1).all()
    assert (table.alpha_low <= table.alpha).all()
    assert len(foretoken.results(out, where="/drafter/most=3")) == 1
    raw = foretoken.results(out, raw=True)["cells"][0]
    assert raw["run"]["plugins"][0]["path"].startswith("py_swept (Python drafter, ")
    lines = out.read_text()
    assert sweep.run(out, quiet=True).runs == 2 and out.read_text() == lines  # nothing is measured again
    complete = raw["run"]
    with foretoken.Engine(complete) as engine:  # a complete run is a run
        assert len(engine.generate("a", max_new_tokens=3).tokens) == 3


def test_a_changed_drafter_is_another_run(tmp_path):
    out = tmp_path / "out.jsonl"
    for text in ("return None", "return [[1]] * len(batch)"):
        file = tmp_path / f"d{len(text)}.py"
        file.write_text("import foretoken\nclass Edited:\n    def draft(self, batch):\n        " + text + "\n"
                        'foretoken.register_drafter("py_edited", Edited)\n')
        code = f"import runpy, foretoken, json; runpy.run_path({str(file)!r}); " \
               f"foretoken.Sweep(json.loads({json.dumps(json.dumps({**RUN, 'drafter': {'name': 'py_edited'}}))}))" \
               f".run({str(out)!r}, quiet=True)"
        subprocess.run([sys.executable, "-c", code], check=True)
    assert len(out.read_text().splitlines()) == 2


def lines_of_a_sweep(out, drafter, policy="fixed"):
    foretoken.Sweep({**RUN, "drafter": {"name": drafter}, "policy": {"name": policy}}).run(out, quiet=True)
    return len(out.read_text().splitlines())


def hash_of(drafter):
    with foretoken.Engine(target=DRAFT, drafter=drafter) as engine:
        return engine.run["plugins"][0]["hash"]


def test_what_was_written_in_a_notebook_is_another_run_each_time(tmp_path):
    out = tmp_path / "out.jsonl"
    text = """
class Cell:
    def draft(self, batch):
        return {} * len(batch)
foretoken.register_drafter("py_cell", Cell)
"""
    for lines, tokens in enumerate(("[[1]]", "[[2]]"), 1):
        exec(text.format(tokens), {"foretoken": foretoken, "__name__": "__main__"})
        assert lines_of_a_sweep(out, "py_cell") == lines
        assert lines_of_a_sweep(out, "py_cell") == lines  # nothing is measured again


def test_a_run_is_not_repeated_with_another_class_of_its_name():
    runs = []
    for token in (1, 2):
        exec(f"class Cell:\n    def draft(self, b):\n        return [[{token}]] * len(b)\n"
             "foretoken.register_drafter('py_again', Cell)\n", {"foretoken": foretoken, "__name__": "__main__"})
        with foretoken.Engine(target=DRAFT, drafter="py_again") as engine:
            runs.append(engine.run)
    foretoken.Engine(runs[1]).close()
    with pytest.raises(foretoken.Error, match="'py_again .Python drafter.' is not the one that this run names"):
        foretoken.Engine(runs[0])
    with pytest.raises(foretoken.Error, match="take out the hash"):
        foretoken.Sweep(runs[0]).run("x.jsonl")
    del runs[0]["plugins"][0]["hash"]
    foretoken.Engine(runs[0]).close()


class InTheFile:
    """exec() below makes another of this name"""

    most = 1

    def draft(self, batch):
        return [[self.most]] * len(batch)


def test_what_exec_wrote_is_not_what_the_file_has_under_its_name():
    hashes = []
    for most in (1, 2):
        names = {"__name__": __name__}
        exec(f"class InTheFile:\n    most = {most}\n    def draft(self, b):\n        return [[self.most]] * len(b)\n",
             names)
        foretoken.register_drafter("py_exec", names["InTheFile"])
        hashes.append(hash_of("py_exec"))
    assert hashes[0] != hashes[1]


def test_a_drafter_and_a_policy_of_one_name_are_told_apart(tmp_path):
    file, out = tmp_path / "both.py", tmp_path / "out.jsonl"
    for lines, length in enumerate((2, 3), 1):
        file.write_text(f"""
import foretoken
@foretoken.policy("py_both", depth=4)
class Policy:
    def budgets(self, batch):
        return [{length}] * len(batch)
@foretoken.drafter("py_both")
class Drafter:
    def draft(self, batch):
        return [[1, 2]] * len(batch)
""")
        code = f"import runpy, foretoken; runpy.run_path({str(file)!r}); foretoken.Sweep({{**{RUN!r}, 'drafter': " \
               f"{{'name': 'py_both'}}, 'policy': {{'name': 'py_both'}}}}).run({str(out)!r}, quiet=True)"
        subprocess.run([sys.executable, "-c", code], check=True)
        found = [json.loads(line) for line in out.read_text().splitlines()]
        assert len(found) == lines
        assert [p["path"] for p in found[-1]["run"]["plugins"]] == [f"py_both (Python policy, {file})",
                                                                    f"py_both (Python drafter, {file})"]


def test_the_text_of_bases_and_what_is_enclosed_tell_components_apart(tmp_path):
    out = tmp_path / "out.jsonl"
    (tmp_path / "child.py").write_text("from base import Base\nclass Child(Base):\n    pass\n")
    for lines, token in enumerate((1, 2), 1):
        text = f"class Base:\n    def draft(self, b):\n        return [[{token}]] * len(b)\n"
        (tmp_path / "base.py").write_text(text)
        code = f"import sys, foretoken; sys.path.insert(0, {str(tmp_path)!r}); import child; " \
               "foretoken.register_drafter('py_child', child.Child); " \
               f"foretoken.Sweep({{**{RUN!r}, 'drafter': {{'name': 'py_child'}}}}).run({str(out)!r}, quiet=True)"
        subprocess.run([sys.executable, "-B", "-c", code], check=True)
        assert len(out.read_text().splitlines()) == lines

    def made(token):
        class Enclosing:
            def draft(self, batch):
                return [[token]] * len(batch)
        return Enclosing

    hashes = []
    for token in (1, 2, 2):
        foretoken.register_drafter("py_encloses", made(token))
        hashes.append(hash_of("py_encloses"))
    assert hashes[0] != hashes[1] == hashes[2]


def test_a_file_that_was_edited_after_it_was_read_is_not_what_runs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = "class Edited:\n    def draft(self, batch):\n        return [[{}]] * len(batch)\n"
    hashes = []
    for token, again in ((1, False), (2, False), (2, True)):
        (tmp_path / "py_edited_later.py").write_text(text.format(token))
        if again:
            del sys.modules["py_edited_later"]
        import py_edited_later
        foretoken.register_drafter("py_edited_later", py_edited_later.Edited)
        hashes.append(hash_of("py_edited_later"))
    assert hashes[1] != hashes[2]


def test_ctrl_c_during_a_sweep_is_obeyed_and_keeps_what_is_measured(tmp_path):
    code = f"""
import foretoken, os, signal, threading
sweep = foretoken.Sweep({{**{RUN!r}, "measure": {{"busy": "accept", "seconds": 60}}}})
threading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    sweep.run({str(tmp_path / "out.jsonl")!r}, quiet=True)
except KeyboardInterrupt:
    print("heard", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=100, stdout=subprocess.PIPE, text=True)
    assert (done.stdout, done.returncode) == ("heard True\n", 0)


@pytest.mark.parametrize("call, sentence", [
    (lambda: foretoken.Sweep("nowhere.json"), "nowhere.json does not exist"),
    (lambda: foretoken.Sweep({"base": {"foo": 1}, "axes": {}}).run("x.jsonl"), "foo"),
    (lambda: foretoken.Sweep({**RUN, "target": {"model": "nowhere"}}).run("x.jsonl"), "1 of 1 runs cannot be measured"),
    (lambda: foretoken.Sweep(RUN).run("x.jsonl", set={"/engine/bach": 1}), "did you mean '/engine/batch'"),
    (lambda: foretoken.results(), "needs a file"),
    (lambda: foretoken.results("nowhere.jsonl"), "does not exist"),
    (lambda: foretoken.results(ROOT / "experiments/results/cpu/lengths.jsonl.xz", where="/engine/bach=1"), "bach"),
])
def test_bad_input_is_one_sentence(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(foretoken.Error, match=sentence):
        call()


def test_without_pandas_there_is_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(foretoken.Error, match="pip install pandas"):
        foretoken.results(ROOT / "experiments/results/cpu/lengths.jsonl.xz")
    assert foretoken.results(ROOT / "experiments/results/cpu/lengths.jsonl.xz", raw=True)["cells"]


def test_committed_results_are_tables():
    found = foretoken.results(ROOT / "experiments/results/cpu/lengths.jsonl.xz")
    assert len(found) > 3 and {"drafter", "tau", "speedup", "speedup_low"} <= set(found.columns)


def examples():
    return re.findall(r"^```python\n(.*?)^```$", PAGES, re.DOTALL | re.MULTILINE)


def test_the_examples_of_the_pages_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"target": {"model": TARGET}}))
    (tmp_path / "page.py").write_text("")
    names = {}
    for number, example in enumerate(examples()):
        if "Sweep(" in example:  # all of it takes minutes
            example = example.replace('"/workload/limit": 4', '"/workload/limit": 2, "/workload/max_new_tokens": 4, '
                                      '"/measure/seconds": 0.1, "/measure/busy": "accept", "/engine/batch": 2')
        file = tmp_path / f"example{number}.py"  # a file, so that what is registered has a source
        file.write_text(example)
        exec(compile(example, str(file), "exec"), names)
    assert "tau " in capsys.readouterr().out
    assert names["report"].holds
    assert len(names["table"]) >= 2


def test_the_first_example_has_ten_lines():
    assert len([line for line in examples()[0].splitlines() if line.strip()]) <= 10


def test_what_a_component_costs(capsys):
    from foretoken import bench_component
    found = bench_component.main(["--steps", "60", "--device", "cpu"])
    assert set(found) == {1, 64}
    assert found[1][0] < 5000 and found[64][0] < 10000  # loose: other tests run beside it


def test_a_plugin_finds_the_framework_in_the_module(tmp_path):
    build = Path(os.environ["FORETOKEN_BUILD_DIR"])
    source = re.search(r"^```cpp\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[1]
    (tmp_path / "repeat.cpp").write_text(source)
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    subprocess.run([compiler, "-std=c++20", "-O0", "-shared", "-fPIC", "-ffp-contract=off", "-I", ROOT, "-I",
                    ROOT / "framework" / "include", "-I", build / "abi", tmp_path / "repeat.cpp", "-o",
                    tmp_path / "repeat.so"], check=True)
    code = f"""
import foretoken
with foretoken.Engine(target={TARGET!r}, drafter="repeat", plugins=[{str(tmp_path / "repeat.so")!r}]) as engine:
    print(engine.generate("a", max_new_tokens=8).drafted > 0, len(engine.run["plugins"]))
try:
    foretoken.Engine(target={TARGET!r}, plugins=[{__file__!r}])
except foretoken.Error as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said.startswith("True 1\n") and "the plugin " in said
