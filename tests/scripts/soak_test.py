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
words = sys.argv[1:]
with open(sys.argv[0] + ".calls", "ab") as calls:  # Two may begin at once: each adds its own byte.
    calls.write(b".")
    calls.flush()
    count = calls.tell() - 1
out = words[words.index("--out") + 1] if "--out" in words else words[-1]
if out in ("run", "tuned", "folder") and words[0] in ("train", "convert"):
    pathlib.Path(out).mkdir(exist_ok=True)
    pathlib.Path(out, "model.safetensors").write_text(out)
WORSE
if words[0] == "chat":
    for line in sys.stdin:
        CHAT
        print("an answer", flush=True)
else:
    print(words)
"""


class Soak(unittest.TestCase):
    def soak(self, worse="pass", chat="pass", *more):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "volta")
            program.write_text(FAKE.replace("WORSE", worse).replace("CHAT", chat))
            program.chmod(0o755)
            return subprocess.run([sys.executable, "-B", str(SCRIPT), "--program", str(program),
                                   "--minutes", "0", *more], capture_output=True, text=True,
                                  check=False, timeout=120)

    def test_a_program_that_stays_the_same_passes(self):
        result = self.soak()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("soak: 4 rounds of 7 commands and 100 messages", result.stdout)

    def test_a_program_may_say_much_on_both_streams(self):
        result = self.soak("print('x' * 200_000, file=sys.stderr)",
                           "print('x' * 2_000, file=sys.stderr)")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def expect(self, text, *words):
        result = self.soak(*words)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(text, result.stdout)

    def test_each_way_to_get_worse_is_seen(self):
        self.expect("ended with 1: no more", "if count == 9: sys.exit('no more')")
        for name in ("generate", "eval", "convert"):
            self.expect(f"{name}: round 2 has another result",
                        f"if words[0] == '{name}': words.append(count)")
        self.expect("train: round 2 has another result",
                    "if words[0] == 'train' and count >= 9: "
                    "pathlib.Path('run', 'model.safetensors').write_text(str(count))")
        self.expect("files were left behind: left",
                    "if words[0] == 'eval': pathlib.Path('left').touch()")

    def test_a_chat_that_needs_more_and_more_memory_is_seen(self):
        result = self.soak("kept = []", "kept.append(b'x' * 100_000)")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"chat: \d+ KiB of memory at the end, \d+ at the beginning")
        self.assertEqual(self.soak("kept = []", "kept.append(b'x' * 100_000)", "--growth",
                                   "9").returncode, 0)

    def test_a_chat_that_fails_is_told(self):
        self.expect("volta chat gave no answer", "pass", "sys.exit('no more')")
        self.expect("volta chat ended with 7", "import atexit, os; atexit.register(os._exit, 7)"
                    " if words[0] == 'chat' else None")

    def test_what_does_not_end_is_an_error(self):
        hang = "import time; time.sleep(1000)"
        # Long enough for the commands before it on a busy machine.
        self.expect("volta eval run --data text.txt --output json did not end within 8 s",
                    f"if words[0] == 'eval': {hang}", "pass", "--seconds", "8")
        self.expect("none within 8 s", "pass", hang, "--seconds", "8")

    def test_wrong_usage_is_refused(self):
        done = subprocess.run([sys.executable, "-B", str(SCRIPT), "--program", "nothing"],
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
