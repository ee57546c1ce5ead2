#!/usr/bin/env python3
"""Tests scripts/compare_bits with small programs that stand for two builds of Volta."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "compare_bits"

# Answers `logits`, `generate` and `train` with constant results; CHANGE edits one of them.
FAKE = """#!/usr/bin/env python3
import pathlib, sys
command, arguments = sys.argv[1], sys.argv[2:]
loss, logits, tokens, code, speed = "2.5", b"logits", "1,2,3", 0, "100"
CHANGE
out = pathlib.Path(arguments[arguments.index("--out") + 1]) if "--out" in arguments else None
if command == "logits":
    out.write_bytes(logits)
elif command == "generate":
    print(tokens)
else:
    (out / "step-20").mkdir(parents=True)
    (out / "metrics.jsonl").write_text('{"loss": %s, "tokens_per_s": %s}\\n' % (loss, speed))
    (out / "step-20" / "model.safetensors").write_bytes(b"weights")
sys.exit(code)
"""


class CompareBits(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        model = self.folder / "models" / "tiny"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        (model / "golden.safetensors").write_bytes(b"ids")

    def program(self, name, change=""):
        path = self.folder / name
        path.write_text(FAKE.replace("CHANGE", change))
        path.chmod(0o755)
        return path

    def compare(self, change, *options):
        command = [sys.executable, SCRIPT, self.program("old"), self.program("new", change),
                   "--models", self.folder / "models", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        return done.returncode, done.stdout, done.stderr

    def test_equal_programs_pass(self):
        code, output, _ = self.compare("")
        self.assertEqual(code, 0, output)
        self.assertIn("10 equal, 0 different, 0 failed", output)

    def test_speed_is_no_difference(self):
        code, output, _ = self.compare('speed = "50"')
        self.assertEqual(code, 0, output)

    def test_each_kind_of_difference_is_found(self):
        for change, what, count in [('loss = "2.6"', "training", 1), ('logits = b"other"', "logits", 4),
                                    ('tokens = "1,2,4"', "greedy", 5)]:
            code, output, _ = self.compare(change)
            self.assertEqual(code, 6, output)
            self.assertRegex(output, f"DIFFERENT .*{what}")
            self.assertIn(f"{count} different", output)

    def test_a_command_that_fails_is_told(self):
        code, output, _ = self.compare('code = 3; print("no such model", file=sys.stderr)')
        self.assertEqual(code, 1)
        self.assertIn("old: done\n  new: no such model", output)

    def test_wrong_arguments(self):
        for regex in ("nothing matches this", "("):
            self.assertEqual(self.compare("", "--only", regex)[0], 2)
        done = subprocess.run([sys.executable, SCRIPT, "/nonexistent", "/nonexistent"],
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
