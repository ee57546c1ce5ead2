#!/usr/bin/env python3
"""Tests scripts/measure: one measurement at a time, and the exit code of the command."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "measure"
BENCHING = SCRIPT.parent / "benching"


class Measure(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.environment = {**os.environ, "VOLTA_CACHE_DIR": str(self.folder / "cache")}
        self.environment.pop("VOLTA_MEASURING", None)

    def start(self, *words):
        return subprocess.Popen([str(SCRIPT), *map(str, words)], env=self.environment,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run_to_its_end(self, *words):
        process = self.start(*words)
        output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    def test_the_exit_code_and_the_output_are_those_of_the_command(self):
        self.assertEqual(self.run_to_its_end("bash", "-c", "echo a; exit 7")[:2], (7, "a\n"))

    def test_two_commands_run_one_after_the_other(self):
        log = self.folder / "log"
        words = ("bash", "-c", f"echo in >> {log}; sleep 0.3; echo out >> {log}")
        for process in [self.start(*words) for _ in range(3)]:
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
        self.assertEqual(log.read_text().split(), ["in", "out"] * 3)

    def test_waiting_ends_in_time(self):
        holder = self.start("bash", "-c", "echo ready; read")  # It ends when its input is closed.
        self.assertEqual(holder.stdout.readline(), "ready\n")
        try:
            self.assertEqual(self.run_to_its_end("--wait", "0", "true")[0], 75)
        finally:
            holder.communicate(timeout=60)

    def test_the_lock_lies_where_the_program_keeps_its_results(self):
        home = self.folder / "home"
        home.mkdir()
        del self.environment["VOLTA_CACHE_DIR"]
        self.environment.update(HOME=str(home), XDG_CACHE_HOME=str(self.folder / "caches"))
        holder = self.start("bash", "-c", "echo ready; read")
        self.assertEqual(holder.stdout.readline(), "ready\n")
        try:
            self.assertTrue((home / ".volta" / "measure.lock").exists())
            # The lock of bench-guard is this one.
            guard = subprocess.run(
                [sys.executable, "-B", "-c", f"import sys; sys.path.insert(0, {str(BENCHING)!r})\n"
                 "import lock, fcntl\nfcntl.LOCK_EX |= fcntl.LOCK_NB\n"
                 "with lock.measuring(): pass"], env=self.environment, capture_output=True,
                text=True, check=False, timeout=60)
            self.assertIn("BlockingIOError", guard.stderr)
        finally:
            holder.communicate(timeout=60)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["home"])

    def test_a_measurement_can_start_another_one(self):
        self.assertEqual(self.run_to_its_end(SCRIPT, "--wait", "1", "true")[0], 0)

    def test_wrong_usage_is_refused(self):
        for words in ((), ("--wait", "5"), ("--wait", "soon", "true")):
            self.assertEqual(self.run_to_its_end(*words)[0], 2, words)


if __name__ == "__main__":
    unittest.main()
