"""The options of `foretoken check`: which components are checked, by which laws, how it is told, and the command that
repeats it. The law `limits` takes a moment."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from in_folder import InFolder

PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve() / "foretoken"
ONE = ["--drafter", "none", "--verifier", "coupled"]


class CheckCommand(InFolder):
    def check(self, *arguments, laws="limits"):
        done = subprocess.run([PROGRAM, "check", "--laws", laws, *arguments], cwd=self.here, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def report(self, *arguments, code=0, err="", **how):
        status, out, said = self.check(*arguments, "--json", **how)
        self.assertEqual((status, said), (code, err))
        return json.loads(out)

    def subjects(self, *arguments, **how):
        return self.report(*arguments, **how)["subjects"]

    def test_what_is_checked(self):
        every = ["block_verification", "coupled", "k_seq", "multi_path_block", "speculative_sampling", "target_match",
                 "traversal_verification", "without_replacement"]
        self.assertEqual(self.subjects("--drafter", "none"), [f"none, fixed 4, {name}" for name in every])
        self.assertEqual(self.subjects(*ONE), ["none, fixed 4, coupled"])
        self.assertEqual(self.subjects("--drafter", '{"name": "none"}', "--verifier", '{"name": "k_seq"}'),
                         ["none, fixed 4, k_seq"])
        self.assertEqual(self.subjects(*ONE, "--policy", '{"name": "fixed", "length": 2}'), ["none, fixed 2, coupled"])
        found = self.subjects("--verifier", "coupled")
        self.assertEqual({subject.rsplit(", ", 1)[1] for subject in found}, {"coupled"})
        self.assertGreater(len({subject.split(",")[0] for subject in found}), 3, "all drafters that it takes")
        found = self.subjects("--policy", '{"name": "fixed", "length": 3}')
        self.assertEqual({subject.split(", ")[1] for subject in found}, {"fixed 3"})

    def test_options_belong_to_the_component_that_is_named(self):
        longest = ["--options", '{"longest": 5}']
        self.assertEqual({s.split(",")[0] for s in self.subjects("--drafter", "ngram", *longest)}, {"ngram 1 5 2"})
        self.assertEqual({s.split(", ")[1] for s in self.subjects("--policy", "fixed", "--options", '{"length": 2}')},
                         {"fixed 2"})
        for arguments, count in ((["--drafter", "ngram", "--verifier", "coupled"], 2), ([], 0),
                                 (["--drafter", "ngram", "--policy", "fixed", "--verifier", "coupled"], 3)):
            status, out, err = self.check(*arguments, *longest)
            self.assertEqual((status, out), (1, ""))
            self.assertEqual(err, f"foretoken: --options are for one component, not for {count}; write them beside the "
                             "name, as --drafter '{\"name\": \"ngram\", \"longest\": 2}'\n")
        status, _, err = self.check("--drafter", "ngram", "--options", "[]")
        self.assertEqual((status, err), (1, "foretoken: --options takes a JSON object, not '[]'\n"))

    def test_the_command_that_repeats_it(self):
        quoted = ["--drafter", '{"name": "ngram"}', "--options", '{"longest": 2}', "--verifier", "coupled"]
        whole = [*ONE, "--policy", "fixed"]
        for arguments, laws, command in (
            (ONE, "limits", "--drafter none --verifier coupled --laws limits --threads 2"),
            ([*ONE, "--threads", "1"], "limits", "--drafter none --verifier coupled --laws limits --threads 1"),
            (whole, "limits,greedy",
             "--drafter none --policy fixed --verifier coupled --laws limits,greedy --threads 2"),
            ([*ONE, "--seconds", "7.5"], "limits",
             "--drafter none --verifier coupled --laws limits --seconds 7.5 --threads 2"),
            (quoted[:4], "limits", "--drafter '{\"name\": \"ngram\"}' --options '{\"longest\": 2}' --laws limits "
             "--threads 2")):
            self.assertEqual(self.report(*arguments, laws=laws)["command"], "foretoken check " + command)
            self.assertEqual(self.check(*arguments, laws=laws)[1].splitlines()[1], "foretoken check " + command)

    def test_how_it_is_told(self):
        status, text, err = self.check(*ONE)
        self.assertEqual((status, err), (0, ""))
        row = r"\nlimits  holds    {} +\d+  drafts, outputs, outcomes of the draws +\d+\.\d\n"
        self.assertRegex(text, row.format("1"))
        self.assertNotRegex(text, row.format("none, fixed 4, coupled"))
        self.assertIn("\n1 combination of drafter, policy and verifier\n", text)
        self.assertRegex(text, r"\nThe laws that were run hold, others were not run \(\d+\.\d s\)\.\n$")
        details = self.check(*ONE, "--details")[1]
        for which in ("1", "none, fixed 4, coupled"):
            self.assertRegex(details, row.format(which))
        report = self.report(*ONE)
        self.assertEqual((report["holds"], report["plugins"], report["left_out"], report["broken"]), (True, [], [], []))
        laws = {law["law"]: {f["verdict"] for f in law["findings"]} for law in report["laws"]}
        self.assertEqual(laws["limits"], {"holds"})
        self.assertNotIn("holds", set().union(*(v for law, v in laws.items() if law != "limits")))

    def test_only_what_applies_is_shown_to_hold(self):
        none = "foretoken: nothing was shown: none of the named laws applies to what was named\n"
        report = self.report("--drafter", "none", "--verifier", "typical_acceptance", code=1, err=none)
        self.assertFalse(report["holds"])
        status, text, err = self.check("--drafter", "none", "--verifier", "typical_acceptance")
        self.assertEqual((status, err), (1, ""), "the report says it")
        self.assertIn("nothing was shown: none of the named laws applies to what was named", text)

    def test_bad_input(self):
        for arguments, code, words in ((["--threads", "0"], 2, "--threads"), (["--threads", "257"], 2, "--threads"),
                                       (["--seconds", "1000001"], 2, "a number from 0 to 1000000"),
                                       (["--plugin", "none.so"], 1, "there is no plugin none.so"),
                                       (["--drafter", '{"longest": 2}'], 1, "--drafter"),
                                       (["--drafter", "ngrm"], 1, "did you mean 'ngram'"),
                                       (["coupled"], 2, "coupled")):
            status, out, err = self.check(*arguments)
            self.assertEqual((status, out, err.count("\n")), (code, "", 1), err)
            self.assertIn(words, err)
        for bad in ("-0.5", "x", "nan", "1e7"):
            status, out, err = self.check(f"--seconds={bad}")
            self.assertEqual((status, out), (2, ""))
            self.assertIn(f"foretoken: --seconds: '{bad}' is not in range; give a number from 0 to 1000000; see "
                          "foretoken --help", err)


if __name__ == "__main__":
    unittest.main()
