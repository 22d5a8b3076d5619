"""What tells a component in Python from another of its name, so that no result of the one is taken for the other's."""

import builtins
import hashlib
import inspect
import linecache
import secrets
import types
from pathlib import Path


class _Unknown(Exception):
    """Two that differ could not be told apart."""


def identity(made, stated):
    """The file, and a hash of the text and the code: of a class and all of its bases, of a function its whole file.

    `stated`: what was registered beside it. Where a text is not known, as of what was written in a notebook, the file is
    empty and the hash is that of this registration alone.
    """
    try:
        file = _file(made)
        parts = _Parts()
        parts.of_made(made)
        parts.of_value(stated)
    except _Unknown:
        return "", secrets.token_hex(8)
    return file, parts.digest.hexdigest()[:16]


def _file(made):
    try:
        file = inspect.getsourcefile(made)
    except (OSError, TypeError):
        raise _Unknown from None
    if not file or not Path(file).is_file():
        raise _Unknown
    return file


def _expect_file(function, file):
    """The text of a class is looked for by its name or line in its module's file, also where exec() wrote it elsewhere."""
    if Path(function.__code__.co_filename).name != Path(file).name:
        raise _Unknown


class _Parts:
    """Text alone may be that of a file which was edited since it was read, and code alone lacks what is no function: both
    are hashed, and what functions enclose."""

    def __init__(self):
        self.digest = hashlib.sha256()
        self.seen = set()

    def say(self, *words):
        for word in words:
            text = str(word)
            self.digest.update(f"{len(text)}:{text}".encode(errors="surrogatepass"))

    def of_made(self, made):
        if isinstance(made, type):
            self.of_class(made)
        elif inspect.isfunction(made):
            self.say("file", "".join(linecache.getlines(_file(made))))
            self.of_function(made)
        else:
            raise _Unknown

    def of_class(self, made):
        for cls in made.__mro__:
            if cls in self.seen:
                continue
            self.seen.add(cls)
            if getattr(builtins, cls.__name__, None) is cls:
                self.say("builtin", cls.__name__)
                continue
            try:
                self.say("class", inspect.getsource(cls))
            except (OSError, TypeError):
                raise _Unknown from None
            for name, value in vars(cls).items():
                # Of static and class methods, and of properties.
                value = getattr(value, "__func__", getattr(value, "fget", value))
                if inspect.isfunction(value):
                    if value.__qualname__ == f"{cls.__qualname__}.{name}":
                        _expect_file(inspect.unwrap(value), inspect.getsourcefile(cls))
                    self.say("method", name)
                    self.of_function(value)

    def of_function(self, function):
        if function in self.seen:
            return
        self.seen.add(function)
        self.of_code(function.__code__)
        self.of_value((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                self.say("empty")
            else:
                self.of_value(value)

    def of_code(self, code):
        self.say("code", code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars)
        for constant in code.co_consts:
            self.of_code(constant) if isinstance(constant, types.CodeType) else self.of_value(constant)

    def of_value(self, value):
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes)):
            self.say(type(value).__name__, repr(value))
        elif isinstance(value, types.ModuleType):
            self.say("module", value.__name__)
        elif isinstance(value, (types.BuiltinFunctionType, types.BuiltinMethodType)):
            self.say("builtin", value.__module__, value.__qualname__)
        elif isinstance(value, type):
            self.of_class(value)
        elif inspect.isfunction(value):
            self.of_function(value)
        elif isinstance(value, (tuple, list, dict, set, frozenset)):
            self.of_many(value)
        else:
            raise _Unknown

    def of_many(self, values):
        if id(values) in self.seen:
            return
        if isinstance(values, (list, dict, set)):
            self.seen.add(id(values))  # only these may hold themselves
        self.say(type(values).__name__, len(values))
        if isinstance(values, dict):
            values = [part for item in values.items() for part in item]
        if isinstance(values, (set, frozenset)):
            values = sorted(values, key=repr)
        for value in values:
            self.of_value(value)
