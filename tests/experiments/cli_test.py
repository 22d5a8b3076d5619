"""The program as a user runs it: every bad input gives one sentence and an exit code, and measured results are kept."""

import json
import os
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

from in_folder import InFolder

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
MODELS = SOURCE / "experiments" / "models"
VOCABULARY = json.loads((MODELS / "target" / "config.json").read_text())["vocab_size"]
BASE = {"target": {"model": "experiments/models/target"},
        "drafter": {"name": "draft_model", "model": "experiments/models/draft"},
        "engine": {"batch": 1, "device": "cpu", "threads": 1},
        "workload": {"prompts": "experiments/prompts.jsonl", "limit": 6, "max_new_tokens": 6},
        "measure": {"repeats": 1}}


class Program(InFolder):
    def sweep(self, axes, **changes):
        return self.write("sweep.json", {"base": {**BASE, **changes}, "axes": axes})

    def start(self, *arguments):
        return subprocess.Popen([PROGRAM, *arguments], cwd=self.here, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run_it(self, *arguments, stdin=""):
        done = subprocess.run(
            [PROGRAM, *arguments], cwd=self.here, input=stdin, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout, done.stderr

    def refused(self, *arguments, code=1, words=(), stdin=""):
        """One sentence on stderr, nothing on stdout."""
        status, out, err = self.run_it(*arguments, stdin=stdin)
        self.assertEqual((status, out), (code, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("foretoken: "), err)
        self.assertNotRegex(err, r"\d{40}", "a number of 40 digits")
        for word in words:
            self.assertIn(word, err)

    def lines(self, name="results/sweep.jsonl"):
        return [json.loads(line) for line in (self.here / name).read_text().splitlines()]

    def generate(self, *arguments):
        tokens = [] if "--max-new-tokens" in arguments else ["--max-new-tokens", "12"]
        return ["generate", "--model", str(MODELS / "target"), "--device", "cpu", *tokens, *arguments]

    def test_usage(self):
        self.refused(code=2, words=["--help"])
        self.refused("quikstart", code=2, words=["did you mean 'quickstart'", "compare"])
        self.refused("run", code=2, words=["file"])
        self.refused("show", "x", "--format", "pdf", code=2)
        self.refused("bench", "--only", "decode", code=2, words=["--steps"])
        self.refused("bench", "--steps", "s.json", "--repeats", "3", code=2, words=["--steps"])
        self.refused("bench", "--requests", "3", code=2, words=["--soak"])
        for command in (
            "",
            "run",
            "show",
            "report",
            "merge",
            "compare",
            "tree-shape",
            "tune",
            "calibrate",
            "predict",
            "generate",
            "serve",
            "gateway",
            "load",
            "quickstart",
            "list",
            "keys",
            "check",
            "options",
            "bench",
            "quality",
            "quantize",
            "datastore",
        ):
            status, out, _ = self.run_it(*[command] if command else [], "--help")
            self.assertEqual(status, 0)
            self.assertIn("--help", out)
        self.assertIn("commit", self.run_it("version")[1])
        self.assertIn("foretoken", self.run_it("--version")[1])

    def test_empty_values_of_options_are_refused(self):
        """An empty number would be read as 0, an empty file or name as the default, so both are refused."""
        sweep, words = self.sweep({}), ["the value is empty", "leave the option out"]
        for option in ("--prompt", "--seed", "--temperature", "--top-k", "--top-p", "--min-p", "--length", "--threads",
                       "--samples", "--frequency-penalty", "--drafter", "--verifier", "--device", "--set", "--stop", "--plugin"):
            arguments = ["generate", "--model", str(MODELS / "target"), *([] if option == "--prompt" else ["--prompt", "x"])]
            self.refused(*arguments, option, "", code=2, words=[option, *words])
            self.refused(*arguments, f"{option}=", code=2, words=[option])
        for arguments in (["run", sweep, "--results"], ["run", sweep, "--set"], ["run"], ["show"],
                          ["show", "x", "--tables"], ["compare", "x", "x", "--ignore"], ["check", "--seconds"],
                          ["check", "--threads"], ["check", "--laws"], ["quickstart", "--seconds"],
                          ["quickstart", "--results"], ["bench", "--repeats"], ["bench", "--steps"],
                          ["bench", "--model"], ["list", "--plugin"]):
            option = arguments[-1] if arguments[-1].startswith("--") else ""
            self.refused(*arguments, "", code=2, words=[option, *words])

    def test_numbers_that_are_none(self):
        for number in ("nan", "inf", "-inf", "-1", "x", "1000001"):
            self.refused("check", "--laws", "cash", f"--seconds={number}", code=2,
                         words=["--seconds", f"'{number}' is not in range", "a number from 0 to 1000000"])
        self.refused("quickstart", "--seconds", "nan", code=2, words=["--seconds", "not in range"])
        for option, key in (("--temperature", "temperature"), ("--top-p", "top_p"), ("--min-p", "min_p"),
                            ("--repetition-penalty", "repetition_penalty"), ("--presence-penalty", "presence_penalty")):
            for number in ("nan", "inf", "-inf"):
                self.refused(*self.generate("--prompt", "x", f"{option}={number}"),
                             words=[f"/sampling/{key}", f"not {number}"])
        for sampling in (["--temperature", "1e-300"], ["--set", "/sampling/temperature=1e-300"]):
            self.refused(*self.generate("--prompt", "x", *sampling),
                         words=["/sampling/temperature", "1e-300", "too small", "use 0"])
        draft = json.dumps({"name": "draft_model", "model": str(MODELS / "draft"), "temperature": 1e-300})
        self.refused(*self.generate("--prompt", "x", "--set", f"/drafter={draft}"),
                     words=["draft_model", "'temperature'", "too small", "use 0"])

    def test_documents(self):
        self.refused("run", "none.json", words=["none.json"])
        self.refused("run", self.write("a.json", '{"base":\n {,}}'), words=["line 2", "column 3"])
        self.refused("run", self.sweep({"/policy/lenght": [1]}), words=["did you mean 'length'"])
        self.refused("run", self.sweep({}, samplin={}), words=["did you mean '/sampling'"])
        self.refused("run", self.sweep({}, drafter={"name": "ngrm"}), words=["did you mean 'ngram'", "draft_model"])
        self.refused("run", self.sweep({}, verifier={"name": "greedy"}), words=["coupled, k_seq"])
        self.refused("run", self.sweep({}, policy={"name": "adaptive"}), words=["fixed"])
        self.assertFalse((self.here / "results").exists())

    def test_generate(self):
        status, plain, _ = self.run_it(*self.generate("--prompt", "The lamp had burned low when"))
        self.assertEqual(status, 0)
        status, fast, err = self.run_it(
            *self.generate("--prompt", "-", "--draft", str(MODELS / "draft")), stdin="The lamp had burned low when"
        )
        self.assertEqual((status, fast), (0, plain))
        self.assertRegex(err, r"12 tokens in .* tau [1-5]\.\d\d .* accepted \d+ of \d+ drafted")
        status, marked, _ = self.run_it(
            *self.generate("--prompt", "The lamp had burned low when", "--draft", str(MODELS / "draft"), "--marks")
        )
        self.assertIn("[", marked)
        self.assertEqual(marked.replace("[", "").replace("]", ""), plain)

    def test_generate_writes_json(self):
        prompt = ("--prompt", "The lamp had burned low when", "--draft", str(MODELS / "draft"))
        _, plain, _ = self.run_it(*self.generate(*prompt))
        status, out, err = self.run_it(*self.generate(*prompt, "--json"))
        self.assertEqual((status, err), (0, ""))
        document = json.loads(out)
        self.assertEqual(set(document), {"prompt", "prompt_tokens", "outputs", "figures", "verifier_promises", "run"})
        output, = document["outputs"]
        self.assertEqual(output["text"] + "\n", plain)
        self.assertEqual((len(output["tokens"]), output["finish"]), (12, "length"))
        for count in ("rounds", "drafted", "tested", "accepted"):
            self.assertEqual(document["figures"][count], output[count], count)
        self.assertGreater(output["accepted"], 0)
        self.assertEqual(document["figures"]["tokens"], 12)
        self.assertLess(0, document["figures"]["first_token_seconds"])
        self.assertLess(document["figures"]["first_token_seconds"], document["figures"]["seconds"])
        self.assertEqual(document["run"]["drafter"]["name"], "draft_model")
        self.assertNotIn("prompts", document["run"]["workload"])
        samples = json.loads(self.run_it(*self.generate(*prompt, "--json", "--temperature", "1", "--samples", "3",
                                                        "--logprobs"))[1])
        self.assertEqual([len(o["logprobs"]) for o in samples["outputs"]], [12, 12, 12])
        self.assertEqual(samples["figures"]["tokens"], 36)
        self.refused(*self.generate(*prompt, "--json", "--marks"), code=2, words=["--json", "--marks"])

    def test_generate_with_options(self):
        prompt = ["--prompt", "The lamp had burned low when", "--max-new-tokens", "40"]
        penalties = [
            "--repetition-penalty",
            "1.2",
            "--frequency-penalty",
            "0.3",
            "--presence-penalty",
            "0.1",
            "--logit-bias",
            "17=-100",
        ]
        plain, penalized = self.run_it(*self.generate(*prompt))[1], self.run_it(*self.generate(*prompt, *penalties))[1]
        self.assertNotEqual(penalized, plain)
        for drafter in (["--draft", str(MODELS / "draft")], ["--drafter", "ngram"]):
            for verifier in ("speculative_sampling", "coupled"):
                self.assertEqual(
                    self.run_it(*self.generate(*prompt, *penalties, *drafter, "--verifier", verifier))[1], penalized
                )
        status, out, err = self.run_it(*self.generate(*prompt, "--temperature", "1", "--samples", "3", "--logprobs"))
        self.assertEqual((status, out.count("== sample ")), (0, 3))
        self.assertEqual(len(set(out.split("== sample ")[1:])), 3)
        self.assertRegex(err, r"log-probability -\d+\.\d+, -\d\.\d+ a token")
        stop = plain.split()[3]
        self.assertTrue(self.run_it(*self.generate(*prompt, "--stop", stop))[1].strip().endswith(stop))
        self.refused(*self.generate(*prompt, "--logit-bias", "17"), words=["--logit-bias 17=-100"])
        self.refused(
            *self.generate(*prompt, "--logit-bias", "17=-100", "--logit-bias", "17=5"), words=["--logit-bias", "17 twice"]
        )
        self.refused(*self.generate(*prompt, "--logit-bias", "x=1"), words=["logit_bias", "token"])
        self.refused(*self.generate(*prompt, "--logit-bias", "9999999=1"), words=["9999999", "vocabulary"])
        self.refused(*self.generate(*prompt, "--repetition-penalty", "0"), words=["repetition_penalty", "0.01"])
        everything = [f"--logit-bias={token}=-100" for token in range(VOCABULARY)]
        self.refused(*self.generate(*prompt, *everything), words=["'logit_bias' forbids all", str(VOCABULARY), "leave at least one"])
        written = self.run_it(*self.generate(*prompt, "--temperature", "100", *everything[:1], *everything[2:]))[1]
        self.assertEqual(written, "!" * 40 + "\n", "the token 1 is the only one that is left")

    def test_generate_refuses_keys_that_it_would_ignore(self):
        for setting, key in (("/workload/prompts=x", "/workload/prompts"), ("/workload/limit=3", "/workload/limit"),
                             ('/workload={"limit": 3}', "/workload/limit"), ('/workload/categories=["a"]', "/workload/categories"),
                             ("/measure/repeats=7", "/measure"), ("/measure={}", "/measure")):
            self.refused(*self.generate("--prompt", "x", "--set", setting), words=["generate", f"no use for '{key}'", "--set"])

    def test_an_option_that_may_be_given_again_leaves_the_file_alone(self):
        sweep = self.sweep({}, drafter={"name": "ngram"})
        settings = ["--set", "/sampling/seed=2", "--set", "/policy/length=2"]
        status, out, err = self.run_it("run", *settings, sweep, "--json")
        self.assertEqual(status, 0, err)
        cell = json.loads(out)["cells"][0]
        self.assertEqual((cell["run"]["sampling"]["seed"], cell["run"]["policy"]["length"]), (2, 2))
        results = "results/sweep.jsonl"
        self.assertEqual(self.run_it("show", "--tables", "main,theory", results)[0], 0)
        self.assertEqual(self.run_it("compare", "--ignore", "/engine/device,/engine/threads", results, results)[0], 0)
        self.assertEqual(self.run_it("check", "--laws", "limits", "--drafter", "none", "--threads", "1")[0], 0)

    def test_generate_takes_components_as_check_does(self):
        prompt = ["--prompt", "The lamp had burned low when"]
        plain = self.run_it(*self.generate(*prompt))[1]
        draft = str(MODELS / "draft")
        coupled = ["--verifier", '{"name": "coupled"}']
        for components in (["--drafter", '{"name": "ngram", "longest": 2}'], ["--drafter", "ngram", *coupled],
                           ["--drafter", json.dumps({"name": "draft_model", "model": draft, "temperature": 0.5})],
                           ["--draft", draft, "--drafter", '{"name": "draft_model", "dtype": "f32"}']):
            status, out, err = self.run_it(*self.generate(*prompt, *components))
            self.assertEqual((status, out), (0, plain), err)
        refused = lambda components, *words: self.refused(*self.generate(*prompt, *components), words=words)
        refused(["--drafter", '{"name": "ngram", "longst": 2}'], "did you mean 'longest'?")
        refused(["--drafter", '{"longest": 2}'], "--drafter", "has no name")
        refused(["--verifier", '{"name"'], "--verifier", "JSON object")

    def test_generate_marks_what_was_accepted(self):
        """The output's own brackets and backslashes get a backslash; without marks and backslashes the output remains."""
        tokens = json.loads((MODELS / "target" / "tokenizer.json").read_text())["model"]["vocab"]
        drafted = ["--drafter", "ngram", "--prompt", "x", "--marks"]
        for sign in "[]\\":
            status, out, err = self.run_it(*self.generate(*drafted, "--logit-bias", f"{tokens[sign]}=100"))
            self.assertEqual(status, 0, err)
            self.assertRegex(err, "accepted [1-9]")
            unmarked = re.sub(r"\\(.)|[\[\]]", r"\1", out)
            self.assertEqual(unmarked, 12 * sign + "\n", out)
            self.assertRegex(out, r"^(\\.)*\[(\\.)+\]", out)

    def test_generate_refuses(self):
        self.refused(*self.generate("--prompt", "-"), words=["empty"])
        self.refused(*self.generate("--prompt", "-"), stdin="word " * 5000, words=["context", "2048"])
        self.refused(*self.generate("--prompt", "x", "--draft", str(self.here / "none")), words=["none", "directory"])
        self.refused(*self.generate("--prompt", "x", "--draft", "d", "--drafter", "ngram"), words=["--draft"])
        self.refused(
            *self.generate("--prompt", "x", "--set", "/engine/memory_mib=1", "--max-new-tokens", "2000"),
            words=["memory_mib"],
        )
        self.refused(*self.generate("--prompt", "x", "--top-p", "0"), words=["top_p", "> 0"])
        self.refused(*self.generate("--prompt", "x", "--set", "/engine/device=tpu"), words=["cpu", "reference"])

    def test_check_refuses(self):
        for option in ("--drafter", "--policy", "--verifier"):
            self.refused("check", option, "{}", words=[option, "has no name"])
            self.refused("check", option, '{"name": 3}', words=[option, "has no name", "foretoken list"])
            self.refused("check", option, "nobody", words=["unknown", "'nobody'"])
        self.refused("check", "--drafter", '{"name"', words=["--drafter", "JSON object"])
        self.refused("check", "--seconds", "-1", code=2, words=["--seconds", "not in range"])
        self.refused("bench", "--repeats", "0", code=2, words=["--repeats", "not in range"])
        self.refused("check", "--laws", "cash", words=["unknown law 'cash'", "cache"])
        self.refused("check", "--drafter", "ngram", "--options", '{"longst": 2}', words=["did you mean 'longest'?"])

    def test_bench_refuses(self):
        self.refused("bench", "--steps", "none.json", words=["none.json"])
        self.refused(
            "bench", "--steps", self.write("s.json", {"scenarios": [{"name": "x"}]}), words=["scenario 'x'", "target"]
        )
        self.refused("bench", "--model", str(self.here), words=["config.json"])
        self.refused("bench", "--results", str(self.here / "none" / "r.jsonl"), words=["none", "--results"])

    def test_bench_steps(self):
        """Time, bytes and the share of the roofline; bytes are those of weights, keys and values in each forward."""
        target, draft = ({"model": str(MODELS / name)} for name in ("target", "draft"))
        plain = {"target": target, "batch": 2, "steps": 2}
        scenarios = [{"name": "short", **plain, "context": 32}, {"name": "long", **plain, "context": 96},
                  {"name": "draft", **plain, "target": draft, "context": 32},
                  {"name": "round", **plain, "context": 32, "drafter": {"name": "draft_model", **draft}, "length": 3},
                  {"name": "prompt", "target": target, "prompt": True, "batch": 1, "context": 32, "steps": 2}]
        engine = {"device": "cpu", "threads": 1, "memory_mib": 64}
        file = self.write("s.json", {"engine": engine, "scenarios": scenarios})
        status, out, err = self.run_it("bench", "--steps", file, "--json")
        self.assertEqual((status, err), (0, ""))
        lines = {line["scenario"]: line for line in map(json.loads, out.splitlines())}
        bytes_of = {name: line["bytes"] for name, line in lines.items()}
        weights = bytes_of["prompt"]
        self.assertGreater(weights, 2 * 10**6)
        self.assertEqual(bytes_of["long"] - weights, 3 * (bytes_of["short"] - weights))
        self.assertGreater(bytes_of["short"], weights)
        self.assertEqual(bytes_of["round"], bytes_of["short"] + 3 * bytes_of["draft"])
        for line in lines.values():
            self.assertGreater(line["read_bytes_per_second"], 10**9)
            self.assertGreater(line["operations"], 0)
            self.assertGreaterEqual(line["roofline_ms"] / 1e3, 0.999 * line["bytes"] / line["read_bytes_per_second"])
            self.assertAlmostEqual(line["share"], line["roofline_ms"] / line["step_ms"])
        taus = {name: line["tau"] for name, line in lines.items()}
        self.assertEqual([taus[name] for name in ("short", "long", "draft", "prompt")], [1] * 4, "no drafts")
        self.assertTrue(1 <= taus["round"] <= 4)
        # Two operations for each weight of bf16 and row; of a prompt only the last row has logits. The draft has two
        # layers with two heads of 32 numbers in the cache.
        head, draft_weights = 4096 * 384, bytes_of["draft"] - 2 * 32 * 512
        operations = {name: line["operations"] for name, line in lines.items()}
        self.assertEqual(operations["short"], 2 * weights)
        self.assertEqual(operations["long"], 2 * weights)
        self.assertEqual(operations["prompt"], 32 * (weights - 2 * head) + 2 * head)
        self.assertEqual(operations["round"], 8 * weights + 3 * 2 * draft_weights)
        status, out, err = self.run_it("bench", "--steps", file, "--only", "short")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"step +GB +roofline +share .*\nshort +\d")

    def test_damaged_models(self):
        model = self.here / "model"
        model.mkdir()
        for name in ("config.json", "tokenizer.json"):
            (model / name).write_bytes((MODELS / "draft" / name).read_bytes())
        refused = lambda *words: self.refused("generate", "--model", str(model), "--prompt", "x", words=words)
        refused("model.safetensors")
        weights = (MODELS / "draft" / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(weights[:len(weights) // 2])
        refused("model.safetensors")
        (model / "model.safetensors").write_bytes(weights)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "hidden_size": 64, "head_dim": 16}))
        refused("shape")
        (model / "config.json").write_text(json.dumps({**config, "architectures": ["MambaForCausalLM"]}))
        refused("MambaForCausalLM")

    def test_a_vocabulary_without_a_common_token_is_recorded(self):
        model = self.here / "model"
        model.mkdir()
        for name in ("config.json", "model.safetensors"):
            (model / name).write_bytes((MODELS / "draft" / name).read_bytes())
        words = {chr(0x4e00 + i): i for i in range(4096)}
        (model / "tokenizer.json").write_text(json.dumps({
            "model": {"type": "BPE", "unk_token": chr(0x4e00), "merges": [], "vocab": words},
            "added_tokens": [{"id": 0, "content": chr(0x4e00), "special": True}],
            "pre_tokenizer": {"type": "Metaspace"}, "decoder": {"type": "Metaspace"}}))
        status, _, err = self.run_it("run", self.sweep({"/drafter/model": [str(model), "experiments/models/draft"]}),
                                     "--keep-going")
        self.assertEqual(status, 1)
        self.assertIn("no token in common", err)
        self.assertEqual(
            [("error" in line, len(line["repeats"]) > 0) for line in self.lines()], [(True, False), (False, True)]
        )

    def test_a_sweep_is_shown_compared_and_resumed(self):
        sweep = self.sweep({"/policy/length": [1, 3], "/sampling/temperature": [0, 1]})
        status, out, err = self.run_it("run", sweep, "--json")
        self.assertEqual(status, 0, err)
        self.assertEqual(len(json.loads(out)["cells"]), 4)
        before = (self.here / "results/sweep.jsonl").read_bytes()
        status, again, _ = self.run_it("run", sweep, "--json")
        self.assertEqual((status, again), (0, out))
        self.assertEqual((self.here / "results/sweep.jsonl").read_bytes(), before)
        self.assertEqual(self.run_it("show", "results/sweep.jsonl", "--json")[1], out)
        self.assertIn(
            "alpha", self.run_it("show", "results/sweep.jsonl", "--tables", "main", "--format", "markdown")[1]
        )
        self.assertEqual(self.run_it("compare", "results/sweep.jsonl", "results/sweep.jsonl", "--json")[0], 0)
        shown = self.run_it("show", "results/sweep.jsonl", "--tables", "main")[1]
        self.assertEqual(self.run_it("run", sweep, "--tables", "main", "--quiet")[1], shown)

    def test_the_first_tables_are_the_main_and_the_best(self):
        sweep = self.sweep({"/policy/length": [1, 3]})
        status, out, err = self.run_it("run", sweep)
        self.assertEqual(status, 0, err)
        self.assertIn("Acceptance and speed", out)
        self.assertIn("Best draft length", out)
        self.assertNotIn("Latency", out)
        everything = self.run_it("run", sweep, "--tables", "all")[1]
        self.assertIn("Latency", everything)
        self.assertEqual(self.run_it("show", "results/sweep.jsonl")[1], everything)
        self.assertEqual(self.run_it("show", "results/sweep.jsonl", "--tables", "all")[1], everything)
        self.refused("run", sweep, "--tables", "all,main", words=["all", "main, theory"])

    def test_a_dry_run_says_what_is_left_and_writes_nothing(self):
        sweep = self.sweep({"/policy/length": [1, 3], "/sampling/temperature": [0, 1]}, measure={"repeats": 2})
        status, out, err = self.run_it("run", sweep, "--dry-run")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("4 runs: 0 measured, 4 to measure, about ", out)
        self.assertIn("timed steps of plain decoding", out)
        self.assertFalse((self.here / "results").exists())
        self.assertEqual(self.run_it("run", sweep, "--shard", "1/2", "--quiet")[0], 0)
        (self.here / "results/sweep.shard-1-of-2.jsonl").rename(self.here / "results/sweep.jsonl")
        out = self.run_it("run", sweep, "--dry-run")[1]
        self.assertIn("4 runs: 2 measured, 2 to measure, about ", out)
        self.assertIn("2 from measured runs of the file", out)
        told = json.loads(self.run_it("run", sweep, "--dry-run", "--json")[1])
        self.assertEqual(sorted(run["measured"] for run in told["runs"]), [False, False, True, True])
        self.refused("run", sweep, "--dry-run", "--rehearse", code=2)

    def test_an_interrupted_sweep_is_shown(self):
        process = self.start("run", self.sweep({"/sampling/seed": list(range(300))}, measure={"repeats": 2}))
        folder = self.here / "results/sweep.jsonl.unfinished"
        for _ in range(6000):
            if folder.exists() and len(list(folder.glob("*.json"))) > 1:
                break
            time.sleep(0.01)
        while_it_runs = self.run_it("show", "results/sweep.jsonl", "--tables", "main")
        self.assertEqual(while_it_runs[0], 0, while_it_runs[2])
        self.assertIn("1 of 2 alternations", while_it_runs[1])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("1 of 2 alternations", out)
        self.assertEqual(self.run_it("report", "results/sweep.jsonl", "--out", "r.html")[0], 0)
        self.assertIn("1 of 2 alternations", (self.here / "r.html").read_text())

    def test_the_first_alternations_have_every_value_of_every_axis(self):
        models = [str(MODELS / "target"), str(MODELS / "draft")]
        sweep = self.sweep({"/target/model": models, "/policy/length": [1, 2, 3]}, drafter={"name": "ngram"},
                           measure={"repeats": 30})
        process = self.start("run", sweep)
        folder = self.here / "results/sweep.jsonl.unfinished"
        for _ in range(6000):
            if folder.exists() and len(list(folder.glob("*.json"))) > 3:
                break
            time.sleep(0.01)
        process.kill()
        process.communicate()
        first = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:3]
        axes = [json.loads(path.read_text())["axes"] for path in first]
        self.assertEqual({a["/policy/length"] for a in axes}, {1, 2, 3})
        self.assertEqual({a["/target/model"] for a in axes}, set(models))

    def test_an_unknown_table_is_refused_before_anything_is_measured(self):
        self.refused("run", self.sweep({}), "--tables", "mean", words=["mean", "main, theory"])
        self.assertFalse((self.here / "results").exists())

    def test_a_second_process_is_refused(self):
        sweep = self.sweep({"/sampling/seed": list(range(200))})
        first = self.start("run", sweep)
        self.wait_for_lines(1)
        self.refused("run", sweep, words=["another process", "--results"])
        first.kill()
        first.communicate()

    def wait_for_lines(self, count, name="results/sweep.jsonl"):
        path = self.here / name
        for _ in range(6000):
            if path.exists() and path.read_bytes().count(b"\n") >= count:
                return
            time.sleep(0.01)
        self.fail("no results came")

    def test_ctrl_c_keeps_what_is_finished(self):
        process = self.start("run", self.sweep({"/sampling/seed": list(range(500))}))
        self.wait_for_lines(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("interrupted", err)
        self.assertIn("alpha", out)
        done = len(self.lines())
        self.assertTrue(2 <= done < 500)

    def test_ctrl_c_ends_at_once_what_keeps_nothing(self):
        for arguments in (["check", "--laws", "exact,sampled,options", "--threads", "1"],):
            for which in (signal.SIGINT, signal.SIGTERM):
                process = self.start(*arguments)
                time.sleep(0.3)
                process.send_signal(which)
                process.communicate(timeout=10)
                self.assertEqual(process.returncode, -which, arguments)

    def test_kill_9_loses_the_run_in_flight_alone(self):
        axes = {"/sampling/seed": list(range(12))}
        keys = set()
        for wanted in (2, 5):
            process = self.start("run", self.sweep(axes))
            self.wait_for_lines(wanted)
            process.kill()
            process.communicate()
            text = (self.here / "results/sweep.jsonl").read_text()
            whole = [json.loads(line)["key"] for line in text.splitlines(keepends=True) if line.endswith("\n")]
            self.assertTrue(keys <= set(whole))
            keys = set(whole)
        status, _, err = self.run_it("run", self.sweep(axes))
        self.assertEqual(status, 0, err)
        found = [line["key"] for line in self.lines()]
        self.assertEqual((len(found), len(set(found))), (12, 12))

    def test_standard_output_may_be_full(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "list"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)

    def test_results_of_others_are_refused(self):
        self.refused("show", self.write("x.jsonl", "{}\n"), words=["x.jsonl:1"])
        self.refused("show", "none.jsonl", words=["none.jsonl"])
        self.refused("run", self.sweep({}), "--results", str(self.here), words=["--results"])
        sweep = self.sweep({})
        before = Path(sweep).read_bytes()
        self.refused("run", sweep, "--results", sweep, words=["sweep.json:1", "result"])
        self.assertEqual(Path(sweep).read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
