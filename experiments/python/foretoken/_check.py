"""The laws of correctness on components, those written in Python too."""

import json
import os
import signal
import sys
from dataclasses import dataclass

from . import _core, _documents


@dataclass
class CheckReport:
    """What the laws found."""

    holds: bool
    broken: list  # sentences: laws that are broken, or that were not shown in time
    report: dict  # as `foretoken check --json` prints it

    def __bool__(self):
        return self.holds

    def laws(self) -> dict:
        """The verdicts by law: holds, broken, not shown, does not apply."""
        found = {}
        for law in self.report["laws"]:
            found[law["law"]] = sorted({finding["verdict"] for finding in law["findings"]})
        return found


def _named(given, kind):
    """A config: of a registered class, of a name, or as it is."""
    if given is None:
        return None
    if hasattr(given, "_foretoken"):
        registered, name = given._foretoken
        if registered != kind:
            raise _core.Error(f"'{name}' is a {registered}; give it as {registered}=")
        return {"name": name}
    return _documents.component(given, kind)


def check(component=None, *, drafter=None, policy=None, verifier=None, options=None, laws=(), seconds=0, threads=2,
          must_hold=True) -> CheckReport:
    """Holds a drafter, a policy or a verifier to the laws, as `foretoken check` does.

    `component`: a class that @foretoken.drafter or @foretoken.policy registered; or give names or configs as `drafter`,
    `policy` and `verifier`. `options`: of the component. `laws`: names, else all. `seconds` of a processor (0: 60),
    `threads` processes. Raises foretoken.Error with the first sentence unless all laws hold; with must_hold=False the
    report says so.

    Scenarios run in processes that are forked from this one, so a component that crashes or hangs is reported like
    another; PyTorch should use one thread in them (torch.set_num_threads(1)).
    """
    if component is not None:
        kind = getattr(component, "_foretoken", (None,))[0]
        if kind is None:
            raise _core.Error("check() takes a class that was registered by @foretoken.drafter or @foretoken.policy; "
                              "give others by name, as drafter=")
        drafter, policy = (component, policy) if kind == "drafter" else (drafter, component)
    chosen = {"drafter": _named(drafter, "drafter"), "policy": _named(policy, "policy"),
              "verifier": _named(verifier, "verifier")}
    if options:
        named = [chosen[kind]] if component is not None else [config for config in chosen.values() if config]
        if len(named) != 1:
            raise _core.Error("options= are for one component; write them beside the name of each")
        named[0].update(options)
    texts = [_documents.as_json(config, "the component") for config in chosen.values()]
    answer = _elsewhere(lambda: _core.check(*texts, list(laws), float(seconds), int(threads)))
    report = CheckReport(answer["holds"], answer["broken"], answer)
    if must_hold and not report.holds:
        raise _core.Error(report.broken[0])
    return report


def _elsewhere(call):
    """What a call returns in a process of its own, as a dict: this one goes on to hear Ctrl-C, and need not be alone."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            text = call()
        except BaseException as error:  # noqa: BLE001 (whatever it is, the caller is told)
            text = json.dumps({"error": str(error) or type(error).__name__})
        with os.fdopen(write, "w") as out:
            out.write(text)
        os._exit(0)
    os.close(write)
    try:
        with os.fdopen(read) as answer:
            text = answer.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    status = os.waitpid(child, 0)[1]
    if not text:
        raise _core.Error(f"the process of the check ended with status {status} and no report; try one law at a time, "
                          "with laws=")
    found = json.loads(text)
    if "error" in found:
        raise _core.Error(found["error"])
    return found
