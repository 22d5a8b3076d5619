"""`foretoken report`: the page of a sweep, its scripts in Node.js and in a browser, and the runs that it repeats. What
needs Node.js or Chromium is skipped where that is missing."""

import json
import os
import re
import shutil
import subprocess
import unittest
import urllib.parse
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
NODE = shutil.which("node")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SWEEP = {"base": {"target": {"model": "experiments/models/target"},
                  "engine": {"batch": 1, "device": "cpu", "threads": 1},
                  "workload": {"prompts": "experiments/prompts.jsonl", "limit": 4, "max_new_tokens": 8},
                  "measure": {"repeats": 2, "warmup": False}},
         "axes": {"/drafter": [{"name": "draft_model", "model": "experiments/models/draft"}, {"name": "ngram"}],
                  "/policy/length": [1, 4]}}
NASTY = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"

# What a reader does: sorts the first table by its second column, twice; narrows the page to one length; goes to the
# first point of the first plot; chooses dark colours; opens the first run.
ACTIONS = """
const select = (at, value) => {
  const found = document.querySelectorAll("#choice select")[at];
  found.value = value;
  found.dispatchEvent(new Event("change"));
};
const first = document.querySelector("main table"), column = () => first.tHead.rows[0].cells[1];
const cells = () => [...first.tBodies[0].rows].map(row => row.cells[1].textContent);
const found = {drawn: document.documentElement.dataset.drawn, title: document.title, orders: [],
               wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
               panels: document.querySelectorAll("#speedup-policy-length .panel").length};
for (let i = 0; i < 2; ++i) {
  column().querySelector("button").click();
  found.orders.push([column().getAttribute("aria-sort"), cells()]);
}
const panel = document.querySelector(".panel svg");
panel.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
found.tip = document.getElementById("tip").textContent;
select(1, "2");
found.narrow = cells();
const ground = () => getComputedStyle(document.body).backgroundColor;
select(2, "light");
const light = ground();
select(2, "dark");
found.dark = ground() !== light;
document.querySelector("#repeat details:last-of-type").open = true;
setTimeout(() => {
  found.opened = document.querySelector("#repeat details[open] pre").textContent;
  found.failed = [...document.querySelectorAll("#failed li")].map(item => item.textContent);
  found.scripts = document.querySelectorAll("script").length;
  document.body.replaceChildren(encodeURIComponent(JSON.stringify(found)));
}, 50);
"""


class Page(InFolder):
    def run_it(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.here, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def lines(self, name="results/sweep.jsonl"):
        return [json.loads(line) for line in (self.here / name).read_text().splitlines()]

    def sweep(self):
        self.run_it("run", self.write("sweep.json", SWEEP), "--quiet")
        return self.lines()

    def payload(self, name="report.html"):
        text = (self.here / name).read_text()
        return json.loads(re.search(r'id="payload">(.*?)</script>', text, re.DOTALL)[1])

    def test_the_page_repeats_its_runs(self):
        keys = {line["key"] for line in self.sweep()}
        self.run_it("report", "results/sweep.jsonl")
        payload = self.payload()
        self.assertEqual(len(payload["runs"]), 4)
        commands = [line["text"] for line in payload["commands"]["lines"]]
        self.assertIn("./foretoken report results/sweep.jsonl --out report.html", commands)
        again = self.write("again.json", payload["commands"]["document"])
        self.run_it("run", again, "--quiet", "--results", "again.jsonl")
        self.assertEqual({line["key"] for line in self.lines("again.jsonl")}, keys)
        for run in payload["runs"]:  # complete documents: the runs that the file has
            self.run_it("run", self.write("one.json", run["document"]), "--quiet", "--results", "results/sweep.jsonl")
        self.assertEqual(len(self.lines()), 4)

    def test_only_a_page_is_replaced(self):
        self.sweep()
        notes = self.write("notes.html", "<!doctype html><title>mine</title>")
        self.assertIn("notes.html exists and is no page",
                      self.run_it("report", "results/sweep.jsonl", "--out", notes, code=1))
        self.assertIn("sweep.jsonl exists and is no page",
                      self.run_it("report", "results/sweep.jsonl", "--out", "results/sweep.jsonl", code=1))
        self.assertEqual(Path(notes).read_text(), "<!doctype html><title>mine</title>")
        for _ in range(2):
            self.run_it("report", "results/sweep.jsonl", "--out", "page.html")
        self.assertEqual(sorted(path.name for path in self.here.glob("*.html*")), ["notes.html", "page.html"])
        self.assertIn("none.jsonl", self.run_it("report", "none.jsonl", code=1))
        self.assertFalse((self.here / "report.html").exists())

    def test_damaged_lines_are_told(self):
        lines = self.sweep()
        lines[0]["repeats"] = []
        self.write("damaged.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.assertIn("has no figures", self.run_it("report", "damaged.jsonl", code=1))
        self.assertEqual(sum("error" in run for run in self.payload()["runs"]), 1)

    @unittest.skipUnless(NODE, "Node.js is missing")
    def test_scripts_choose_and_sort(self):
        done = subprocess.run([NODE, SOURCE / "tests/experiments/page_scripts.js", SOURCE / "experiments/report/page"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^\d+ tests of scripts\n$")

    def in_browser(self, page, width):
        """What ACTIONS finds in a page."""
        acted = self.write(f"acted-{width}.html", page.replace("</body>", f"<script>{ACTIONS}</script></body>"))
        done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
                               f"--user-data-dir={self.here}/browser", "--virtual-time-budget=5000", "--dump-dom",
                               f"file://{acted}"], capture_output=True, text=True, timeout=120)
        return json.loads(urllib.parse.unquote(re.search(r"<body[^>]*>([^<]*)</body>", done.stdout)[1]))

    @unittest.skipUnless(BROWSER, "Chromium is missing")
    def test_a_browser_draws_and_sorts(self):
        lines = self.sweep()
        del lines[0]["repeats"]
        lines[0]["error"] = lines[1]["machine"]["cpu"] = NASTY
        lines[2]["promise"] = f"lossy: {NASTY}"
        self.write("nasty.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.run_it("report", "nasty.jsonl")
        page = (self.here / "report.html").read_text()
        for width in (1280, 390):
            found = self.in_browser(page, width)
            self.assertEqual((found["drawn"], found["title"], found["wide"]), ("yes", "nasty.jsonl", 0), found)
            self.assertEqual(found["panels"], 1)
            self.assertEqual(found["orders"], [["ascending", ["1", "1", "4", "4"]],
                                               ["descending", ["4", "4", "1", "1"]]])
            self.assertEqual(found["narrow"], ["4", "4"])
            self.assertRegex(found["tip"], r"length \d.*speedup \d")
            self.assertTrue(found["dark"])
            self.assertIn(json.loads(found["opened"]), [line["run"] for line in lines])
            self.assertEqual(len(found["failed"]), 1)
            self.assertTrue(found["failed"][0].endswith(NASTY), found["failed"])
            self.assertEqual(found["scripts"], page.count("<script") + 1)


if __name__ == "__main__":
    for tool, needed in ((NODE, "Node.js"), (BROWSER, "Chromium")):
        if not tool:
            print(f"skipped: the page of foretoken report was not tried in {needed}, which is missing here")
    unittest.main()
