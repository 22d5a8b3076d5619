"""cmake/GpuArchitectures.cmake: the GPU architectures of a build, with a fake nvidia-smi."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

CMAKE = Path(__file__).resolve().parents[2] / "cmake"


class GpuArchitectures(unittest.TestCase):
    def asked(self, answer, code=0, known="80 89 90 100 120", function="foretoken_gpu_architectures", wanted=None):
        environment = {name: value for name, value in os.environ.items() if name != "CUDAARCHS"}
        if wanted:
            environment["CUDAARCHS"] = wanted
        with tempfile.TemporaryDirectory() as folder:
            for name, option, output in [
                ("nvidia-smi", "--query-gpu=compute_cap", answer),
                ("nvcc", "--list-gpu-arch", "".join(f"compute_{a}\\n" for a in known.split())),
            ]:
                tool = Path(folder, name)
                tool.write_text(f"#!/bin/sh\n[ \"$1\" = {option} ] || exit 3\nprintf '{output}'\nexit {code}\n")
                tool.chmod(0o755)
            script = Path(folder, "ask.cmake")
            script.write_text(
                f'include("{CMAKE}/GpuArchitectures.cmake")\n{function}(found nvcc)\nmessage("found=${{found}}.")\n'
            )
            done = subprocess.run(
                ["cmake", "-P", str(script)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=dict(environment, PATH=f"{folder}:{os.environ['PATH']}"),
            )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def test_a_hopper_is_built_for_with_its_own_instructions(self):
        self.assertEqual(self.asked("9.0\\n9.0\\n"), "found=90a-real.")

    def test_every_kind_of_gpu_of_the_machine_is_built_for(self):
        self.assertEqual(self.asked("8.0\\n8.9\\n12.0\\n8.0\\n"), "found=80-real;89-real;120-real.")

    def test_what_nvcc_cannot_build_for_is_left_out_and_said(self):
        said = self.asked("6.1\\n9.0\\n12.0\\n", known="75 80 90 100")
        self.assertTrue(said.endswith("found=90a-real."), said)
        self.assertIn("compute capability 6.1", said)
        self.assertIn("compute capability 12.0", said)

    def test_no_gpu_is_nothing(self):
        self.assertEqual(self.asked("9.0\\n", 9), "found=.")
        self.assertEqual(self.asked("driver 535.104 has failed\\n"), "found=.")
        self.assertEqual(self.asked("No devices were found\\n"), "found=.")

    def test_a_machine_with_a_gpu_builds_for_it_alone(self):
        self.assertEqual(self.asked("8.9\\n", function="foretoken_cuda_architectures"), "found=89-real.")

    def test_without_a_gpu_the_build_has_code_for_every_gpu_and_ptx_for_later_ones(self):
        found = self.asked("No devices were found\\n", function="foretoken_cuda_architectures")
        self.assertEqual(found, "found=80-real;90a-real;90-virtual.")

    def test_the_environment_says_which(self):
        found = self.asked("8.9\\n", function="foretoken_cuda_architectures", wanted="90a-real")
        self.assertEqual(found, "found=90a-real.")

    def test_the_build_takes_these_architectures(self):
        """CMake's own choice, without the call before CUDA is enabled, has code for one GPU and may lack PTX."""
        lines = [line.split("#")[0].strip() for line in (CMAKE / "ForetokenCuda.cmake").read_text().splitlines()]
        call = 'foretoken_cuda_architectures(CMAKE_CUDA_ARCHITECTURES "${nvcc}")'
        self.assertEqual(lines.count(call), 1)
        self.assertLess(lines.index("include(GpuArchitectures)"), lines.index(call))
        self.assertLess(lines.index(call), lines.index("enable_language(CUDA)"))
        set_elsewhere = [line for line in lines if "CMAKE_CUDA_ARCHITECTURES" in line and line.startswith("set(")]
        self.assertEqual(set_elsewhere, [])
        found = self.asked("9.0\\n", 9, function="foretoken_cuda_architectures")
        self.assertRegex(found, "[0-9]+-virtual", "no PTX for later GPUs")


if __name__ == "__main__":
    unittest.main()
