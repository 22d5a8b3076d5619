"""Where a slip can be planted: expressions and statements of one file, found by libclang, and their replacements."""

import re
import subprocess
from dataclasses import dataclass
from functools import cache

from clang.cindex import CursorKind as K
from clang.cindex import Index, TranslationUnit, TypeKind

COMPARISONS = {b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">", b"==": b"!=", b"!=": b"=="}
OPERATORS = {b"&&": b"||", b"||": b"&&", b"+": b"-", b"-": b"+", b"*": b"+", b"/": b"*", b"%": b"/", b"&": b"|",
             b"|": b"&", b"^": b"|", b"<<": b">>", b">>": b"<<", b"+=": b"-=", b"-=": b"+=", b"*=": b"+=",
             b"|=": b"&=", b"&=": b"|=", b"++": b"--", b"--": b"++"}
NAMES = {b"std::min(": b"std::max(", b"std::max(": b"std::min(", b"add(": b"mul(", b"mul(": b"add("}
SYMMETRIC = {"min", "max", "add", "mul", "swap"}
# Constants of the compiler have no switch, and messages are for readers: nothing is planted in them.
CLOSED = {K.CXX_THROW_EXPR, K.STATIC_ASSERT, K.ENUM_DECL, K.PARM_DECL, K.CXX_UNARY_EXPR, K.DECL_REF_EXPR, K.TYPE_REF,
          K.TEMPLATE_REF, K.NAMESPACE_REF, K.TEMPLATE_TYPE_PARAMETER, K.TEMPLATE_NON_TYPE_PARAMETER, K.CONCEPT_DECL,
          K.TYPE_ALIAS_DECL, K.USING_DECLARATION, K.FRIEND_DECL}
BODY_LAST = {K.FOR_STMT, K.WHILE_STMT, K.CXX_FOR_RANGE_STMT, K.DO_STMT}
COMMON = ("algorithm", "array", "chrono", "cmath", "cstdint", "filesystem", "fstream", "functional", "map", "memory",
          "numeric", "optional", "set", "span", "sstream", "string", "thread", "vector", "nlohmann/json.hpp")
UNTOUCHED = re.compile(rb"//|#|\b[A-Z][A-Z0-9_]{3,}\b")  # comments, directives and macros
SPEED = re.compile(rb"\b(reserve|read_soon|shrink_to_fit)\([^;]*\)$")  # without these calls it is slower, not wrong
LONGEST = 600  # bytes of what one slip replaces


@dataclass
class Site:
    kind: str
    edits: list  # (begin, end, replacement); `%N` in a replacement is where the number of the slip goes
    says: str

    def span(self):
        return self.edits[0][0], self.edits[-1][1]


