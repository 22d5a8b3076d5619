"""experiments/peers/vllm_steps.py with a vLLM that takes known times: which scenarios it measures, how, and what a line
says."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PEERS = SOURCE / "experiments" / "peers"
STEPS = SOURCE / "experiments" / "configs" / "steps.json"
sys.path.insert(0, str(PEERS))
import vllm_steps

# A step takes 1 ms, a prompt 20; with speculation every step drafts all tokens and accepts none.
VLLM = '''
import json, os, pathlib, time, types
class SamplingParams:
    def __init__(self, **given): self.given = given
class LLM:
    def __init__(self, **given):
        self.given, self.counts = given, {"steps": 0, "drafts": 0, "draft_tokens": 0}
        config = json.loads((pathlib.Path(given["model"]) / "config.json").read_text())
        assert config["hidden_size"] in (2048, 4096) and given["load_format"] == "dummy"
        scheduler = types.SimpleNamespace(max_num_batched_tokens=8192)
        self.llm_engine = types.SimpleNamespace(vllm_config=types.SimpleNamespace(scheduler_config=scheduler))
    def generate(self, prompts, sampling, use_tqdm):
        tokens, spec = sampling.given["max_tokens"], self.given.get("speculative_config")
        time.sleep(0.020 + 0.001 * tokens)
        self.counts["steps"] += tokens
        if spec:
            share = float(os.environ.get("FAKE_DRAFTED", 1))
            self.counts["drafts"] += tokens * len(prompts)
            self.counts["draft_tokens"] += int(share * tokens * len(prompts) * spec["num_speculative_tokens"])
        one = types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=[0] * tokens)])
        return [one] * len(prompts)
    def get_metrics(self):
        metric = types.SimpleNamespace
        return [metric(name="vllm:iteration_tokens_total", count=self.counts["steps"]),
                metric(name="vllm:spec_decode_num_drafts", value=self.counts["drafts"]),
                metric(name="vllm:spec_decode_num_draft_tokens", value=self.counts["draft_tokens"])]
'''
TORCH = "import types\n__version__ = '2.9'\nversion = types.SimpleNamespace(cuda='13.0')\n"
SMI = '#!/bin/sh\necho "NVIDIA H200, 570.124.06, 700.00, 1980, 3201"\n'


class VllmSteps(InFolder):
    def setUp(self):
        super().setUp()
        for name in ("vllm-0.23.1.dist-info", "bin"):
            (self.here / name).mkdir()
        self.write("vllm.py", VLLM)
        self.write("torch.py", TORCH)
        self.write("vllm-0.23.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.23.1\n")
        Path(self.write("bin/nvidia-smi", SMI)).chmod(0o755)

    def measure(self, *arguments, code=0, **variables):
        variables = {"PYTHONPATH": str(self.here), "PATH": f"{self.here / 'bin'}:{os.environ['PATH']}", **variables}
        done = subprocess.run([sys.executable, PEERS / "vllm_steps.py", "--repeats", "1", "--out",
                               self.here / "out.jsonl", *arguments],
                              capture_output=True, text=True, timeout=120, env={**os.environ, **variables})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        out = self.here / "out.jsonl"
        return done.stderr, [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []

    def test_every_row_of_the_readme_is_measured(self):
        sys.path.insert(0, str(SOURCE / "experiments"))
        import readme_tables
        scenarios = {s["name"]: s for s in json.loads(STEPS.read_text())["scenarios"]}
        for name in readme_tables.STEPS.values():
            self.assertTrue(vllm_steps.is_measured(scenarios[name]), name)
        left_out = [name for name, s in scenarios.items() if not vllm_steps.is_measured(s)]
        self.assertTrue(all("attention alone" in name or "T=1" in name for name in left_out), left_out)

    def test_steps_are_timed_without_prompts(self):
        _, lines = self.measure("--only", "8b decode, context 1k, batch 8")
        self.assertTrue(0.5 < lines[0]["ms"] < 3, lines)  # a sleep of 1 ms, on a machine that is busy
        line = lines[0]
        self.assertEqual((line["peer"], line["steps"]), ("vLLM 0.23.1", 256))
        self.assertEqual((line["arguments"]["max_num_seqs"], line["arguments"]["enable_prefix_caching"]), (8, False))
        self.assertNotIn("speculative_config", line["arguments"])
        self.assertEqual((line["gpu"], line["driver"], line["torch"], line["cuda"]),
                         ("NVIDIA H200", "570.124.06", "2.9", "13.0"))
        self.assertEqual((line["power_limit_watts"], line["clocks_mhz"]), (700, {"sm": 1980, "memory": 3201}))
        self.assertRegex(line["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn("8b prompt of 512", [x["scenario"] for x in self.measure("--only", "8b prompt of 512")[1]])

    def test_rounds_and_verification_draft_as_much_as_the_scenario(self):
        _, lines = self.measure("--only", "round: 1b drafts 4, 8b verifies, batch 1")
        self.assertEqual(lines[0]["arguments"]["speculative_config"]["num_speculative_tokens"], 4)
        self.assertTrue(0.5 < lines[0]["ms"] < 3, lines)  # a sleep of 1 ms, on a machine that is busy
        _, lines = self.measure("--only", "8b verifies 8 rows, context 1k, batch 1", FAKE_DRAFTED="0.5", code=1)
        self.assertIn("tokens were drafted", lines[-1]["error"])
        self.assertNotIn("ms", lines[-1])
        _, lines = self.measure("--only", "8b invariant decode, context 1k, batch 1")
        self.assertEqual(lines[-1]["environment"]["VLLM_BATCH_INVARIANT"], "1")

    def test_another_version_and_a_failure_are_said(self):
        said, _ = self.measure("--expect", "0.26", code=1)
        self.assertIn("this is vLLM 0.23.1, not 0.26", said)
        self.write("vllm.py", "raise RuntimeError('no GPU here')\n")
        _, lines = self.measure("--only", "8b prompt of 512", code=1)
        self.assertIn("no GPU here", lines[0]["error"])


if __name__ == "__main__":
    unittest.main()
