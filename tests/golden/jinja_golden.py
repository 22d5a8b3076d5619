"""Texts of chat templates: what Python's jinja2 makes of the templates in tests/data/chat, which are of our own making,
and of short ones that use every construct. `pip install jinja2`; where Transformers is installed too, its own renderer
must give the same."""

import copy
import datetime
import importlib.util
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

DATE = datetime.datetime(2024, 7, 26)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment(date: datetime.datetime = DATE) -> jinja2.Environment:
    """As Transformers has it (apply_chat_template), but with a date that stays."""

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson

    class Namespace(jinja2.utils.Namespace):
        def __setitem__(self, name, value):
            if name.startswith("_"):
                raise jinja2.exceptions.SecurityError(name)
            super().__setitem__(name, value)

    env.globals.update(namespace=Namespace, raise_exception=raise_exception, strftime_now=date.strftime)
    return env


def rendered(template: str, variables: dict) -> dict:
    try:
        return {"text": environment().from_string(template).render(**variables)}
    except Exception as e:  # whatever Python raises
        return {"error": f"{type(e).__name__}: {e}"}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather\nof a place",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "a \"caf\u00e9\" <b> & 'more'"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "when": {"type": ["string", "null"]},
                },
                "required": ["place"],
            },
            "return": {"type": "number", "least": -1.5e-7},
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]
USER = {"role": "user", "content": "  What's in C:\\temp?\n\u4f60\u597d \U0001f600 "}
SYSTEM = {"role": "system", "content": " Be brief.\nUse 'quotes'. "}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nNothing. "}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call_1", "function": {"name": "weather", "arguments": {"place": "Z\u00fcrich", "days": [1, 2]}}}
    ],
}
RESULT = {"role": "tool", "content": '{"degrees": 21.5}'}
SKIP = {"role": "skip", "content": "no"}
CHILDREN = {"role": "user", "content": "tree", "children": [{"role": "leaf", "content": "one"}, SKIP, ANSWER]}

CONVERSATIONS = {
    "user": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [USER, ANSWER, USER]},
    "system and turns": {"messages": [SYSTEM, USER, ANSWER, USER, ANSWER, USER]},
    "answered": {"messages": [USER, ANSWER], "add_generation_prompt": False},
    "tools": {"messages": [SYSTEM, USER], "tools": TOOLS},
    "calls": {"messages": [USER, CALL, RESULT, RESULT, ANSWER, USER], "tools": TOOLS},
    "no thoughts": {"messages": [USER], "enable_thinking": False},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]},
    "tree": {"messages": [CHILDREN, SKIP, USER, {"role": "end", "content": ""}, USER]},
    "two users": {"messages": [USER, USER]},
}
BASE = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}

VALUES = {
    "n": None,
    "t": True,
    "i": 7,
    "f": 2.5,
    "s": "Hello, W\u00f6rld! It's",
    "l": [3, 1, 2],
    "e": [],
    "d": {"b": 2, "a": 1, "items": 9},
    "u": [{"name": "Zoe", "age": 3, "in": {"x": 1}}, {"name": "adam", "age": 30}, {"name": "Bob", "age": 3}],
    "w": " \t padded \n",
}


def differences_from_transformers(golden: dict, folder: pathlib.Path) -> list:
    """Of its own renderer (chat_template_utils), with the same date."""
    from transformers.utils import chat_template_utils

    class Day(datetime.datetime):
        @classmethod
        def now(cls):
            return DATE

    chat_template_utils.datetime = Day

    def text(template: str, variables: dict) -> str | None:
        try:
            return chat_template_utils._compile_jinja_template(template).render(**copy.deepcopy(variables))
        except Exception:
            return None

    cases = [(c, (folder / c["template"]).read_text(), c["variables"]) for c in golden["chats"]]
    cases += [(c, c["template"], golden["values"]) for c in golden["expressions"]]
    return [case for case, template, variables in cases if text(template, variables) != case.get("text")]


def write_golden(folder: pathlib.Path) -> None:
    chats = []
    for path in sorted(folder.glob("*.jinja")):
        for name, variables in CONVERSATIONS.items():
            case = {"template": path.name, "conversation": name, "variables": BASE | variables}
            chats.append(case | rendered(path.read_text(), case["variables"]))
    lines = (folder / "expressions.txt").read_text().splitlines()
    short = [{"template": json.loads(line)} for line in lines if line.strip() and not line.startswith("//")]
    for case in short:
        case.update(rendered(case["template"], copy.deepcopy(VALUES)))
    golden = {"chats": chats, "values": VALUES, "expressions": short}
    (folder / "jinja.golden.json").write_text(json.dumps(golden, ensure_ascii=True, indent=0) + "\n")


if __name__ == "__main__":
    chats = pathlib.Path(__file__).parent.parent / "data" / "chat"
    write_golden(chats)
    if importlib.util.find_spec("transformers"):
        found = differences_from_transformers(json.loads((chats / "jinja.golden.json").read_text()), chats)
        assert not found, found
