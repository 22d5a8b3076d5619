"""Plugins as users write them, built outside the tree against the installed package, listed, swept and refused if they
are faulty: the one of README.md and one of faults; with FORETOKEN_EVERY_SCENARIO, as in tests/nightly, the templates
too."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve()
CACHE = (BUILD / "CMakeCache.txt").read_text()
COMPILER = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", CACHE, re.MULTILINE)[1]
BASE = {"target": {"model": "experiments/models/target"},
        "engine": {"batch": 1, "device": "cpu", "threads": 1},
        "workload": {"prompts": "experiments/prompts.jsonl", "limit": 4, "max_new_tokens": 12},
        "measure": {"repeats": 1, "warmup": False}}


TEMPLATES = {"bigram": "drafters/template", "branches": "drafters/template_tree",
             "small_model": "drafters/template_model", "linear_head": "drafters/template_head",
             "running_rate": "drafters/template_policy", "lenient": "verifiers/template"}
OWN = {"faults": "tests/plugins/faults.cpp", "remembering": "tests/plugins/remembering.cpp", "repeat": "README.md"}
nightly = unittest.skipUnless(os.environ.get("FORETOKEN_EVERY_SCENARIO"), "builds a plugin of its own: tests/nightly")


def checked(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options
    )
    if done.returncode != 0:
        raise AssertionError(f"{command}:\n{done.stdout}{done.stderr}")
    return done.stdout


def example_of(page):
    """The only block of C++ on a page."""
    blocks = re.findall(r"^```cpp\n(.*?)^```$", (SOURCE / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"{page} has {len(blocks)} blocks of C++"
    return blocks[0]


class Plugins(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.here = Path(folder.name)
        prefix = cls.here / "a prefix"
        checked("cmake", "--install", BUILD, "--prefix", prefix)
        cls.program = prefix / "bin" / "foretoken"
        cls.share = prefix / "share" / "foretoken"
        cls.recipe = (cls.share / "drafters" / "template" / "CMakeLists.txt").read_text()

    def __getattr__(self, name):
        """The path of a plugin, which is built when a test first asks for it."""
        if name not in (*TEMPLATES, *OWN):
            raise AttributeError(name)
        prefix = self.here / "a prefix"
        if name in TEMPLATES:
            path = self.built(name, self.share / TEMPLATES[name], prefix)
        else:
            folder = self.here / name
            folder.mkdir()
            page = OWN[name]
            (folder / f"{name}.cpp").write_text(example_of(page) if page.endswith(".md") else
                                                (SOURCE / page).read_text())
            (folder / "CMakeLists.txt").write_text(self.recipe.replace("bigram", name))
            path = self.built(name, folder, prefix, ["-DCMAKE_BUILD_TYPE=Debug"])  # they compute next to nothing
        setattr(type(self), name, path)
        return path

    @classmethod
    def built(cls, name, template, prefix, more=()):
        source = cls.here / f"my {name}"
        build = source / "build"
        shutil.copytree(template, source)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        configured = checked("cmake", "-S", source, "-B", build, *generator, *more, f"-DCMAKE_PREFIX_PATH={prefix}",
                             f"-DCMAKE_CXX_COMPILER={COMPILER}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", stderr=None)
        assert "Warning" not in configured, configured
        checked("cmake", "--build", build)
        return str(build / f"lib{name}.so")

    def run_it(self, *arguments, fault=""):
        done = subprocess.run([self.program, *arguments], cwd=self.here, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=400, env={**os.environ, "FAULT": fault})
        return done.returncode, done.stdout, done.stderr

    def refused(self, plugin, *words, fault=""):
        """One sentence, nothing on stdout."""
        code, out, err = self.run_it("list", "--plugin", str(plugin), fault=fault)
        self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
        for word in (str(plugin), *words):
            self.assertIn(word, err)

    def sweep(self, name, document, *arguments):
        """The lines of its results."""
        file = self.here / f"{name}.json"
        file.write_text(json.dumps(document))
        results = self.here / f"{name}.jsonl"
        code, _, err = self.run_it("run", *arguments, str(file), "--results", str(results), "--quiet", "--json")
        self.assertEqual(code, 0, err)
        return [json.loads(line) for line in results.read_text().splitlines()]

    def compiled(self, name, code):
        source = self.here / f"{name}.cpp"
        source.write_text(code)
        checked(COMPILER, "-shared", "-fPIC", source, "-o", self.here / f"{name}.so")
        return self.here / f"{name}.so"

    def test_templates_are_short(self):
        for file, most in (("drafters/template/bigram.cpp", 60), ("verifiers/template/lenient.cpp", 90),
                           ("drafters/template_policy/running_rate.cpp", 85),
                           ("drafters/template_tree/branches.cpp", 75),
                           ("drafters/template_model/small_model.cpp", 80),
                           ("drafters/template_head/linear_head.cpp", 105)):
            self.assertLess(len((SOURCE / file).read_text().splitlines()), most, file)

    def test_the_pages_show_the_templates(self):
        for file in ("drafters/template_tree/branches.cpp", "drafters/template_policy/running_rate.cpp",
                     "drafters/template_head/linear_head.cpp", "verifiers/template/lenient.cpp"):
            page = Path(file).parts[0] + "/README.md"
            self.assertIn(f"```cpp\n{(SOURCE / file).read_text()}```\n", (SOURCE / page).read_text(),
                          f"{page} should show {file} as it is")

    @nightly
    def test_the_sweeps_of_the_templates_run(self):
        small = ("/workload/limit=2", "/workload/max_new_tokens=6", "/measure/repeats=1", "/measure/warmup=false",
                 "/engine/device=cpu", "/engine/threads=1")
        for name, runs in (("bigram", 4), ("branches", 3), ("small_model", 4), ("linear_head", 6),
                           ("running_rate", 6), ("lenient", 6)):
            with self.subTest(name):
                getattr(self, name)
                folder = self.here / f"my {name}"
                done = checked(self.program, "run", "sweep.json", "--quiet", "--json",
                               *(word for setting in small for word in ("--set", setting)), cwd=folder)
                lines = [json.loads(line) for line in (folder / "results" / "sweep.jsonl").read_text().splitlines()]
                self.assertEqual(len(lines), runs, done)
                self.assertIn(f"build/lib{name}.so", {p["path"] for line in lines for p in line["run"]["plugins"]})
                self.assertEqual({line["agreement"]["differing_texts"] for line in lines}, {0})

    def test_a_plugin_includes_one_header_of_ours(self):
        for file in (*SOURCE.glob("drafters/template*/*.cpp"), *SOURCE.glob("verifiers/template*/*.cpp"),
                     SOURCE / "tests/plugins/faults.cpp", SOURCE / "tests/plugins/remembering.cpp"):
            ours = re.findall(r'#include (".*"|<foretoken/.*>)', file.read_text())
            self.assertIn(ours, (["<foretoken/plugin.h>"], ["<foretoken/heads.h>"]), file)

    def test_the_walk_from_a_linear_layer_to_a_measured_head(self):
        self.linear_head  # noqa: B018  built
        small = ("/workload/limit=24", "/workload/max_new_tokens=40", "/measure/repeats=1", "/measure/warmup=false",
                 "/engine/device=cpu", "/engine/batch=4")
        checked(self.program, "run", "sweep.json", "--quiet", "--json",
                *(word for setting in small for word in ("--set", setting)), cwd=self.here / "my linear_head")
        results = self.here / "my linear_head" / "results" / "sweep.jsonl"
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        self.assertEqual({line["agreement"]["differing_texts"] for line in lines}, {0})
        card = (SOURCE / "experiments/models/heads/linear/README.md").read_text()
        for line in lines:
            if line["run"]["drafter"]["name"] != "linear_head":
                continue
            temperature = int(line["run"]["sampling"]["temperature"])
            expected = float(re.search(rf"^\| T={temperature} \| ([.\d]+) ", card, re.MULTILINE)[1])
            requests = line["repeats"][0]["speculative"]["requests"]
            tested, accepted = (sum(r[at][0] for r in requests if r[at]) for at in ("tested_at", "accepted_at"))
            self.assertGreater(tested, 100)
            # Rounds begin where the one before ended, which is where tokens are harder, and prompts differ.
            self.assertGreater(accepted / tested, 0.75 * expected, temperature)

    @nightly
    def test_list_says_where_an_entry_comes_from(self):
        code, out, err = self.run_it(
            "list", "--plugin", self.bigram, "--plugin", self.lenient, "--plugin", self.bigram
        )
        self.assertEqual(code, 0, err)
        self.assertRegex(out, rf"bigram: .* from {re.escape(self.bigram)}\n")
        self.assertRegex(out, rf"lenient: .* from {re.escape(self.lenient)}\n")
        self.assertEqual(out.count(" from /"), 2)
        listed = json.loads(self.run_it("list", "--json", "--plugin", self.bigram)[1])
        self.assertEqual({d["name"]: d.get("plugin") for d in listed["drafters"]}["bigram"], self.bigram)
        self.assertNotIn("plugin", listed["verifiers"][0])
        self.assertIn("drafter bigram", self.run_it("keys", "--plugin", self.bigram)[1])

    @nightly
    def test_a_sweep_with_plugins_is_exact_and_knows_them(self):
        document = {"base": BASE, "axes": {"/drafter": [{"name": "ngram"}, {"name": "bigram"}],
                                           "/verifier": [{"name": "speculative_sampling"}, {"name": "lenient"}]}}
        plugins = ["--plugin", self.bigram, "--plugin", self.lenient]
        lines = self.sweep("both", document, *plugins)
        used = {(r["drafter"]["name"], r["verifier"]["name"]): [p["path"] for p in r["plugins"]]
                for r in (line["run"] for line in lines)}
        self.assertEqual(used, {("ngram", "speculative_sampling"): [], ("ngram", "lenient"): [self.lenient],
                                ("bigram", "speculative_sampling"): [self.bigram],
                                ("bigram", "lenient"): [self.bigram, self.lenient]})
        for line in lines:
            self.assertEqual((line["agreement"]["compared_texts"], line["agreement"]["differing_texts"]), (6, 0))
        bigram = lines[2]["repeats"][0]["speculative"]
        self.assertGreater(bigram["accepted"], 0)
        self.assertEqual(len(self.sweep("both", document, *plugins)), 4, "nothing is measured again")
        changed = self.here / "changed.so"
        changed.write_bytes(Path(self.lenient).read_bytes() + b"\0")
        again = self.sweep("both", document, "--plugin", self.bigram, "--plugin", str(changed))
        self.assertEqual([line["run"]["verifier"]["name"] for line in again[4:]], ["lenient", "lenient"])

    @nightly
    def test_a_drafter_that_learns_is_measured_cold_and_warm(self):
        document = {"base": {**BASE, "drafter": {"name": "ngram"}}, "axes": {"/drafter/name": ["ngram", "remembering"]}}
        file, plugin = self.here / "learning.json", ["--plugin", self.remembering]
        file.write_text(json.dumps(document))
        for shard in ("1/2", "2/2"):
            code, _, err = self.run_it("run", str(file), *plugin, "--quiet", "--shard", shard)
            self.assertEqual(code, 0, err)
        parts = [f"results/learning.shard-{k}-of-2.jsonl" for k in (1, 2)]
        code, _, err = self.run_it("merge", *parts, "--out", "all.jsonl", "--sweep", str(file), *plugin)
        self.assertEqual(code, 0, err)
        lines = [json.loads(line) for line in (self.here / "all.jsonl").read_text().splitlines()]
        runs = {line["run"]["workload"].get("start"): line for line in lines}
        self.assertEqual(list(runs), [None, "cold", "warm"])
        side = {start: line["repeats"][0]["speculative"] for start, line in runs.items()}
        self.assertGreater(side["warm"]["accepted"], 2 * side["cold"]["accepted"])
        self.assertEqual(side["warm"]["tokens"], side["cold"]["tokens"])
        self.assertEqual({line["agreement"]["differing_texts"] for line in lines}, {0})
        shown = self.run_it("show", "all.jsonl", "--tables", "main")[1]
        self.assertRegex(shown, r"(?s)drafter +start .*\nngram +- .*\n.*remembering +cold .*\n.*remembering +warm ")
        self.assertIn("Warm: what learns had served the same requests once", " ".join(shown.split()))
        code, compared, err = self.run_it("compare", *2 * ["all.jsonl"])
        self.assertEqual(code, 0, err)
        self.assertRegex(compared, r"(?s)remembering +cold .*remembering +warm ")
        self.assertEqual(self.run_it("report", "all.jsonl", "--out", "page.html")[0], 0)
        self.assertIn('"/workload/start"', (self.here / "page.html").read_text())
        code, _, err = self.run_it("run", str(file), *plugin, "--set", "/workload/start=warm")
        self.assertEqual((code, err.count("\n")), (1, 1), err)
        self.assertIn("neither the drafter \"ngram\" nor the policy \"fixed\" learns", err)

    def expect_passes_check(self, plugin, *chosen):
        arguments = ["check", "--plugin", plugin, *chosen]
        code, out, err = self.run_it(*arguments, "--json")
        self.assertEqual((code, err), (0, ""))
        report = json.loads(out)
        self.assertTrue(report["holds"])
        self.assertEqual([p["path"] for p in report["plugins"]], [plugin])
        self.assertEqual(shlex.split(report["command"]), ["foretoken", *arguments, "--threads", "2"])
        verdicts = {law["law"]: {f["verdict"] for f in law["findings"]} for law in report["laws"]}
        for law in ("greedy", "batch", "limits", "device"):
            self.assertEqual(verdicts[law], {"holds"}, law)
        # These concern the drafter alone, or verifiers that read q or have a formula.
        for law in ("exact", "sampled", "options", "memory", "cache", "acceptance"):
            self.assertIn("holds", verdicts[law], law)
            self.assertLessEqual(verdicts[law], {"holds", "does not apply"}, law)
        # What concerns the verifier alone is tested in one combination.
        self.assertIn("holds" if "--verifier" in chosen else "does not apply", verdicts["rounds"])
        self.assertLessEqual(verdicts["rounds"], {"holds", "does not apply"})
        for law in report["laws"]:
            for finding in law["findings"]:
                if finding["verdict"] == "holds":
                    self.assertGreater(finding["cases"], 0)
                    self.assertEqual(finding["scenarios"], finding["scenarios_in_all"])
        # Half a minute on two cores; what else runs there decides nothing.
        spent = sum(f.get("seconds", 0) for law in report["laws"] for f in law["findings"])
        self.assertLess(spent, 60)

    @nightly
    def test_the_template_of_a_drafter_passes_check(self):
        self.expect_passes_check(self.bigram)

    @nightly
    def test_the_template_of_a_tree_drafter_passes_check(self):
        self.expect_passes_check(self.branches)

    @nightly
    def test_the_template_of_a_drafter_with_a_model_passes_check(self):
        self.expect_passes_check(self.small_model)

    @nightly
    def test_the_template_of_a_drafter_with_a_model_drafts_as_the_built_in_one(self):
        model = str(SOURCE / "experiments/models/draft")
        generate = ["generate", "--model", str(SOURCE / "experiments/models/target"), "--prompt", "The lamp had burned",
                    "--device", "cpu", "--max-new-tokens", "16", "--temperature", "1", "--json"]
        texts, accepted = set(), set()
        for name, plugin in (("draft_model", []), ("small_model", ["--plugin", self.small_model])):
            code, out, err = self.run_it(*generate, *plugin, "--drafter", json.dumps({"name": name, "model": model}))
            self.assertEqual(code, 0, err)
            document = json.loads(out)
            texts.add(document["outputs"][0]["text"])
            accepted.add(document["figures"]["accepted"])
        self.assertEqual((len(texts), len(accepted)), (1, 1), "the same draws of the same distributions")
        self.assertGreater(accepted.pop(), 0)

    @nightly
    def test_the_template_of_a_length_policy_passes_check(self):
        self.expect_passes_check(self.running_rate)

    @nightly
    def test_check_says_beside_what_a_policy_was_checked(self):
        chosen = ["--laws", "memory", "--policy", "running_rate"]
        both = ["check", "--plugin", self.running_rate, "--plugin", self.bigram, *chosen]
        code, out, err = self.run_it(*both)
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"Beside what: the policy 'running_rate' was checked beside the drafter \{.*\"draft_model\"")
        self.assertNotIn("Beside what", self.run_it(*both, "--drafter", "bigram")[1])

    @nightly
    def test_the_template_of_a_verifier_passes_check(self):
        for drafter in ('{"name": "draft_model", "model": "table:other"}', "ngram"):
            self.expect_passes_check(self.lenient, "--drafter", drafter, "--verifier", "lenient")

    @nightly
    def test_the_template_of_a_verifier_has_the_distribution_that_it_states(self):
        report = json.loads(checked(self.program, "check", "--plugin", self.lenient, "--drafter", "ngram", "--verifier",
                                    '{"name": "lenient", "lenience": 0.5}', "--laws", "rounds,greedy", "--json"))
        findings = {law["law"]: law["findings"] for law in report["laws"]}
        for law in ("rounds", "greedy"):
            self.assertIn("holds", {f["verdict"] for f in findings[law]}, law)
        self.assertTrue(report["holds"])

    def test_the_drafter_of_the_first_page_passes_check(self):
        self.expect_passes_check(self.repeat)

    @nightly
    def test_check_finds_the_mistakes_that_the_pages_make(self):
        for page, name, law in (("drafters/README.md", "running_rate", "memory"),
                                ("verifiers/README.md", "lenient", "rounds")):
            with self.subTest(name):
                edit, = re.findall(r"^(sed -i .*) && cmake --build build$", (SOURCE / page).read_text(), re.MULTILINE)
                getattr(self, name)
                folder = self.here / f"mistaken {name}"
                shutil.copytree(self.here / f"my {name}", folder, ignore=shutil.ignore_patterns("build", "results"))
                checked("bash", "-c", edit, cwd=folder)
                checked("cmake", "-S", folder, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Debug",
                        f"-DCMAKE_PREFIX_PATH={self.here / 'a prefix'}", f"-DCMAKE_CXX_COMPILER={COMPILER}")
                checked("cmake", "--build", folder / "build")
                plugin = str(folder / "build" / f"lib{name}.so")
                code, out, err = self.run_it("check", "--plugin", plugin, "--laws", law)
                self.assertEqual((code, err), (1, ""))
                self.assertIn(f"the law '{law}' is broken by ", out)

    @nightly
    def test_trees_of_a_plugin_branch_and_change_no_text(self):
        document = {"base": {**BASE, "drafter": {"name": "branches"}},
                    "axes": {"/policy": [{"length": 3}, {"length": 3, "nodes": 16}, {"name": "running_rate"}]}}
        lines = self.sweep("trees", document, "--plugin", self.branches, "--plugin", self.running_rate)
        for line in lines:
            self.assertEqual((line["agreement"]["compared_texts"], line["agreement"]["differing_texts"]), (6, 0))
        chain, tree, _ = (line["repeats"][0]["speculative"] for line in lines)
        self.assertGreater(tree["drafted"], chain["drafted"])
        self.assertGreater(tree["drafted"], sum(tree["drafted_at"]), "siblings")
        self.assertEqual([line["repeats"][0]["speculative"]["cut"] for line in lines], [0, 0, 0])
        cut = self.sweep("cut", {**BASE, "engine": {**BASE["engine"], "step_rows": 4}, "drafter": {"name": "branches"},
                                 "policy": {"length": 3, "nodes": 16}}, "--plugin", self.branches)
        self.assertGreater(cut[0]["repeats"][0]["speculative"]["cut"], 0)

    def test_check_finds_a_plugin_that_lies(self):
        code, out, err = self.run_it(
            "check",
            "--plugin",
            self.faults,
            "--verifier",
            "liar",
            "--drafter",
            "ngram",
            "--laws",
            "exact,greedy",
            fault="credulous",
        )
        self.assertEqual((code, err), (1, ""))
        self.assertRegex(out, r"the law 'exact' is broken by ngram .*, liar: ")
        self.assertRegex(out, r"the law 'greedy' is broken by ngram .*, liar: ")
        self.assertRegex(out, r"\n\d laws are broken \(")

    def test_generate_takes_any_policy_and_says_when_a_verifier_is_lossy(self):
        model = str(SOURCE / "experiments/models/target")
        generate = ["generate", "--model", model, "--prompt", "x", "--device", "cpu", "--max-new-tokens", "8",
                    "--drafter", "ngram", "--plugin", self.faults]
        code, plain, err = self.run_it(*generate, fault="credulous")
        self.assertEqual((code, "lossy" in err), (0, False), err)
        code, out, err = self.run_it(*generate, "--set", "/policy/name=two", fault="credulous")
        self.assertEqual((code, out), (0, plain), err)
        self.assertIn("length", self.run_it(*generate, "--set", "/policy/name=two", "--length", "3")[2])
        code, _, err = self.run_it(*generate, "--verifier", "frank", "--marks", fault="credulous")
        self.assertEqual(code, 0, err)
        self.assertIn("the verifier frank is lossy: this text is not of the distribution of plain decoding, but of the "
                      "drafter's distribution\n", err)

    def test_texts_that_differ_fail_a_run_unless_they_may(self):
        for verifier, expected in (("liar", 1), ("frank", 0)):
            file, results = self.here / f"{verifier}.json", self.here / f"{verifier}.jsonl"
            file.write_text(
                json.dumps(
                    {**BASE, "drafter": {"name": "ngram", "longest": 1, "shortest": 1}, "verifier": {"name": verifier}}
                )
            )
            code, out, err = self.run_it(
                "run", "--plugin", self.faults, str(file), "--results", str(results), "--quiet", fault="credulous"
            )
            line = json.loads(results.read_text())
            differing = line["agreement"]["differing_texts"]
            self.assertGreater(differing, 0)
            self.assertIn(f"✗{differing}/6", out)
            self.assertEqual((code, "outputs differ from plain decoding's" in err), (expected, expected == 1), err)

    @nightly
    def test_a_document_names_its_plugins(self):
        shutil.copy(self.bigram, self.here / "beside.so")
        base = {**BASE, "drafter": {"name": "bigram"}, "sampling": {"temperature": 1}}
        line, = self.sweep("named", {**base, "plugins": ["beside.so"]})
        self.assertEqual(line["run"]["plugins"][0]["path"], "beside.so")
        self.assertEqual(len(self.sweep("named", line["run"])), 1, "a complete run is its own completion")
        line["run"]["plugins"][0]["hash"] = "0" * 16
        file = self.here / "other.json"
        for document, word in ((line["run"], "not the one"), ({**base, "plugins": ["gone.so"]}, "gone.so"),
                               ({**base, "plugins": "beside.so"}, "/plugins"), (base, "unknown drafter 'bigram'"),
                               ({"base": base, "axes": {"/plugins": [["beside.so"]]}}, "cannot be varied")):
            file.write_text(json.dumps(document))
            code, out, err = self.run_it("run", str(file))
            self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
            self.assertIn(word, err)

    @nightly
    def test_generate(self):
        arguments = [
            "generate",
            "--model",
            str(SOURCE / "experiments/models/target"),
            "--prompt",
            "one two one two one",
            "--device",
            "cpu",
            "--max-new-tokens",
            "12",
        ]
        plain = self.run_it(*arguments)[1]
        code, out, err = self.run_it(*arguments, "--plugin", self.bigram, "--drafter", "bigram")
        self.assertEqual((code, out), (0, plain), err)
        self.assertIn("drafted", err)

    def test_a_plugin_calls_its_own_functions(self):
        self.assertIn("two: always two", self.run_it("list", "--plugin", self.faults)[1])

    def test_files_that_are_no_plugins(self):
        self.refused(self.here / "none.so", "there is no plugin")
        self.refused(self.here, "there is no plugin")
        text = self.here / "text.so"
        text.write_text("not a library")
        self.refused(text, "cannot be loaded", "name a shared library")
        self.refused(self.compiled("bare", "int x;"), "does not export foretoken_abi()")
        self.refused(
            self.compiled(
                "undefined",
                'void gone(); extern "C" const char* foretoken_abi() { gone(); return ""; }\n' "void (*keep)() = gone;",
            ),
            "undefined symbol",
            "gone",
        )

    def test_another_abi_is_one_sentence(self):
        header = (self.here / "a prefix" / "include" / "foretoken" / "foretoken_abi.h").read_text()
        headers = re.search(r"headers ([0-9a-f]{12})", header)[1]
        abi = 'extern "C" const char* foretoken_abi() { return "foretoken 0.0.9; headers 0123456789ab; GCC 4.8.5"; }'
        self.refused(
            self.compiled("old", abi),
            "another ABI",
            "GCC 4.8.5",
            "headers 0123456789ab",
            f"headers {headers}",
            "rebuild it against this installation",
        )
        self.refused(
            self.compiled("mute", 'extern "C" const char* foretoken_abi() { return nullptr; }'), "foretoken::kAbi"
        )
        # Built by another revision, it also needs symbols that this program lacks; the error must name the ABI.
        self.refused(self.compiled("older", "void gone(); void f() { gone(); } " + abi), "another ABI")

    @nightly
    def test_truncated_libraries(self):
        whole = Path(self.bigram).read_bytes()
        part = self.here / "part.so"
        for share in (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999):
            part.write_bytes(whole[:int(share * len(whole))])
            self.refused(part, "is truncated", f"{int(share * len(whole))} bytes", "copy it again")

    def test_a_global_object_that_throws(self):
        """This cannot be caught, so the process is aborted; the last sentence names the plugin."""
        for fault, said in (("throws", "no table was found"), ("throws an integer", "something that is no std::exception")):
            code, out, err = self.run_it("list", "--plugin", self.faults, fault=f"{fault} in a global object")
            self.assertEqual((code, out, err.count("\n")), (-signal.SIGABRT, "", 1), err)
            self.assertIn(f"foretoken: the plugin {self.faults} cannot be loaded: a constructor of its global objects threw: {said};", err)
        hostile = self.here / "x\x1b[2Jy.so"
        shutil.copy(self.faults, hostile)
        err = self.run_it("list", "--plugin", str(hostile), fault="throws in a global object")[2]
        self.assertNotIn("\x1b", err)
        self.assertIn(r"/x\u001b[2Jy.so cannot be loaded: a constructor", err)

    FUNCTIONS = {"drafter 'parrot'": ("Entry::make", "Entry::traits", "Drafter::draft", "Drafter::observe", "Drafter::forget"),
                 "policy 'cautious'": ("Entry::traits", "LengthPolicy::budgets", "LengthPolicy::observe",
                                       "LengthPolicy::forget"),
                 "verifier 'lame'": ("Entry::traits", "Verifier::verify")}

    def generate_with(self, component, fault):
        arguments = {"policy 'cautious'": ["--drafter", "ngram", "--set", '/policy={"name": "cautious"}'],
                     "drafter 'parrot'": ["--drafter", "parrot"],
                     "verifier 'lame'": ["--drafter", "ngram", "--verifier", "lame"]}
        return self.run_it("generate", "--model", str(SOURCE / "experiments/models/target"), "--prompt", "one two one two", "--device",
                           "cpu", "--max-new-tokens", "4", "--plugin", self.faults, *arguments[component], fault=fault)

    def test_whatever_a_component_throws_names_it(self):
        for component, functions in self.FUNCTIONS.items():
            for function in functions:
                for fault, said in (("throws", "no table was found"), ("throws an integer", "something that is no std::exception")):
                    with self.subTest(component, function=function, fault=fault):
                        code, _, err = self.generate_with(component, f"{fault} in {function}")
                        self.assertEqual(code, 1, err)
                        self.assertIn(f"foretoken: the {component} of the plugin {self.faults} failed in {function}, which threw: {said}; "
                                      "correct it there", err)
                        self.assertNotIn("should not happen", err)
            code, _, err = self.generate_with(component, f"throws an Error in {functions[-1]}")
            self.assertEqual((code, err), (1, "foretoken: this is my own sentence\n"))
            code, out, err = self.generate_with(component, "makes nothing")
            self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
            self.assertIn(f"the {component} of the plugin {self.faults} was not made: its Entry::make returned null",
                          err)

    def served(self, name, prompts, code):
        (self.here / f"{name}.prompts").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
        (self.here / f"{name}.json").write_text(json.dumps(
            {**BASE, "engine": {**BASE["engine"], "batch": 2, "check": True}, "drafter": {"name": "parrot"},
             "workload": {"prompts": f"{name}.prompts", "repeats": 24, "lengths": "equal", "max_new_tokens": 12}}))
        status, _, err = self.run_it("run", "--plugin", self.faults, f"{name}.json", "--results", f"{name}.jsonl",
                                     "--quiet", fault="throws in Drafter::draft of a long prompt")
        self.assertEqual(status, code, err)
        return json.loads((self.here / f"{name}.jsonl").read_text()), err

    def test_a_drafter_that_throws_for_one_request_fails_that_one_alone(self):
        prompts = ["one two one two", "to be or not to be, that is the question: " * 8, "three four three four"]
        line, err = self.served("one fails", prompts, 1)
        said = (f"the drafter 'parrot' of the plugin {self.faults} failed in Drafter::draft, "
                "which threw: no table was found")
        self.assertEqual({(f["prompt"], f["side"]) for f in line["failures"]}, {(1, "speculative")})
        self.assertEqual(len(line["failures"]) * 3, len(line["repeats"][0]["speculative"]["requests"]))
        for failure in line["failures"]:
            self.assertIn(said, failure["failure"])
        self.assertIn(said, err)
        self.assertEqual(line["agreement"]["differing_texts"], 0)
        others, _ = self.served("none fails", [prompts[0], prompts[2]], 0)

        def first_of(line, prompt):
            """The first request of a prompt: prompts are repeated until there are enough requests."""
            requests = line["repeats"][0]["speculative"]["requests"]
            request = next(r for r in requests if r["prompt"] == prompt)
            return {key: request[key] for key in ("prompt_tokens", "tokens", "rounds", "drafted", "accepted", "finish")}

        for prompt, alone in ((0, 0), (2, 1)):
            self.assertEqual(first_of(line, prompt), first_of(others, alone))
            self.assertEqual(first_of(line, prompt)["finish"], "length")

    def test_check_names_who_threw(self):
        code, out, err = self.run_it("check", "--plugin", self.faults, "--drafter", "parrot", "--laws", "cache", fault="throws in Drafter::draft")
        self.assertEqual((code, err), (1, ""))
        self.assertIn(f"the drafter 'parrot' of the plugin {self.faults} failed in Drafter::draft, which threw: no table was found", out)

    def test_a_plugin_cannot_end_the_program(self):
        check = ["check", "--plugin", self.faults, "--drafter", "parrot", "--laws", "cache"]
        calls = {"exits": "exit(0)", "exits quickly": "quick_exit(0)", "_exits": "_exit(0)", "_Exits": "_Exit(0)"}
        for place in ("a global object", "foretoken_abi()", "foretoken_plugin()", "Entry::make", "Drafter::draft"):
            for verb, call in calls.items():
                with self.subTest(place, verb=verb):
                    code, out, err = self.run_it(*check, fault=f"{verb} in {place}")
                    said = f"foretoken: {self.faults} ended the program with {call};"
                    if place == "Drafter::draft":  # one scenario after another, each in a process of its own
                        self.assertEqual((code, err), (1, ""))
                        self.assertRegex(out, r"the law 'cache' is broken by parrot, .*: \(pages of 1, temperature 1\) "
                                         f"its process ended with exit code 1; its last line: {re.escape(said)}")
                        continue
                    self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
                    self.assertIn(said, err)
        hostile = self.here / "faults\x1b[2J.so"
        shutil.copy(self.faults, hostile)
        code, _, err = self.run_it("check", "--plugin", str(hostile), *check[3:], fault="exits in Entry::make")
        self.assertEqual((code, "\x1b" in err), (1, False), err)
        self.assertIn(".so ended the program with exit(0);", err)

    def test_several_threads_that_end_the_program_give_one_sentence(self):
        for attempt in range(10):
            with self.subTest(attempt):
                code, out, err = self.run_it("list", "--plugin", self.faults,
                                             fault="exits in several threads in foretoken_plugin()")
                self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
                self.assertIn(f"foretoken: {self.faults} ended the program with exit(0);", err)

    @nightly
    def test_faults_while_registering_leave_nothing_behind(self):
        for function in ("foretoken_abi()", "foretoken_plugin()"):
            self.refused(self.faults, f"failed in {function}: no table was found", fault=f"throws in {function}")
            self.refused(self.faults, f"failed in {function}: something that is no std::exception", fault=f"throws an integer in {function}")
            self.refused(self.faults, f"failed in {function}: this is my own sentence", fault=f"throws an Error in {function}")
        self.refused(self.faults, "there is a drafter 'ngram' already (built in)", "another name", fault="taken")
        self.refused(self.faults, "verifier 'hollow'", "Entry::make", fault="no maker")
        self.refused(self.faults, "verifier 'hollow'", "fill Entry::traits", fault="no traits")
        self.refused(self.faults, "registers nothing", fault="nothing")
        twin = self.here / "twin.so"
        twin.write_bytes(Path(self.bigram).read_bytes() + b"\0")
        code, _, err = self.run_it("list", "--plugin", self.bigram, "--plugin", str(twin))
        self.assertEqual((code, err.count("\n")), (1, 1))
        self.assertIn(f"there is a drafter 'bigram' already (from {self.bigram})", err)


if __name__ == "__main__":
    unittest.main()
