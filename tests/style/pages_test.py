"""Links of the pages lead to files and headings that are there, and the first pages stay short."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sources import ROOT, files

LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text):
    """Without what is code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def anchor(heading):
    """As GitHub makes it of a heading."""
    said = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", said).replace(" ", "-")


def anchors(text):
    fenced = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", fenced, re.MULTILINE)}


def broken(page, text):
    """The links of a page to files or headings that are not there."""
    found = []
    for link in LINK.findall(prose(text)):
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"https?://", link):
            continue
        if not target.exists():
            found.append(link)
        elif heading and target.suffix == ".md":
            if heading not in anchors(text if target == page else target.read_text()):
                found.append(link)
    return found


class Pages(unittest.TestCase):
    def test_the_first_pages_are_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().split()), 1200, "words of README.md")
        guide = (ROOT / "experiments" / "README.md").read_text()
        self.assertLessEqual(guide.count("\n"), 300, "lines of experiments/README.md")

    def test_links_lead_somewhere(self):
        pages = [page for page in files() if page.suffix == ".md" and "data" not in page.relative_to(ROOT).parts]
        self.assertGreater(len(pages), 15)
        for page in pages:
            with self.subTest(str(page.relative_to(ROOT))):
                self.assertEqual(broken(page, page.read_text()), [])

    def test_what_leads_nowhere_is_found(self):
        page = ROOT / "README.md"
        text = "# A `b`, c\n[1](#a-b-c) [2](CONTRIBUTING.md#style) [3](https://x.y/z)\n```\n# no\n[4](none)\n```\n"
        self.assertEqual(broken(page, text), [])
        for link in ("none.md", "#no", "CONTRIBUTING.md#none", "drafters/none"):
            self.assertEqual(broken(page, f"{text}[5]({link})\n"), [link])


if __name__ == "__main__":
    unittest.main()