@cache
def parser_flags():
    for compiler, flags in (("clang++-19", ["-print-resource-dir"]), ("clang++", ["-print-resource-dir"])):
        try:
            said = subprocess.run([compiler, *flags], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
            return ("-resource-dir", said)
        except (OSError, subprocess.CalledProcessError):
            continue
    said = subprocess.run(["g++", "-print-file-name=include"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return ("-isystem", said.strip())


def precompile(path, flags):
    """Writes to `path` what most files include, which takes most of a parser's time."""
    header = path.with_suffix(".h")
    header.write_text("".join(f"#include <{name}>\n" for name in COMMON))
    unit = Index.create().parse(str(header), ["-x", "c++-header", "-std=c++20", *flags, *parser_flags()],
                                options=TranslationUnit.PARSE_INCOMPLETE)
    unit.save(str(path))


def vast(literal):
    """Whether one more is the same number."""
    try:
        x = float(literal.rstrip(b"fFlL").replace(b"'", b""))
    except ValueError:  # in hexadecimal
        return False
    return x + 1 == x


class Finder:
    """Collects the sites of one file. `text` is the file's bytes, to which all offsets refer."""

    def __init__(self, path, flags, random):
        self.path, self.random, self.sites = str(path), random, []
        self.text = path.read_bytes()
        unit = Index.create().parse(self.path, ["-x", "c++", "-std=c++20", *flags, *parser_flags()])
        self.errors = [d.spelling for d in unit.diagnostics if d.severity >= 3 and "__va_list_tag" not in d.spelling]
        for c in unit.cursor.get_children():
            if c.location.file and c.location.file.name == self.path:
                self.walk(c, None, False)

    def source(self, node):
        return self.text[node.extent.start.offset:node.extent.end.offset]

    def add(self, kind, edits, says):
        begin, end = edits[0][0], edits[-1][1]
        whole = self.text[begin:end]
        if end - begin > LONGEST or UNTOUCHED.search(whole) or any(e <= b for b, e, _ in edits):
            return
        self.sites.append(Site(kind, edits, " ".join(says.decode().split())))

    def either(self, kind, node, other):
        """`other` in place of an expression."""
        was = self.source(node)
        flat = b" ".join(other.split())
        self.add(kind, [(node.extent.start.offset, node.extent.end.offset,
                         b"(::mutation::on(%N) ? (" + flat + b") : (" + was + b"))")], was + b"  ->  " + other)

    def drop(self, node):
        was = self.source(node)
        if SPEED.search(was):
            return
        self.add("dropped", [(node.extent.start.offset, node.extent.end.offset,
                              b"(::mutation::on(%N) ? void() : void(" + was + b"))")], was + b"  ->  dropped")

    def walk(self, node, parent, statement):
        if node.kind in CLOSED:
            return
        children = self.open_children(node)
        if statement and node.kind in (K.UNEXPOSED_EXPR, K.PAREN_EXPR) and len(children) == 1:
            return self.walk(children[0], node, True)
        self.visit(node, parent, statement, children)
        comma = node.kind == K.BINARY_OPERATOR and len(children) == 2 and self.between(children) == b","
        expressions = [i for i, c in enumerate(children) if c.kind.is_expression()]
        for i, child in enumerate(children):
            stands = node.kind == K.COMPOUND_STMT or (statement and comma)
            stands = stands or (node.kind in BODY_LAST and i == len(children) - 1)
            stands = stands or (node.kind == K.IF_STMT and bool(expressions) and i > expressions[0])
            self.walk(child, node, stands)

    def open_children(self, node):
        """The children in which something can be planted."""
        children = list(node.get_children())
        if node.kind in (K.VAR_DECL, K.FIELD_DECL):
            before = self.text[:node.location.offset]  # of a second declarator too, which begins at its own name
            before = before[max(before.rfind(mark) for mark in (b";", b"{\n", b"}\n", b"\n\n")):]
            if b"constexpr" in before or node.is_bitfield():
                return []
            array = node.type.get_canonical().kind in (TypeKind.CONSTANTARRAY, TypeKind.DEPENDENTSIZEDARRAY)
            children = [c for c in children if c.extent.start.offset > node.location.offset
                        and not (array and c.kind in (K.INTEGER_LITERAL, K.UNEXPOSED_EXPR, K.BINARY_OPERATOR))]
        elif node.kind == K.MEMBER_REF_EXPR:
            children = children[:1]
        elif node.kind == K.CASE_STMT:
            children = children[1:]
        elif node.kind == K.IF_STMT and self.source(node).startswith(b"if constexpr"):
            children = children[1:]
        return [c for c in children if c.extent.end.offset > c.extent.start.offset]

    def between(self, pair):
        return self.text[pair[0].extent.end.offset:pair[1].extent.start.offset].strip()

    def visit(self, node, parent, statement, children):
        kind, was = node.kind, self.source(node)
        if kind in (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
            self.binary(node, statement, children)
        elif kind == K.UNARY_OPERATOR:
            if statement:
                self.drop(node)
            elif was.startswith(b"!"):
                self.either("operator", node, was[1:])
            elif was.startswith(b"-") and not was.startswith(b"--"):
                self.either("operator", node, was[1:])
        elif kind == K.CALL_EXPR:
            self.call(node, statement, was)
        elif kind in (K.INTEGER_LITERAL, K.FLOATING_LITERAL):
            self.literal(node, parent, was)
        elif kind == K.CXX_BOOL_LITERAL_EXPR:
            self.either("operator", node, b"false" if was == b"true" else b"true")
        if kind in (K.IF_STMT, K.CONDITIONAL_OPERATOR) and not was.startswith(b"if constexpr"):
            condition = next((c for c in children if c.kind.is_expression()), None)
            if condition is not None:
                self.either("condition", condition, self.random.choice((b"true", b"false")))

    def binary(self, node, statement, children):
        operator = self.between(children)
        if operator in COMPARISONS or operator in OPERATORS:
            kind = "bound" if operator in COMPARISONS else "operator"
            other = COMPARISONS.get(operator) or OPERATORS[operator]
            self.either(kind, node, self.source(children[0]) + b" " + other + b" " + self.source(children[1]))
        if statement and operator.endswith(b"=") and operator not in COMPARISONS:
            self.drop(node)

    def literal(self, node, parent, was):
        listed = parent is not None and parent.kind == K.UNEXPOSED_EXPR  # in braces a conversion would narrow
        follows = self.text[node.extent.end.offset:].lstrip()[:1]
        before = self.text[:node.extent.start.offset].rstrip()[-1:]
        pointer = listed and parent.type.get_canonical().kind in (TypeKind.POINTER, TypeKind.NULLPTR)
        if pointer or vast(was) or follows == b">" or (listed and before in b"{,") or before == b"<":
            return
        step = b" + 1" if was[:1] == b"0" or node.kind == K.FLOATING_LITERAL else self.random.choice((b" + 1", b" - 1"))
        self.either("off by one", node, was + step)

    def call(self, node, statement, was):
        if statement:
            self.drop(node)
        for name, other in NAMES.items():
            if was.startswith(name):
                self.either("operator", node, other + was[len(name):])
        overloaded = node.spelling.startswith("operator") and node.spelling != "operator()"
        if overloaded or node.spelling in SYMMETRIC or was.startswith(tuple(NAMES)):
            return
        arguments = [a for a in node.get_arguments() if a is not None and a.extent.end.offset > a.extent.start.offset]
        for a, b in zip(arguments, arguments[1:]):
            left, right = self.source(a), self.source(b)
            same = a.type.get_canonical().spelling == b.type.get_canonical().spelling
            if same and left != right and b"{" not in (left + right)[:1] and self.between((a, b)) == b",":
                swap = [(one.extent.start.offset, one.extent.end.offset, b"(::mutation::on(%N) ? ("
                         + b" ".join(other.split()) + b") : (" + own + b"))")
                        for one, own, other in ((a, left, right), (b, right, left))]
                name = node.spelling.encode() or b"call"
                self.add("swapped", swap, name + b": " + left + b", " + right + b"  ->  " + right + b", " + left)


def find(path, flags, random):
    """(sites, errors of the parser) of a file."""
    finder = Finder(path, flags, random)
    unique = {(s.kind, s.span()): s for s in finder.sites}
    return list(unique.values()), finder.errors
