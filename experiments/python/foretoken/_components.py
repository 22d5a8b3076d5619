"""Drafters and length policies written in Python, under the names by which run documents know them."""

import functools
import inspect
import json

from . import _core, _documents, _sources

_TYPES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "list"))


def option(default, meaning="", *, least=None, most=None, type=None):
    """An option of a component: its default (None: none is given unless a user does), what it means, its range, and its
    type where the default does not show it: integer, number, string, boolean, list."""
    if type is None:
        type = next((name for kind, name in _TYPES if isinstance(default, kind)), None)
        if type is None:
            raise _core.Error(f"an option has the default {default!r}, which does not show its type; give type=, one of "
                              "integer, number, string, boolean, list")
    return {"type": type, "standard": default, "meaning": meaning, "optional": default is None, "least": least,
            "most": most}


def _options(given):
    listed = []
    for name, value in (given or {}).items():
        declared = value if isinstance(value, dict) and "standard" in value else option(value)
        listed.append({"name": name, **declared})
    return listed


def _register(kind, name, made, stated, options, examples, summary, source):
    if not isinstance(name, str) or not name:
        raise _core.Error(f"a {kind} is registered under its name, a string, not {name!r}")
    if not callable(made):
        raise _core.Error(f"the {kind} '{name}' is a {type(made).__name__}; register a class, or what makes an object")
    takes_facts = "facts" in inspect.signature(made).parameters

    def make(given, facts):
        arguments = {key: value for key, value in json.loads(given).items() if key != "name"}
        return made(**arguments, **({"facts": json.loads(facts)} if takes_facts else {}))

    def traits(given):
        arguments = {key: value for key, value in json.loads(given).items() if key != "name"}
        return json.dumps({key: value(arguments) if callable(value) else value for key, value in stated.items()})

    file, digest = _sources.identity(made, stated)
    summary = summary or (inspect.getdoc(made) or "").strip().split("\n")[0] or f"a {kind} in Python"
    _core.register(kind, name, summary, source, _documents.as_json(_options(options), f"the options of '{name}'"),
                   _documents.as_json(list(examples), f"the examples of '{name}'"), file, digest, make, traits)
    return made


def register_drafter(name, cls, *, proposes=("certain",), learns=None, ranks=0, hidden=(), options=None, examples=(),
                     summary="", source=""):
    """Registers a drafter for run documents, `{"drafter": {"name": name, ...}}`, and returns the class.

    cls(**options) makes one for each engine; with a parameter `facts` it also gets a dict: vocab, positions and width of
    the target, its name, the device. Its methods:

    draft(batch): called once a step for all sequences. Grows trees by the batch's calls (DraftBatch), or returns
    guesses, integers [requests, length], -1 behind the last of a row. Whether a node exists must be decided before its
    token is drawn. If it raises, it is called again for each request alone, and those for which it raises again fail.

    observe(outcomes): what became of the trees of a step (OutcomeBatch); observe_step(step): its counts and times
    (StepBatch); forget(id, running): the sequence has ended, or where `running` was preempted; notice(): a sentence for
    the user. All of these may be left out.

    `proposes`: kinds of nodes, of certain (guesses), chain, independent, without_replacement, marginals. `learns`:
    whether drafts may depend on more than their own request (default: whether it observes anything). `ranks`: how many
    of the target's most probable tokens observe() sees after each node. `hidden`: points of the target's residual stream
    that draft() reads, the number of layers below them. `options`: {name: default or option(...)}. `examples`: options
    to check it with. Each trait may be a function of the options.
    """
    if learns is None:
        learns = any(hasattr(cls, method) for method in ("observe", "observe_step"))
    stated = {"proposes": proposes if callable(proposes) else list(proposes), "learns": learns, "ranks": ranks,
              "hidden": hidden if callable(hidden) else list(hidden)}
    return _register("drafter", name, cls, stated, options, examples, summary, source)


def register_policy(name, cls, *, depth, nodes=None, learns=None, options=None, examples=(), summary="", source=""):
    """Registers a length policy, `{"policy": {"name": name, ...}}`, and returns the class.

    budgets(batch): called once a step (PolicyBatch). Returns the length of a chain for each sequence, integers
    [sequences], or nodes (the root among them) and levels, [sequences, 2]. observe(step): counts and times of a step
    (StepBatch); forget(id). Both may be left out.

    `depth`, `nodes`: the most levels and nodes that it ever asks for (nodes: depth + 1 where left out); `learns`:
    whether budgets depend on other sequences, or on times (default: whether it observes). Each may be a function of the
    options.
    """
    stated = {"depth": depth, "learns": hasattr(cls, "observe") if learns is None else learns}
    if nodes is not None:
        stated["nodes"] = nodes
    return _register("policy", name, cls, stated, options, examples, summary, source)


def drafter(name, **how):
    """register_drafter() as a decorator of the class."""
    return functools.partial(_decorated, register_drafter, name, how)


def policy(name, **how):
    """register_policy() as a decorator of the class."""
    return functools.partial(_decorated, register_policy, name, how)


def _decorated(register, name, how, cls):
    cls = register(name, cls, **how)
    try:
        cls._foretoken = ("drafter" if register is register_drafter else "policy", name)  # for check()
    except AttributeError:
        pass  # what is no class
    return cls
