"""Instructions that a program executes in small jobs, counted by callgrind: the same on each run."""
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from measures import Failure

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
    """{job: instructions} of one program."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text(TEXT * 40)
        train = ["train", "--data", "text.txt", "--out", "run", "--tokenizer", "char", "--layers", "1",
                 "--dim", "32", "--heads", "2", "--context", "16", "--batch", "2", "--eval-every", "0",
                 "--steps", "4"]
        return {"train, 4 steps": _count(program, train, folder),
                "generate 8 tokens": _count(program, ["generate", "run", "-p", "to be", "-n", "8",
                                                      "--temperature", "0"], folder),
                "tokenize": _count(program, ["tokenize", "run", TEXT.strip()], folder)}
