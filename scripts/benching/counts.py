"""Instructions that a program executes in small jobs, counted by callgrind.

Hash tables are seeded at random, and the system chooses addresses at random, so that counts of the same
job vary by up to 2%. The fewest of several runs vary by a few tenths of a per cent.
"""
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from measures import Failure

RUNS = 5
TEXT = "to be or not to be, that is the question\n"


def available():
    return shutil.which("valgrind") is not None


def _count(program, words, folder):
    # callgrind knows AVX2, but not AVX-512. One thread: no instructions are spent on waiting.
    environment = {**os.environ, "VOLTA_SIMD": "avx2", "VOLTA_TUNING": "off"}
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), *words,
         "--threads", "1"], cwd=folder, env=environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, check=False)
    match = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not match:
        raise Failure(f"volta {' '.join(words)} under callgrind ended with {done.returncode}: "
                      f"{done.stderr.strip()[-400:]}")
    return int(match[1])


def instructions(program):
    """{job: instructions} of one program: the fewest of several runs of each job."""
    generate = ["generate", "run-0", "-p", "to be", "-n", "8", "--temperature", "0"]
    tokenize = ["tokenize", "run-0", TEXT.strip()]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text(TEXT * 40)
        for run in range(RUNS):
            train = ["train", "--data", "text.txt", "--out", f"run-{run}", "--tokenizer", "char",
                     "--layers", "1", "--dim", "32", "--heads", "2", "--context", "16", "--batch", "2",
                     "--eval-every", "0", "--steps", "4"]
            for name, words in (("train, 4 steps", train), ("generate 8 tokens", generate),
                                ("tokenize", tokenize)):
                count = _count(program, words, folder)
                found[name] = min(found.get(name, count), count)
    return found
