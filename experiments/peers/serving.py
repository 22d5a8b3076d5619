"""Tables of servers under one load: Foretoken's, vLLM's, or any of OpenAI's API that is running.

    python3 experiments/peers/serving.py RUN.json [--foretoken ARGUMENTS] [--vllm ARGUMENTS] [--url URL] ...

Each server that is named is started on a free port, warmed up, sent the same requests by `foretoken load` at each
concurrency, and ended before the next one starts; --url is of one that runs already. ARGUMENTS is one word for a shell,
as "--model DIR --draft DIR" of `foretoken serve` and "DIR --no-enable-prefix-caching" of `vllm serve`. Requests are the
run's prompts as tokens of its target, streamed with usage and, where the run says so, without end of sequence: those of
`vllm bench serve`. A level is a line of --out; the table of all is printed. Exit code 1 where a server does not start.
"""

import argparse
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEVELS = "1,2,4,8,16,32,64"


def arguments_of(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="run or sweep, as of `foretoken run`")
    parser.add_argument("--foretoken", action="append", default=[], metavar="ARGUMENTS", help="of `foretoken serve`")
    parser.add_argument("--vllm", action="append", default=[], metavar="ARGUMENTS", help="of `vllm serve`")
    parser.add_argument("--url", action="append", default=[], help="of a server that runs: http://HOST:PORT")
    parser.add_argument("--program", default=str(ROOT / "foretoken"), help="foretoken, or the launcher")
    parser.add_argument("--vllm-program", default="vllm", help="vllm of its virtual environment")
    parser.add_argument("--concurrency", default=LEVELS, help=f"default: {LEVELS}; empty: the run's rates")
    parser.add_argument("--out", default="results/serving.jsonl")
    parser.add_argument("--start-seconds", type=float, default=900, help="that a server has to start")
    parser.add_argument("--set", action="append", default=[], metavar="/POINTER=VALUE", help="of the run")
    given = parser.parse_args(words)
    if not given.foretoken + given.vllm + given.url:
        parser.error("name a server: --foretoken, --vllm or --url")
    return given


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def models_of(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=10) as answer:
        return [model["id"] for model in json.load(answer)["data"]]


def wait_for(url, server, seconds):
    """The name of the first model that the server has."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if server and server.poll() is not None:
            sys.exit(f"{shlex.join(map(str, server.args))} ended with exit code {server.returncode} before it served")
        try:
            return models_of(url)[0]
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    sys.exit(f"nothing serves at {url} after {seconds:.0f} s; raise --start-seconds")


def end(server):
    """With all of its processes: a server of several GPUs has more than one."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, how)
            server.wait(60)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            pass


def measure(given, url, label, server=None):
    model = wait_for(url, server, given.start_seconds)
    command = [given.program, "load", given.run, "--url", url, "--model", model, "--label", label, "--out", given.out,
               "--format", "csv", *(word for setting in given.set for word in ("--set", setting))]
    if given.concurrency:
        command += ["--concurrency", given.concurrency]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def measure_started(given, label, command):
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        return measure(given, f"http://127.0.0.1:{command[-1]}", label, server)
    finally:
        end(server)


def main():
    given = arguments_of(sys.argv[1:])
    tables = []
    own, peer = [given.program, "serve", "--access-log", "none"], [given.vllm_program, "serve"]
    for name, program, all_arguments in (("foretoken", own, given.foretoken), ("vllm", peer, given.vllm)):
        for number, words in enumerate(all_arguments, 1):
            command = [*program, *shlex.split(words), "--port", str(free_port())]
            tables.append(measure_started(given, name if len(all_arguments) == 1 else f"{name} {number}", command))
    tables += [measure(given, url.rstrip("/").removesuffix("/v1"), url) for url in given.url]
    lines = list(dict.fromkeys(line for table in tables for line in table.splitlines() if line))  # one header
    print("\n".join(lines))


if __name__ == "__main__":
    main()
