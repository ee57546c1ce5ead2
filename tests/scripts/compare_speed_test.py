#!/usr/bin/env python3
"""Tests scripts/compare_speed with small programs that stand for two builds of Volta."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "compare_speed"

# Says that it is as fast as RATE, in the words of each command.
FAKE = """#!/usr/bin/env python3
import json, pathlib, sys
words, rate = sys.argv[1:], RATE
if words[:2] == ["bench", "infer"]:
    print(json.dumps({"lengths": [{"prompt": 16, "tokens_per_s": 100.0 * rate}]}))
elif words[:2] == ["bench", "model"]:
    print(json.dumps({"prompts": [
        {"prompt": 1, "decode_tokens_per_s": 10.0 * rate, "prefill_tokens_per_s": 1.0},
        {"prompt": 128, "decode_tokens_per_s": 1.0, "prefill_tokens_per_s": 50.0}]}))
else:
    out = pathlib.Path(words[words.index("--out") + 1])
    out.mkdir()
    (out / "metrics.jsonl").write_text('{"tokens_per_s": %f}\\n' % (1000.0 * rate) * 8)
"""


class CompareSpeed(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def compare(self, rate, *options):
        command = [sys.executable, SCRIPT, self.program("old", FAKE.replace("RATE", "1.0")),
                   self.program("new", FAKE.replace("RATE", rate)), "--rounds", "2", "--threads",
                   "1", "--output", "json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout or "null"), done.stderr

    def test_ratios_and_their_mean(self):
        code, report, errors = self.compare("1.1", "--model", "m", "--weights", "q8")
        self.assertEqual(code, 0, errors)
        ratios = {row["name"]: round(row["ratio"], 6) for row in report["results"]}
        self.assertEqual(ratios, {"infer, after 16, 1 threads": 1.1, "train, 1 threads": 1.1,
                                  "m q8, decoding, 1 threads": 1.1,
                                  "m q8, prompt of 128, 1 threads": 1.0})
        self.assertAlmostEqual(report["geometric_mean"], 1.1**0.75)

    def test_a_slower_program_fails(self):
        self.assertEqual(self.compare("0.96")[0], 6)
        self.assertEqual(self.compare("0.98")[0], 6)  # The mean is below 1.
        self.assertEqual(self.compare("0.98", "--mean", "0.97")[0], 0)

    def test_a_program_that_fails_is_told(self):
        broken = self.program("broken", "#!/bin/sh\necho no device >&2\nexit 5\n")
        done = subprocess.run([sys.executable, SCRIPT, broken, broken], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended with 5: no device", done.stderr)

    def test_wrong_arguments(self):
        self.assertEqual(self.compare("1.0", "--only", "nothing like this")[0], 2)
        self.assertEqual(self.compare("1.0", "--rounds", "0")[0], 2)
        code, _, errors = self.compare("1.0", "--only", "(")
        self.assertEqual(code, 2)
        self.assertIn("'(' is no regular expression", errors)


if __name__ == "__main__":
    unittest.main()
