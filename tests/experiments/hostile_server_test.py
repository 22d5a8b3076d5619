"""`foretoken serve` and thousands of hostile requests on loopback: bytes changed, slow, cut off, half-closed, huge, and
of odd characters. It lives, serves others meanwhile, and has no more memory, pages or descriptors afterwards.
FORETOKEN_HOSTILE: how many (tests/nightly sends 100,000)."""

import concurrent.futures
import http.client
import json
import os
import random
import re
import socket
import subprocess
import time
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
COUNT = int(os.environ.get("FORETOKEN_HOSTILE", 2000))
THREADS = 8
BODY = {"model": "target", "prompt": ["a", "b"], "n": 2, "max_tokens": 2, "temperature": 0.7, "stop": ["x"], "seed": 3,
        "stream": False, "logit_bias": {"7": -3}, "logprobs": 0, "user": "\u00e9",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {
            "type": "object", "properties": {"a": {"type": "string", "pattern": "x{2,9}|[^a-z]*"}, "b": {"$ref": "#"}},
            "required": ["a"], "additionalProperties": False}}}}
ODD = ["\u0000", "\u202e", "\ud7ff\ue000", "\U0010ffff", "e\u0301" * 30, "\ufeff", "\ufffd", "\u200b" * 50,
       "\U0001f469\u200d\U0001f4bb"]


def message(body, path="/v1/completions", more="", length=None):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body) if length is None else length}\r\n{more}\r\n").encode() + body


def changed(draw, sent):
    sent = bytearray(sent)
    for _ in range(draw.randint(1, 3)):
        at, kind = draw.randrange(len(sent)), draw.randrange(4)
        if kind == 0:
            sent[at] = draw.randrange(256)
        elif kind == 1:
            del sent[at:at + draw.randrange(8)]
        elif kind == 2:
            sent[at:at] = sent[at:at + draw.randrange(16)]
        else:
            sent[at:at] = draw.choice([b"{}", b"[]", b'"', b"\\", b"\0", b"\xff", b":", b","]) * draw.randint(1, 3)
    return bytes(sent)


class Hostile:
    """One hostile request after another, each by a kind that is drawn."""

    def __init__(self, port):
        self.port = port
        self.statuses = {}

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def answer(self, sent, wait=True):
        """The first line of what comes back."""
        with self.connect() as client:
            client.sendall(sent)
            return client.recv(256)[:12] if wait else b""

    def fuzzed_body(self, draw):
        return self.answer(message(changed(draw, json.dumps(BODY).encode())))

    def fuzzed_request(self, draw):
        with self.connect() as client:
            client.sendall(changed(draw, message(json.dumps(BODY).encode())))
            client.shutdown(socket.SHUT_WR)
            return client.recv(256)[:12]

    def slow(self, draw):
        sent = message(json.dumps(BODY).encode())
        with self.connect() as client:
            for i in range(0, min(len(sent), 40), 10):
                client.sendall(sent[i:i + 10])
                time.sleep(0.002)
        return b""

    def half_closed(self, draw):
        with self.connect() as client:
            client.sendall(message(json.dumps({**BODY, "max_tokens": 200, "stream": draw.random() < 0.5}).encode()))
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
        return b""

    def cut_off(self, draw):
        sent = message(json.dumps({**BODY, "max_tokens": 500, "stream": True}).encode())
        return self.answer(sent[:draw.randrange(1, len(sent) + 1)], wait=False)

    def huge(self, draw):
        kind = draw.randrange(4)
        if kind == 0:
            return self.answer(message(json.dumps({"prompt": "x" * 300_000}).encode()))
        if kind == 1:
            return self.answer(message(b"{}", length=10**12))
        if kind == 2:
            return self.answer(message(b"{}", more="X: " + "y" * 15_000 + "\r\n"))
        return self.answer(message(b"[" * 100_000))

    def odd(self, draw):
        text = "".join(draw.choice(ODD) for _ in range(draw.randint(1, 8)))
        body = {"prompt": text, "max_tokens": 3, "stop": [text[:20]], "stream": draw.random() < 0.5}
        return self.answer(message(json.dumps(body, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")))

    def send(self, number):
        draw = random.Random(number)
        kinds = {self.fuzzed_body: 6, self.fuzzed_request: 3, self.slow: 1, self.half_closed: 1, self.cut_off: 3,
                 self.huge: 1, self.odd: 3}
        kind = draw.choices(list(kinds), kinds.values())[0]
        try:
            return kind.__name__, kind(draw)
        except (ConnectionError, BrokenPipeError):
            return kind.__name__, b"gone"


class HostileServer(unittest.TestCase):
    def setUp(self):
        self.server = subprocess.Popen(
            [PROGRAM, "serve", "--model", SOURCE / "experiments" / "models" / "target", "--port", "0", "--set",
             "/engine/device=cpu", "--set", "/engine/threads=1", "--set", "/engine/memory_mib=16", "--access-log",
             "none", "--read-seconds", "1", "--queue", "1024"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.server.communicate)
        self.addCleanup(self.server.kill)
        self.port = int(re.search(r":(\d+)/v1", self.server.stderr.readline())[1])

    def ask(self, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                           {"Content-Type": "application/json", "Connection": "close"})
        with connection.getresponse() as response:
            return response.status, response.read().decode()

    def held(self):
        """MiB of memory, and the fewest open descriptors of a second, once nothing is served."""
        for _ in range(600):
            found = {name: float(value) for name, value in
                     re.findall(r"^foretoken_(\w+){[^}]*} (\S+)$", self.ask("/metrics")[1], re.M)}
            if found["connections"] == 1 and found["requests_running"] + found["requests_waiting"] == 0:
                break
            time.sleep(0.05)
        self.assertEqual(found["connections"], 1, "the one that asks")
        self.assertEqual(found["cache_pages_in_use"], 0)
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        descriptors = []
        for _ in range(20):
            descriptors.append(len(os.listdir(f"/proc/{self.server.pid}/fd")))
            time.sleep(0.05)
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024, min(descriptors)

    def burst(self, numbers):
        hostile, seen = Hostile(self.port), {}
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for kind, first in pool.map(hostile.send, numbers):
                seen.setdefault(kind, set()).add(first)
        return seen

    def test_it_lives_serves_others_and_leaks_nothing(self):
        first = max(500, COUNT // 10)
        self.burst(range(first))
        before, descriptors = self.held()
        seen = self.burst(range(first, first + COUNT))
        self.assertIsNone(self.server.poll())
        after, later = self.held()
        self.assertLessEqual(later, descriptors)
        self.assertLess(after - before, 48, f"MiB more after {COUNT} requests: {before} and {after}")
        self.assertIn(b"HTTP/1.1 400", seen["fuzzed_body"])
        self.assertIn(b"HTTP/1.1 200", seen["odd"])
        answers = set().union(*seen.values()) - {b"", b"gone"}
        self.assertFalse({a for a in answers if a.startswith(b"HTTP/1.1 5")}, "nothing is the server's fault")
        status, text = self.ask("/v1/completions", {"prompt": "Once", "max_tokens": 4})
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(text)["usage"]["completion_tokens"], 4)


if __name__ == "__main__":
    unittest.main()
