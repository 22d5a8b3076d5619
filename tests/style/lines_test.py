"""No line is longer than 120 columns, apart from what cannot break: string literals; in Markdown tables, code and links."""

import io
import re
import sys
import tokenize
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import markdown
from sources import CODE, ROOT, files

COLUMNS = 120
SCRIPTS = ("foretoken", "run", "CMakeLists.txt")  # by name; the rest by how their names end
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|R"\(.*?\)"')


def quoted(line):
    """Whether a string literal of a line reaches beyond the columns."""
    return any(literal.start() < COLUMNS < literal.end() for literal in QUOTED.finditer(line))


def python_strings(text):
    """The numbers of the lines of which a string literal reaches beyond the columns."""
    found = set()
    middles = {getattr(tokenize, name, None) for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING or token.type in middles:
            (first, start), (last, end) = token.start, token.end
            found |= {line for line in range(first, last) if line > first or start < COLUMNS}
            if end > COLUMNS and (first < last or start < COLUMNS):
                found.add(last)
    return found


def long_lines(path, text):
    if path.suffix == ".md":
        return markdown.too_long(text)
    python = path.suffix == ".py" or text.startswith("#!/usr/bin/env python3")
    strings = python_strings(text) if python else ()
    return [number for number, line in enumerate(text.split("\n"), 1)
            if len(line) > COLUMNS and number not in strings and not (not python and quoted(line))]


def written_by_hand(path):
    if path.suffix in (*CODE, ".py", ".md", ".cmake", ".in") or path.name in SCRIPTS:
        return "data" not in path.relative_to(ROOT).parts
    return False


class Lines(unittest.TestCase):
    def test_no_line_is_longer_than_120_columns(self):
        seen = [path for path in files() if written_by_hand(path)]
        self.assertGreater(len(seen), 300)
        for path in seen:
            with self.subTest(str(path.relative_to(ROOT))):
                hint = ("; python3 tests/style/markdown.py FILE wraps it" if path.suffix == ".md" else "")
                self.assertEqual(long_lines(path, path.read_text()), [], f"lines longer than {COLUMNS}{hint}")

    def test_what_cannot_break_may_be_longer(self):
        word, blanks = "x" * 130, " " * 100
        for name, text in (("a.md", f"see\n{word}"), ("a.md", f"- [{word} y](z)"), ("a.md", f"| {'a ' * 99} |"),
                           ("a.md", f"```\n{'a ' * 99}\n```"), ("a.md", f"Code:\n\n    {'a ' * 99}\n"),
                           ("a.cpp", f'{blanks}f("{word}");'), ("CMakeLists.txt", f'message("{word}")'),
                           ("a.py", f'f("{word}")'), ("a.py", f'f(f"{word}{{1}}")'), ("a.py", f'"""\n{word}\n"""')):
            self.assertEqual(long_lines(Path(name), text), [], (name, text))

    def test_what_can_break_may_not(self):
        words = "word " * 30
        for name, text, lines in (("a.md", f"# T\n\n{words}", [3]), ("a.md", f"- a\n- {words}", [2]),
                                  ("a.md", f"```\n{words}\n```\n{words}", [4]), ("a.cpp", f"int x;  // {words}", [1]),
                                  ("a.cpp", f"f({words})", [1]),
                                  ("a.cpp", f'f("short"); {words}', [1]), ("a.py", f"f()  # {words}", [1]),
                                  ("a.py", f'f("short", {"a, " * 50})', [1]), ("a.cmake", f"set(A {words})", [1])):
            self.assertEqual(long_lines(Path(name), text), lines, (name, text))

    def test_wrapped_markdown_says_the_same(self):
        words = " ".join(f"word{i}" for i in range(60))
        text = f"# Title\n\n{words}\n- {words} `code that stays whole` 1. - {words}\n  more\n\n| {words} |\n\n```\n{words}\n```\n"
        wrapped = markdown.wrap(text)
        self.assertEqual(wrapped.split(), text.split())
        self.assertEqual(markdown.wrap(wrapped), wrapped)
        self.assertEqual(markdown.too_long(wrapped), [])
        self.assertIn("`code that stays whole`", wrapped)
        self.assertEqual([line[:7] for line in wrapped.split("\n") if line.startswith(("- ", "1."))], ["- word0"])
        self.assertLessEqual({line[:2] for line in wrapped.split("\n")[4:9]}, {"- ", "  ", "wo"})


if __name__ == "__main__":
    unittest.main()
