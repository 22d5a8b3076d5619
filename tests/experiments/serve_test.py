"""`foretoken serve`: what it refuses to start with, its log, and how it ends."""

import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODELS = SOURCE / "experiments" / "models"
SMALL = ("--set", "/engine/device=cpu", "--set", "/engine/threads=1", "--port", "0")


class Serve(InFolder):
    def start(self, *arguments):
        server = subprocess.Popen([PROGRAM, "serve", *map(str, arguments)], cwd=self.here, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        line = server.stderr.readline()
        port = re.search(r":(\d+)/v1", line)
        self.assertTrue(port, line)
        return server, int(port[1])

    def ask(self, port, body, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json", **headers})
        return connection.getresponse()

    def refused(self, *arguments, words):
        done = subprocess.run([PROGRAM, "serve", *map(str, arguments)], cwd=self.here, capture_output=True, text=True,
                              timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_starts_are_refused_with_one_sentence(self):
        target = str(MODELS / "target")
        self.refused(words=["--model"])
        self.refused("--model", "nowhere", words=["nowhere"])
        self.refused("--model", target, "--host", "0.0.0.0", words=["--keys", "--open"])
        self.refused("--model", target, "--keys", self.write("none", "# nobody\n"), words=["none", "no key"])
        self.refused("--model", target, "--set", "/workload/limit=3", words=["/workload/limit"])
        self.refused("--model", target, "--set", "/workload/chat=vicuna", words=["<s>", "vicuna"])
        self.refused("--model", target, "--draft", target, "--drafter", "ngram", words=["--draft", "--drafter"])
        self.refused("--model", target, *SMALL, "--host", "192.0.2.1", "--open", words=["192.0.2.1", "--port"])
        sweep = self.write("sweep.json", {"base": {"target": {"model": target}}, "axes": {}})
        self.refused("--config", sweep, words=["sweep", "base"])

    def test_a_run_document_says_what_requests_do_not(self):
        keys = self.write("keys", hashlib.sha256(b"secret").hexdigest() + " alice tokens_per_minute=40\n")
        run = self.write("run.json", {"target": {"model": str(MODELS / "target")}, "drafter": {"name": "ngram"},
                                      "sampling": {"temperature": 0}, "workload": {"stop": ["e"]}})
        server, port = self.start("--config", run, *SMALL, "--keys", keys, "--name", "mine", "--access-log", "log")
        self.assertEqual(self.ask(port, {"prompt": "x"}).status, 401)
        secret = {"Authorization": "Bearer secret"}
        texts = set()
        for _ in range(2):
            answer = json.loads(self.ask(port, {"model": "mine", "prompt": "Once upon a time"}, **secret).read())
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            texts.add(answer["choices"][0]["text"])
        self.assertEqual(len(texts), 1)
        self.assertNotIn("e", texts.pop())
        self.assertEqual(self.ask(port, {"prompt": 60 * "x y "}, **secret).status, 200)
        late = self.ask(port, {"prompt": "x"}, **secret)
        self.assertEqual(late.status, 429)
        self.assertGreater(int(late.getheader("Retry-After")), 1)
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(30), 0)
        lines = [json.loads(line) for line in (self.here / "log").read_text().splitlines()]
        self.assertEqual([line["status"] for line in lines], [401, 200, 200, 200, 429])
        self.assertEqual([line["client"] for line in lines], ["", *4 * ["alice"]])
        self.assertGreater(lines[1]["output_tokens"], 0)

    def test_the_second_signal_ends_it_at_once(self):
        server, port = self.start("--model", MODELS / "target", *SMALL, "--access-log", "none")
        body = {"prompt": "Once", "max_tokens": 1900, "n": 16, "ignore_eos": True, "stream": True}
        stream = self.ask(port, body)
        self.assertTrue(stream.readline())
        server.send_signal(signal.SIGTERM)
        with self.assertRaises(ConnectionRefusedError):
            while True:
                try:
                    self.ask(port, {"prompt": "x", "max_tokens": 1})
                except ConnectionResetError:  # it was accepted before the server stopped
                    pass
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(30), 0)
        with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
            stream.read()

    @unittest.skipUnless(shutil.which("curl"), "curl is missing")
    def test_curl_gets_documents_streams_and_refusals(self):
        _, port = self.start("--model", MODELS / "target", *SMALL, "--access-log", "none", "--chat-template",
                             SOURCE / "experiments" / "serve" / "plain.jinja")

        def curl(path, *more):
            done = subprocess.run(["curl", "-sS", "-N", "-w", "\n%{http_code}", f"http://127.0.0.1:{port}{path}",
                                   *more], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            text, status = done.stdout.rsplit("\n", 1)
            return int(status), text

        typed = ("-H", "Content-Type: application/json", "-d")
        asked = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
        status, text = curl("/v1/completions", *typed, json.dumps(asked))
        self.assertEqual(status, 200)
        status, events = curl("/v1/completions", *typed, json.dumps({**asked, "stream": True}))
        events = [event.removeprefix("data: ") for event in events.split("\n\n") if event.strip()]
        self.assertEqual((status, events[-1]), (200, "[DONE]"))
        self.assertEqual("".join(json.loads(event)["choices"][0]["text"] for event in events[:-1]),
                         json.loads(text)["choices"][0]["text"])
        messages = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        self.assertEqual(curl("/v1/chat/completions", *typed, json.dumps(messages))[0], 200)
        # curl asks whether a body of this size may come, and waits for the answer (Expect: 100-continue).
        large = json.dumps({**asked, "user": 9000 * "x"})
        self.assertEqual(curl("/v1/completions", "-H", "Expect: 100-continue", *typed, large)[0], 200)
        self.assertEqual(curl("/v1/completions", "-d", "{}")[0], 415)
        self.assertEqual(curl("/v1/models", "-H", "Host: evil.example")[0], 421)
        self.assertEqual(curl("/v1/models", "--http1.0")[0], 200)

    def test_a_log_that_nobody_reads_holds_up_no_end(self):
        server, port = self.start("--model", MODELS / "target", *SMALL)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.addCleanup(connection.close)
        for _ in range(1000):  # lines of which a pipe holds about half
            connection.request("GET", "/health")
            connection.getresponse().read()
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(30), 0)


if __name__ == "__main__":
    unittest.main()
