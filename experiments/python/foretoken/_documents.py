"""Run documents as Python gives them: dicts, files, and the short forms of what is given most."""

import json
from pathlib import Path

from . import _core

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
            "logit_bias", "response_format", "seed", "samples", "logprobs", "warped_logprobs")
WORKLOAD = ("max_new_tokens", "stop", "ignore_eos", "chat", "system", "date")


def as_json(document, what):
    """The text of a document; what JSON has no form for is an Error."""
    try:
        return json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _core.Error(f"{what} has a value that JSON has no form for ({error}); give numbers, strings, lists and "
                          "dicts") from None


def read(document):
    """A document that is a dict, or a file's: the dict, and the folder that its paths may lie beside."""
    if document is None:
        return {}, ""
    if isinstance(document, dict):
        return json.loads(as_json(document, "the document")), ""
    if not isinstance(document, (str, Path)):
        raise _core.Error(f"a document is a dict or the path of a JSON file, not a {type(document).__name__}")
    path = located(document)
    return json.loads(_core.read_document(str(path))), str(path.parent)


def located(path):
    """As given, or below the checkout that the package was built from, as paths in documents are looked for."""
    below = Path(_core.source_directory) / path
    return below if not Path(path).exists() and below.exists() else Path(path)


def component(given, what):
    """{"name": ..., options}; a name stands for that with its defaults."""
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, dict):
        return given
    raise _core.Error(f"the {what} is a {type(given).__name__}; give its name, or a dict with \"name\" and options")


def put(document, key, given):
    """Puts what was given in the place of the document's own; of dicts key by key."""
    if isinstance(given, dict) and isinstance(document.get(key), dict) and "name" not in given:
        document[key] = {**document[key], **given}
    else:
        document[key] = given


def changes(given):
    """Sampling and workload options of one call, as changes of a run. None: not given."""
    patch = {"sampling": {}, "workload": {}}
    for name, value in given.items():
        if name in WORKLOAD:
            patch["workload"][name] = [value] if name == "stop" and isinstance(value, str) else value
        elif name in SAMPLING:
            patch["sampling"][name] = value
        else:
            raise _core.Error(f"a call has no option '{name}'; it has {', '.join(SAMPLING + WORKLOAD)}")
    if isinstance(patch["sampling"].get("logit_bias"), dict):
        patch["sampling"]["logit_bias"] = {str(k): v for k, v in patch["sampling"]["logit_bias"].items()}
    return patch
