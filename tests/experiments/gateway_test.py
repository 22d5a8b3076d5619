"""`foretoken gateway`: HAProxy before two servers, of which one is killed."""

import concurrent.futures
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
TARGET = SOURCE / "experiments" / "models" / "target"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, body, path="/v1/completions"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if body is None:
        connection.request("GET", path)
    else:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def status_of(response):
    response.read()
    return response.status


def answered(port):
    """Completions that a replica has answered."""
    text = ask(port, None, "/metrics").read().decode()
    return sum(int(float(n)) for n in re.findall(r'requests_total{.*"completions",status="200"} (\S+)', text))


class Gateway(unittest.TestCase):
    def started(self, *arguments):
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def setUp(self):
        self.replicas = [self.started("serve", "--model", TARGET, "--port", 0, "--set", "/engine/device=cpu", "--set",
                                      "/engine/threads=1", "--access-log", "none") for _ in range(2)]
        self.ports = [int(re.search(r":(\d+)/v1", replica.stderr.readline())[1]) for replica in self.replicas]
        self.port = free_port()
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.gateway = self.started("gateway", "--replicas", addresses, "--port", self.port)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        self.fail("the gateway does not listen")

    def test_a_replica_that_is_killed_loses_no_request_that_was_not_begun(self):
        short = {"prompt": "Once", "max_tokens": 48, "temperature": 0, "ignore_eos": True}
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            texts = {json.loads(ask(self.port, short).read())["choices"][0]["text"] for _ in range(4)}
            self.assertEqual(list(pool.map(lambda _: status_of(ask(self.port, short)), range(16))), 16 * [200])
            self.assertTrue(all(answered(port) > 0 for port in self.ports), "both take part")
            # Streams on both, of which one half ends with its replica: never as if it were whole.
            long = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True}
            streams = list(pool.map(lambda _: ask(self.port, long), range(8)))
            self.assertTrue(all(stream.readline().startswith(b"data: ") for stream in streams))
            waiting = [pool.submit(ask, self.port, {**short, "max_tokens": 200}) for _ in range(8)]
            time.sleep(0.05)
            self.replicas[0].kill()
            self.assertEqual([status_of(a.result()) for a in waiting], 8 * [200])
            self.assertEqual(list(pool.map(lambda _: status_of(ask(self.port, short)), range(8))), 8 * [200])
            whole = broken = 0
            for stream in streams:
                try:
                    whole += stream.read().endswith(b"data: [DONE]\n\n")
                except (http.client.IncompleteRead, ConnectionError):
                    broken += 1
            self.assertEqual(whole + broken, 8)
            self.assertGreater(broken, 0)
            self.assertGreater(whole, 0)
        self.assertEqual(len(texts), 1)

    def test_its_configuration_can_be_written_and_is_valid(self):
        done = subprocess.run([PROGRAM, "gateway", "--replicas", "127.0.0.1:8001,127.0.0.1:8002", "--metrics-port",
                               "8405", "--print"], capture_output=True, text=True, check=True)
        checked = subprocess.run(["haproxy", "-c", "-f", "/dev/stdin"], input=done.stdout, capture_output=True,
                                 text=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        refused = subprocess.run([PROGRAM, "gateway", "--replicas", "nowhere"], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("HOST:PORT", refused.stderr)


if __name__ == "__main__":
    if not shutil.which("haproxy"):
        print("skipped: the gateway was not tested, since haproxy is missing (Debian: haproxy)")
        sys.exit(77)
    unittest.main()
