#!/usr/bin/env python3
"""Tests that .ci/run keeps to its time: a copy of it runs with stages that do nothing."""
import os
import subprocess
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

GATE = Path(__file__).resolve().parents[2] / ".ci" / "run"
STAGES = ["format", "includes", "policy", "test", "symbols", "check", "package", "fuzz", "lint",
          "headers", "bench", "tsan", "cuda"]
SCRIPTS = ["bootstrap", "format", "check_includes", "governance/check", "check_symbols",
           "check_coverage", "check_cuda", "check_package", "fuzz_smoke", "lint", "check_headers", "run_bench",
           "check_workflows", "check_abi", "check_reproducible", "check_interop",
           "bench-guard", "bench-baseline", "soak"]


class CiRun(unittest.TestCase):
    def setUp(self):
        temporary = TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.write(".ci/run", GATE.read_text())
        for name in SCRIPTS:
            self.script(f"scripts/{name}", "exit 0")
        for name in ["cmake", "ctest", "git"]:
            self.script(f"bin/{name}", "exit 0")
        self.write("tests/governance/gates_test.py", "")
        self.script("bin/make", "echo '100% tests passed'")
        self.script("bin/g++", "sleep 0.05")  # The machine compiles fast.
        self.script("build/release/volta", "exit 0")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def script(self, name, line):
        self.write(name, f"#!/bin/sh\n{line}\n")

    def estimate(self, stage, seconds):
        text = (self.folder / ".ci/run").read_text()
        lines = [f'  "{stage} {seconds}"' if line.startswith(f'  "{stage} ') else line
                 for line in text.splitlines()]
        self.write(".ci/run", "\n".join(lines) + "\n")

    def gate(self, *arguments, **environment):
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VOLTA_")}
        return subprocess.run(
            ["bash", self.folder / ".ci/run", *arguments], capture_output=True, text=True,
            check=False, timeout=300, env={**kept, "PATH": path, **environment})

    def result_of(self, done, stage):
        """The word behind a stage in the summary."""
        summary = done.stdout.split("=== summary")[1]
        for line in summary.splitlines():
            if line.startswith(stage + " "):
                return line[11:19].strip()
        return None

    def ending(self, stage):
        """The last line of the log of a stage."""
        return (self.folder / f"build/ci/{stage}.log").read_text().splitlines()[-1]

    def test_a_stage_alone_says_how_it_ended(self):
        self.script("scripts/format", "exit 3")
        for stage, code, end in (("lint", 0, "ok"), ("format", 3, "FAILED")):
            done = self.gate(stage)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(done.stdout, f"=== {stage}: {end}\n")
        self.script("scripts/lint", "kill -TERM $PPID; sleep 1")
        self.assertEqual(self.gate("lint").stdout, "=== lint: FAILED\n")

    def test_all_stages_run_where_there_is_time(self):
        done = self.gate()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for stage in STAGES:
            self.assertEqual(self.result_of(done, stage), "ok", stage)
        self.assertNotIn("given up", done.stdout)
        self.assertIn("100% tests passed", done.stdout)

    def test_what_does_not_fit_is_given_up_by_name(self):
        self.estimate("check", 10**9)
        self.estimate("tsan", 10**9)
        done = self.gate()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for stage in STAGES:
            expected = "GIVEN UP" if stage in ("check", "tsan") else "ok"
            self.assertEqual(self.result_of(done, stage), expected, stage)
        self.assertIn("=== check: GIVEN UP, it would take about", done.stdout)
        self.assertIn("=== check: GIVEN UP, it would take about", self.ending("check"))
        self.assertIn("run them with .ci/run STAGE: check tsan\n", done.stdout)

    def test_a_slow_machine_gives_up_more(self):
        self.script("bin/g++", "sleep 0.3")
        self.estimate("tsan", 20 * 60)  # On the machine of the estimates; minutes on this one.
        fast = self.gate(VOLTA_CI_MINUTES="60")
        slow = self.gate(VOLTA_CI_MINUTES="1")
        self.assertEqual(self.result_of(fast, "tsan"), "ok")
        self.assertEqual(self.result_of(slow, "tsan"), "GIVEN UP")

    def test_without_tests_the_gate_fails(self):
        self.estimate("test", 10**9)
        done = self.gate()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.result_of(done, "test"), "GIVEN UP")
        self.assertEqual(self.result_of(done, "total"), "FAILED")
        self.assertIn("no test has run", done.stdout)

    def test_a_stage_that_does_not_end_is_ended(self):
        self.script("scripts/lint", "exec sleep 1000")
        text = (self.folder / ".ci/run").read_text()
        self.assertIn("60 * HARD_MINUTES", text)
        self.write(".ci/run", text.replace("60 * HARD_MINUTES", "HARD_MINUTES"))  # Seconds.
        done = self.gate(VOLTA_CI_HARD_MINUTES="8")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.result_of(done, "test"), "ok")
        self.assertEqual(self.result_of(done, "lint"), "GIVEN UP")
        self.assertIsNotNone(self.result_of(done, "tsan"))
        self.assertRegex(self.ending("lint"), "^=== lint: GIVEN UP, it was ended after [0-9]+ s$")

    def test_a_failure_stops_no_other_stage(self):
        self.script("scripts/format", "exit 1")
        done = self.gate()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.result_of(done, "format"), "FAILED")
        self.assertEqual(self.ending("format"), "=== format: FAILED")
        self.assertEqual(self.ending("test"), "=== test: ok")
        self.assertEqual(self.result_of(done, "tsan"), "ok")

    def test_at_night_nothing_is_given_up(self):
        self.estimate("check", 10**9)
        for name in ["attacks/run", "faults/run", "faults/kills"]:
            self.script(f"tests/{name}", "exit 0")
        done = self.gate("--all")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for stage in [*STAGES, "workflows", "abi", "guard", "baseline", "rebuild", "interop", "attacks",
                      "faults", "soak"]:
            self.assertEqual(self.result_of(done, stage), "ok", stage)

    def test_at_night_a_stage_that_does_not_end_fails_alone(self):
        for name in ["attacks/run", "faults/run", "faults/kills"]:
            self.script(f"tests/{name}", "exit 0")
        self.script("scripts/lint", "exec sleep 1000")
        text = (self.folder / ".ci/run").read_text()
        self.assertIn("60 * STAGE_MINUTES", text)
        self.write(".ci/run", text.replace("60 * STAGE_MINUTES", "STAGE_MINUTES"))  # Seconds.
        done = self.gate("--all", VOLTA_CI_STAGE_MINUTES="8")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("=== lint: FAILED, it was ended after 8 s", done.stdout)
        self.assertEqual(self.ending("lint"), "=== lint: FAILED, it was ended after 8 s")
        self.assertEqual(self.result_of(done, "lint"), "FAILED")
        self.assertEqual(self.result_of(done, "soak"), "ok")


if __name__ == "__main__":
    unittest.main()
