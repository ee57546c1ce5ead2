#!/usr/bin/env python3
"""Tests scripts/soak with programs that stand for Volta and get worse in one way each."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "soak"

# Writes what its commands leave; `count` is the number of calls so far.
FAKE = """#!/usr/bin/env python3
import pathlib, sys
words, calls = sys.argv[1:], pathlib.Path(sys.argv[0] + ".calls")
count = int(calls.read_text()) if calls.exists() else 0
calls.write_text(str(count + 1))
out = words[words.index("--out") + 1] if "--out" in words else words[-1]
if out in ("run", "tuned", "folder") and words[0] in ("train", "convert"):
    pathlib.Path(out).mkdir(exist_ok=True)
    pathlib.Path(out, "model.safetensors").write_text(out)
WORSE
print(words)
"""


class Soak(unittest.TestCase):
    def soak(self, worse="pass", *more):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "volta")
            program.write_text(FAKE.replace("WORSE", worse))
            program.chmod(0o755)
            return subprocess.run([sys.executable, "-B", str(SCRIPT), "--program", str(program),
                                   "--minutes", "0", *more], capture_output=True, text=True,
                                  check=False)

    def test_a_program_that_stays_the_same_passes(self):
        result = self.soak()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("soak: 4 rounds of 7 commands", result.stdout)

    def expect(self, worse, text):
        result = self.soak(worse)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(text, result.stdout)

    def test_each_way_to_get_worse_is_seen(self):
        self.expect("if count == 9: sys.exit('no more')", "ended with 1: no more")
        self.expect("if words[0] == 'generate': words.append(count)",
                    "generate: round 2 has another result")
        self.expect("if words[0] == 'train' and count >= 7: "
                    "pathlib.Path('run', 'model.safetensors').write_text(str(count))",
                    "train: round 2 has another result")
        self.expect("if words[0] == 'eval': pathlib.Path('left').touch()",
                    "files were left behind: left")
        self.expect("if words[0] == 'eval': kept = b'x' * (count * 3_000_000)",
                    "eval: ")

    def test_wrong_usage_is_refused(self):
        done = subprocess.run([sys.executable, "-B", str(SCRIPT), "--program", "nothing"],
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
