"""Where memory does not suffice, a command says which of its own options take less."""

import os
import re
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODEL = str(SOURCE / "experiments" / "models" / "draft")
LIMIT, CACHES = 1500, 2000  # MiB


class Memory(InFolder):
    def limited(self, *words):
        """With less address space than the caches want; the machine has the memory, so only allocating it shows."""
        return subprocess.run(["bash", "-c", f'ulimit -v {LIMIT << 10}; exec "$@"', "bash", PROGRAM, *words],
                              cwd=self.here, capture_output=True, text=True, timeout=120)

    def setUp(self):
        super().setUp()
        free = int(re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())[1]) >> 10
        if free < CACHES + 500:
            self.skipTest("this machine has little memory")

    def test_generate_names_its_options(self):
        done = self.limited("generate", "--model", MODEL, "--prompt", "x", "--device", "cpu", "--threads", "1",
                            "--set", f"/engine/memory_mib={CACHES}")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("out of memory: could not allocate", done.stderr)
        for remedy in ("--samples", "--max-new-tokens", "--set /engine/memory_mib=N", "--model"):
            self.assertIn(remedy, done.stderr)

    def test_run_names_its_keys(self):
        run = {"target": {"model": MODEL}, "drafter": {"name": "ngram"},
               "engine": {"batch": 1, "device": "cpu", "threads": 1, "memory_mib": CACHES},
               "workload": {"prompts": "experiments/prompts.jsonl", "limit": 6, "max_new_tokens": 4}}
        done = self.limited("run", self.write("run.json", run), "--quiet")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("out of memory: could not allocate", done.stderr)
        self.assertIn('lower "memory_mib" or "batch" of the engine', done.stderr)
        self.assertNotIn("--samples", done.stderr)


if __name__ == "__main__":
    unittest.main()
