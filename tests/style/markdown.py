"""Lines of Markdown: at most 120 columns, apart from tables, code blocks, headings and words that cannot break.

usage: python3 tests/style/markdown.py FILE...    wraps the paragraphs and list items of files, and changes nothing else
"""

import re
import sys
from pathlib import Path

COLUMNS = 120
# Code and links stay whole; the rest breaks at blanks.
WORD = re.compile(r"(?:`+[^`]*`+|!?\[[^\]]*\]\([^)\s]*\)|[^\s`\[]|[`\[])+")
ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)")
# A line that opens so would be something else than the paragraph that it continues.
OPENS = re.compile(r"([-*+]|\d+[.)]|#+|>|\||```|~~~|=+|-+)$")


def blocks(text):
    """The lines of a text as ("fixed", [line]) and ("prose", [lines of one paragraph or list item])."""
    fence = None
    prose = []
    for line in text.split("\n"):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence is None and mark is None:
            item = ITEM.match(line)
            fixed = not line.strip() or re.match(r"\s*(\||#|<|\[[^\]]+\]:)", line)
            fixed = fixed or (not prose and not item and line.startswith("    "))  # indented code
            if not fixed:
                if item and prose:
                    yield "prose", prose
                    prose = []
                prose.append(line)
                continue
        if prose:
            yield "prose", prose
            prose = []
        yield "fixed", [line]
        if mark:
            fence = None if fence and mark[1].startswith(fence) else fence or mark[1]
    if prose:
        yield "prose", prose


def wrapped(lines):
    item = ITEM.match(lines[0])
    first = item[0] if item else re.match(r"\s*", lines[0])[0]
    rest = " " * len(first)
    found, line, bare = [], first, True
    for word in WORD.findall(" ".join([lines[0][len(first):], *lines[1:]])):
        if not bare and len(line) + 1 + len(word) > COLUMNS and not OPENS.match(word):
            found.append(line)
            line, bare = rest, True
        line, bare = line + ("" if bare else " ") + word, False
    return [*found, line]


def wrap(text):
    found = []
    for kind, lines in blocks(text):
        found += wrapped(lines) if kind == "prose" and max(map(len, lines)) > COLUMNS else lines
    return "\n".join(found)


def too_long(text):
    """The numbers of the lines that are longer than they need be."""
    found, number = [], 0
    for kind, lines in blocks(text):
        for line in lines:
            number += 1
            if kind == "prose" and len(line) > COLUMNS and wrapped([line]) != [line]:
                found.append(number)
    return found


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(wrap(path.read_text()))
