"""Sweeps, and their results as tables."""

import json
from dataclasses import dataclass
from pathlib import Path

from . import _core, _documents


@dataclass
class SweepOutcome:
    """What a sweep has done."""

    path: Path  # of the results
    runs: int
    failed: int  # with an error, failed requests, or outputs that must not differ but do
    refused: int  # by the rehearsal, before anything was measured

    def results(self, **how):
        """foretoken.results() of its file."""
        return results(self.path, **how)


class Sweep:
    """A run, or {"base": run, "axes": {...}}: a dict, or the path of a file."""

    def __init__(self, document):
        self.document, _ = _documents.read(document)
        self._file = "sweep.json" if isinstance(document, dict) else str(_documents.located(document))

    def run(self, out=None, *, set=None, quiet=False, keep_going=False, share_baselines=False) -> SweepOutcome:
        """Measures the runs that the results lack, as `foretoken run` does, in this process: components that were
        registered from Python are measured like others.

        `out`: the file of results (default: results/NAME.jsonl); `set`: {pointer: value}, changes of the run. Ctrl-C
        ends the sweep after the step, keeps what was measured, and raises KeyboardInterrupt; the same call goes on.
        """
        return self._run(out, set, quiet, keep_going, share_baselines, rehearse=False)

    def rehearse(self, out=None, *, set=None) -> SweepOutcome:
        """Only checks the runs, without weights: what speaks against them is told on standard error."""
        return self._run(out, set, True, False, False, rehearse=True)

    def _run(self, out, changed, quiet, keep_going, share_baselines, rehearse):
        path = Path(out) if out is not None else Path("results") / (Path(self._file).stem + ".jsonl")
        settings = [f"{pointer}={_documents.as_json(value, pointer)}" for pointer, value in (changed or {}).items()]
        done = _core.sweep(json.dumps(self.document), self._file, settings, str(path), quiet, keep_going,
                           share_baselines, rehearse)
        if done["interrupted"]:
            raise KeyboardInterrupt
        if done["refused"] and not rehearse and not keep_going:
            raise _core.Error(f"{done['refused']} of {done['runs']} runs cannot be measured, so none was; standard error "
                              "says why, and keep_going=True measures the others")
        return SweepOutcome(path, done["runs"], done["failed"], done["refused"])


def results(*paths, where=(), raw=False):
    """Results as a pandas table: one row for each run, with a column for each figure of `foretoken show --format csv`,
    each axis, and each option of drafter, policy and verifier ("policy.length").

    `paths`: files of results, also compressed; of one run the newest line counts. `where`: "/POINTER=VALUE", only such
    runs. raw=True: the object that `foretoken show --json` prints, which has everything, and needs no pandas.
    """
    if not paths:
        raise _core.Error("results() needs a file of results; Sweep.run() returns its path")
    found = json.loads(_core.results([str(path) for path in paths], [where] if isinstance(where, str) else list(where)))
    if raw:
        return found
    try:
        import pandas
    except ImportError:
        raise _core.Error("results() makes a table of pandas, which is not installed here: pip install pandas, or take "
                          "raw=True") from None
    rows = []
    for cell in found["cells"]:
        axes = {pointer.strip("/").replace("/", "."): value for pointer, value in cell["axes"].items()}
        options = {f"{part}.{name}": value for part in ("drafter", "policy", "verifier")
                   for name, value in cell["run"][part].items()}
        rows.append({**cell["names"], **options, **axes, **cell.get("values", {}), "key": cell["key"]})
    return pandas.DataFrame(rows)
