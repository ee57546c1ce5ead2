#!/usr/bin/env python3
"""tests/faults/run --leaks sees memory that is lost, and only that."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from load_script import load_script  # noqa: E402
from program import Limits, Program  # noqa: E402

faults = load_script(HERE / "run", "faults")

CODE = """#include <stdlib.h>
void* volatile kept;
int main(int count, char** words) {
  (void)words;
  kept = malloc(100);
  if (count > 1) kept = malloc(200);
  return 3;
}
"""


class Leaks(unittest.TestCase):
    def test_a_lost_block_is_a_finding_and_a_kept_one_is_none(self):
        if not shutil.which("valgrind") or not shutil.which("cc"):
            self.skipTest("there is no valgrind or no C compiler")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.c").write_text(CODE)
            program = Path(folder, "a")
            subprocess.run(["cc", "-g", "-O0", f"{folder}/a.c", "-o", str(program)], check=True)
            under = Program(str(program), folder, {}, faults.UNDER_VALGRIND)
            done = under.run((), folder, Limits(60, 1 << 30))
            self.assertEqual((done.code, done.err), (3, b""))
            done = under.run(("lose",), folder, Limits(60, 1 << 30))
        wrong = faults.judge(done, "read", "EIO", False)
        self.assertEqual(len(wrong), 1, done)
        self.assertRegex(wrong[0], "^memory is lost: .*100 bytes in 1 blocks are definitely lost")

    def test_the_shim_is_not_asked_for_what_valgrind_takes_over(self):
        calls = {"open": 2, "read": 3, "malloc": 50, "mmap": 4}
        options = type("Options", (), {"seed": "1", "calls": [], "allocations": 9, "sample": 0})
        scenario = faults.SCENARIOS[0]
        for leaks, families in ((False, {"open", "read", "malloc", "mmap"}), (True, {"open", "read"})):
            options.leaks = leaks
            found = faults.faults_of(scenario, calls | {"write": 2}, options)
            self.assertEqual({fault[0] for fault in found}, families | {"write"})
            self.assertEqual(any(fault[2] == "kill" for fault in found), not leaks)


if __name__ == "__main__":
    unittest.main()
