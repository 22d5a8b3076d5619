"""`foretoken load`: what it counts of a server's streams, levels by concurrency and by rate, and requests that fail."""

import json
import os
import re
import subprocess
import sys
import unittest
import urllib.request
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODELS = SOURCE / "experiments" / "models"
RUN = {"target": {"model": str(MODELS / "target")}, "drafter": {"name": "none"},
       "engine": {"device": "cpu", "threads": 1, "batch": 2}, "sampling": {"temperature": 0},
       "workload": {"prompts": str(SOURCE / "experiments" / "prompts.jsonl"), "limit": 12, "max_new_tokens": 8,
                    "lengths": "equal", "ignore_eos": True}}


class Load(InFolder):
    def serve(self, *arguments):
        server = subprocess.Popen([PROGRAM, "serve", "--model", MODELS / "target", "--draft", MODELS / "draft",
                                   "--port", "0", "--set", "/engine/device=cpu", "--set", "/engine/threads=1",
                                   "--access-log", "none", *arguments], stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        return re.search(r"(http://[^/]*)/v1", server.stderr.readline())[1]

    def load(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, "load", "--quiet", *map(str, arguments)], cwd=self.here, capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def lines(self, name):
        return [json.loads(line) for line in (self.here / name).read_text().splitlines()]

    def served(self, url):
        text = urllib.request.urlopen(url + "/metrics").read().decode()
        return sum(int(float(n)) for n in re.findall(r'requests_total{.*"completions",status="200"} (\S+)', text))

    def test_levels_of_concurrency_count_every_request_and_token(self):
        url, run = self.serve(), self.write("run.json", RUN)
        table = self.load("--url", url, run, "--concurrency", "1,2", "--warmup", 0, "--out", "levels.jsonl", "--label",
                          "mine", "--format", "csv").stdout
        one, two = self.lines("levels.jsonl")
        self.assertEqual([one["concurrency"], two["concurrency"]], [1, 2])
        for line in (one, two):
            figures, requests = line["figures"], line["requests"]
            self.assertEqual((figures["requests"], figures["failed"]), (12, 0))
            self.assertEqual(figures["output_tokens"], 12 * 8)
            self.assertIsNone(figures["within"], "a closed loop has no limits")
            self.assertGreater(figures["ttft_ms"]["p50"], 0)
            self.assertLessEqual(figures["ttft_ms"]["p50"], figures["ttft_ms"]["p99"])
            self.assertLessEqual(figures["ttft_ms"]["p99"], figures["whole_ms"]["p99"])
            running = sorted([(r["began"], 1) for r in requests] + [(r["ended"], -1) for r in requests],
                             key=lambda event: (event[0], event[1]))
            most = at = 0
            for _, change in running:
                at += change
                most = max(most, at)
            self.assertEqual(most, line["concurrency"], "so many at once")
        self.assertEqual(self.served(url), 24)
        rows = table.splitlines()
        self.assertEqual([row.split(",")[:2] for row in rows[-2:]], [["mine", "1"], ["mine", "2"]])
        # Appends; two at once, and two to warm up for each of them.
        self.load("--url", url, run, "--waves", "--out", "levels.jsonl")
        waves = self.lines("levels.jsonl")[2]["requests"]
        for i in range(2, 12, 2):
            self.assertGreaterEqual(min(r["began"] for r in waves[i:i + 2]), max(r["ended"] for r in waves[i - 2:i]))
        self.assertEqual(self.served(url), 24 + 12 + 4)

    def test_a_rate_sends_requests_when_they_arrive(self):
        run = json.loads(json.dumps(RUN))
        run["workload"].update({"rate": 20, "ttft_limit": 60})
        url = self.serve()
        done = self.load("--url", url + "/v1/", self.write("run.json", run), "--json")
        line = json.loads(done.stdout)[0]
        self.assertEqual((line["rate"], line["concurrency"]), (20, None))
        arrivals = [r["arrived"] for r in line["requests"]]
        self.assertEqual(arrivals, sorted(arrivals))
        self.assertEqual(arrivals[0], 0)
        for r in line["requests"]:
            self.assertGreaterEqual(r["began"], r["arrived"])
        figures = line["figures"]
        self.assertEqual((figures["within"], figures["goodput"]), (1, figures["served"]))
        run["workload"]["tpot_limit"] = 1e-9
        line = json.loads(self.load("--url", url, self.write("run.json", run), "--json").stdout)[0]
        self.assertEqual((line["figures"]["within"], line["figures"]["goodput"]), (0, 0), "no token comes so soon")

    def test_what_fails_is_counted_by_sentence(self):
        run = self.write("run.json", {**RUN, "workload": {**RUN["workload"], "limit": 12}})
        url = self.serve("--requests-per-minute", "5")
        done = self.load("--url", url, run, "--warmup", 0, "--json")
        figures = json.loads(done.stdout)[0]["figures"]
        self.assertEqual((figures["requests"], figures["failed"]), (12, 7))
        self.assertEqual(figures["output_tokens"], 5 * 8)
        self.assertEqual(sum(figures["errors"].values()), 7)
        for sentence in figures["errors"]:
            self.assertIn("status 429: the rate of requests", sentence)
        no_key = ("--url", url, run, "--key-variable", "NO_SUCH_KEY")
        for arguments, words in ((("--url", url, run, "--warmup", 0), ["every request failed", "429"]),
                                 (("--url", "http://127.0.0.1:1", run), ["every request failed", "no connection"]),
                                 (("--url", "https://localhost", run), ["--url http://HOST:PORT"]),
                                 (no_key, ["--key-variable", "NO_SUCH_KEY"])):
            refused = self.load(*arguments, code=1)
            self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
            for word in words:
                self.assertIn(word, refused.stderr)

    def test_servers_of_several_makers_are_in_one_table(self):
        """The other maker's is this program under a name of its own."""
        peer = self.here / "vllm"
        peer.write_text(f'#!/bin/sh\nshift\nexec {PROGRAM} serve --model "$@" --set /engine/device=cpu --name other\n')
        peer.chmod(0o755)
        target, run = MODELS / "target", self.write("run.json", RUN)
        script = [sys.executable, SOURCE / "experiments" / "peers" / "serving.py", run, "--program", PROGRAM]
        done = subprocess.run([*script, "--foretoken", f"--model {target} --set /engine/device=cpu", "--vllm",
                               str(target), "--vllm-program", str(peer), "--url", self.serve(), "--concurrency", "2", "--out",
                               "all.jsonl"], cwd=self.here, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = self.lines("all.jsonl")
        self.assertEqual([line["load"] for line in lines[:2]], ["foretoken", "vllm"])
        self.assertEqual([line["model"] for line in lines], ["target", "other", "target"])
        self.assertEqual({line["figures"]["output_tokens"] for line in lines}, {12 * 8})
        self.assertEqual(len(done.stdout.splitlines()), 4, done.stdout)
        gone = subprocess.run([*script, "--foretoken", "--model nowhere"], cwd=self.here, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(gone.returncode, 1)
        self.assertIn("before it served", gone.stderr)


if __name__ == "__main__":
    unittest.main()
