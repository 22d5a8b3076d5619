"""Output to a terminal: no control characters from values, lines that fit. Without a terminal nothing is cut."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODELS = SOURCE / "experiments" / "models"
sys.path.insert(0, str(SOURCE / "experiments"))
from committed_results import file_of, lines_of  # noqa: E402

RESULTS, WIDE = file_of("cpu/quickstart"), file_of("h200/inflated")
# Clears the screen, sets a title, 8-bit control sequence introducer, reversed text; a line break and a return.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202ereversed\r\nnext"
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# The progress line, colours of generate, line ends of the terminal.
OURS = ("\r\x1b[K", "\x1b[32;4m", "\x1b[0m", "\r\n")


class Terminal(InFolder):
    def on_terminal(self, *arguments, columns=100):
        """All output of the program to a terminal of so many columns."""
        try:
            terminal, end = pty.openpty()
        except OSError as e:
            self.skipTest(f"no terminal can be opened here: {e}")
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)], cwd=self.here, stdin=subprocess.DEVNULL, stdout=end, stderr=end
        )
        os.close(end)
        written = b""
        while True:
            try:
                if not select.select([terminal], [], [], 120)[0]:
                    process.kill()
                    self.fail(f"{arguments} hangs")
                part = os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                part = b""
            if not part:
                break
            written += part
        os.close(terminal)
        process.wait()
        return written.decode(errors="surrogateescape")

    def piped(self, *arguments):
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)], cwd=self.here, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
        return done.stdout.decode(), done.stderr.decode()

    def expect_no_control(self, written, holding=""):
        for ours in OURS:
            written = written.replace(ours, "")
        found = CONTROL.search(written)
        self.assertIsNone(found, f"{written[:found.end() + 200] if found else ''!r}")
        self.assertIn(holding, written)

    def keyed(self, line):
        """A result whose run was changed, with the key of that run, as the refusal of another key names it."""
        probe = self.here / "probe.jsonl"
        probe.write_text(json.dumps({**line, "key": "0"}) + "\n")
        refusal = self.piped("show", probe)[1]
        return {**line, "key": re.search(r'that of its run is "([0-9a-f]{16})"', refusal)[1]}

    def hostile_results(self):
        lines = [json.loads(line) for line in lines_of(RESULTS)[:4]]
        for line, name in zip(lines, (HOSTILE, "b", "c", "d")):
            line["run"]["drafter"] = {"name": name}
            line["run"]["target"]["model"] = f"{name}/model"
            line["machine"]["cpu"] = line["commit"] = line["promise"] = HOSTILE
        lines[3].update(repeats=[], error=f"because {HOSTILE}")
        lines = [self.keyed(line) for line in lines]
        path = self.here / "results.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def test_tables_show_control_characters(self):
        results = self.hostile_results()
        for form in ("terminal", "markdown"):
            out, err = self.piped("show", results, "--format", form)
            self.expect_no_control(out + err, "\\u001b[2J")
            self.expect_no_control(self.on_terminal("show", results, "--format", form), "\\u001b[2J")
            out, err = self.piped("compare", results, results, "--format", form)
            self.expect_no_control(out + err, "\\u001b[2J")
        for form in ("csv", "json"):  # for programs: unchanged in a file, escaped on a terminal
            self.expect_no_control(self.on_terminal("show", results, "--format", form), "\\u001b[2J")
        self.assertIn("\x1b[2J", self.piped("show", results, "--format", "csv")[0])
        self.assertIn(HOSTILE, {cell["run"]["drafter"]["name"] for cell in
                                json.loads(self.piped("show", results, "--json")[0])["cells"]})

    def test_sentences_show_control_characters(self):
        name = HOSTILE.replace("/", "")
        (self.here / f"{name}.json").write_text(json.dumps({"base": {"target": {"model": f"x{HOSTILE}"}}, "axes": {}}))
        for arguments in ([name], ["show", f"--{name}"], ["show", f"{name}.jsonl"], ["run", f"{name}.json"],
                          ["run", "none.json", "--set", name], ["generate", "--model", name, "--prompt", "x"],
                          ["check", "--drafter", name], ["check", "--laws", name], ["list", "--plugin", f"./{name}"]):
            with self.subTest(str(arguments)):
                out, err = self.piped(*arguments)
                self.assertEqual((out, err.count("\n")), ("", 1), err)
                self.expect_no_control(err, "foretoken: ")
                self.expect_no_control(self.on_terminal(*arguments), "foretoken: ")

    def test_generated_text_shows_control_characters(self):
        """A model that writes only the escape character: byte-level BPE has a token for each byte."""
        escape = json.loads((MODELS / "draft" / "tokenizer.json").read_text())["model"]["vocab"]["\u011b"]
        command = ["generate", "--model", MODELS / "draft", "--device", "cpu", "--prompt", "x", "--max-new-tokens", "3",
                   "--logit-bias", f"{escape}=100"]
        self.assertEqual(self.piped(*command)[0], "\x1b\x1b\x1b\n")
        self.expect_no_control(self.on_terminal(*command), "\\u001b\\u001b\\u001b")

    def run_document(self, **changes):
        base = {"target": {"model": str(MODELS / "draft")}, "drafter": {"name": "ngram"},
                "engine": {"batch": 1, "device": "cpu", "threads": 1},
                "workload": {"prompts": str(SOURCE / "experiments" / "prompts.jsonl"), "limit": 2, "max_new_tokens": 2},
                "measure": {"repeats": 1, "warmup": False}}
        (self.here / "run.json").write_text(json.dumps({"base": {**base, **changes},
                                                        "axes": {"/sampling/seed": list(range(3))}}))
        return self.here / "run.json"

    def test_progress_fits_a_narrow_terminal(self):
        for columns in (24, 50, 120):
            (self.here / "results" / "run.jsonl").unlink(missing_ok=True)
            written = self.on_terminal("run", self.run_document(), "--format", "json", columns=columns)
            lines = [part.split("\r\n")[0] for part in written.split("\r\x1b[K")]
            lines = [line for line in lines if re.search(r" \d/3", line)]
            self.assertTrue(lines, written[:500])
            self.assertLess(max(map(len, lines)), columns, lines)
            if columns != 50:
                self.assertEqual("░" in lines[0], columns == 120, lines)

    def test_runs_that_fail_show_control_characters(self):
        document = self.run_document(workload={"prompts": f"none{HOSTILE}.jsonl", "max_new_tokens": 2})
        self.expect_no_control(self.on_terminal("run", document), "\\u001b[2J")

    def test_tables_say_which_rows_lose(self):
        """In full if piped; on a narrow terminal other columns are cut."""
        cells = json.loads(self.piped("show", WIDE, "--json")[0])["cells"]
        losing = sum(cell["figures"]["speedup"]["high"] < 1 for cell in cells)
        self.assertGreater(losing, 0)
        piped = self.piped("show", WIDE, "--tables", "main")[0]
        self.assertNotIn("…", piped)
        for text in (piped, self.on_terminal("show", WIDE, "--tables", "main", columns=90)):
            rows = [line.rstrip() for line in text.splitlines() if re.match(r"\S.*\d \[\d+\.\d", line)]
            self.assertEqual((len(rows), sum(", loses" in row for row in rows)), (len(cells), losing), rows[:3])


if __name__ == "__main__":
    unittest.main()
