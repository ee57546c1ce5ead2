"""Instructions that a program executes in small jobs, counted by callgrind.

Hash tables are seeded at random, and the system chooses addresses at random, so that counts of the same
job vary by up to 2%. The fewest of several runs vary by a few tenths of a per cent.
"""
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from measures import Failure
from record import ROOT

RUNS = 5
TEXT = "to be or not to be, that is the question\n"
# The jobs on long inputs. Starting the program takes about 8 million instructions; the inputs are so
# long that this is less than a fifth of each count, so that 2% of a count is a small part of the work.
LONG_TEXT_BYTES = 200_000
# Linux takes at most 131,072 bytes for one argument, and --decode is one.
MOST_ID_BYTES = 120_000
MESSAGES = 801  # Odd: a conversation ends with the user.
TEMPLATE = ROOT / "tests" / "text" / "data" / "chat" / "qwen3.jinja"


def available():
    return shutil.which("valgrind") is not None


def _long_text():
    """Sentences of 20,000 made-up words, the early ones more often, with numbers, capitals, accents and
    Chinese. It is the same text everywhere: random() of one seed never changes in Python."""
    draw = random.Random(1).random
    consonants, vowels = ("b", "d", "f", "k", "l", "m", "n", "p", "r", "s", "st", "t", "th", "v"), "aeiou"

    def word():
        return "".join(consonants[int(len(consonants) * draw())] + vowels[int(len(vowels) * draw())]
                       for _ in range(1 + int(4 * draw())))
    words = [word() for _ in range(20_000)]
    parts, size = [], 0
    while size < LONG_TEXT_BYTES:
        part = words[int(len(words) * draw() ** 3)]
        kind, end = draw(), draw()
        if kind < 0.03:
            part = part.capitalize()
        elif kind < 0.05:
            part = str(int(3000 * draw()))
        elif kind < 0.06:
            part += "é"
        elif kind < 0.07:
            part = "你好"
        parts.append(part + (" " if end < 0.85 else ", " if end < 0.93 else ".\n"))
        size += len(parts[-1].encode())
    return "".join(parts)


def _run(program, words, folder):
    """What the program prints; nothing is counted."""
    done = subprocess.run([str(program), *words], cwd=folder, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Failure(f"volta {' '.join(words)} ended with {done.returncode}: "
                      f"{done.stderr.strip()[-400:]}")
    return done.stdout


def _prepare_long_inputs(program, folder):
    """Writes a BPE tokenizer, a text and a conversation into the folder; returns ids of that text."""
    Path(folder, "long.txt").write_text(_long_text(), encoding="utf-8")
    _run(program, ["tokenizer", "train", "--data", "long.txt", "--out", "bpe", "--vocab", "500"], folder)
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": TEXT * 2} for index in range(MESSAGES)]
    Path(folder, "messages.json").write_text(json.dumps(messages))
    ids = _run(program, ["tokenize", "bpe", "--file", "long.txt"], folder).strip()
    return ids if len(ids) <= MOST_ID_BYTES else ids[:ids.rindex(",", 0, MOST_ID_BYTES)]


def _count(program, words, folder):
    # callgrind knows AVX2, but not AVX-512. One thread: no instructions are spent on waiting.
    environment = {**os.environ, "VOLTA_SIMD": "avx2", "VOLTA_TUNING": "off"}
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), *words,
         "--threads", "1"], cwd=folder, env=environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, check=False)
    match = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not match:
        # An argument of --decode is long.
        command = " ".join(word[:80] for word in words)
        raise Failure(f"volta {command} under callgrind ended with {done.returncode}: "
                      f"{done.stderr.strip()[-400:]}")
    return int(match[1])


def instructions(program):
    """{job: instructions} of one program: the fewest of several runs of each job."""
    generate = ["generate", "run-0", "-p", "to be", "-n", "8", "--temperature", "0"]
    tokenize = ["tokenize", "run-0", TEXT.strip()]
    encode = ["tokenize", "bpe", "--file", "long.txt"]
    render = ["chat", "run-0", "--render", "--template", str(TEMPLATE), "--messages", "messages.json"]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text(TEXT * 40)
        decode = ["tokenize", "bpe", "--decode", _prepare_long_inputs(program, folder)]
        for run in range(RUNS):
            train = ["train", "--data", "text.txt", "--out", f"run-{run}", "--tokenizer", "char",
                     "--layers", "1", "--dim", "32", "--heads", "2", "--context", "16", "--batch", "2",
                     "--eval-every", "0", "--steps", "4"]
            for name, words in (("train, 4 steps", train), ("generate 8 tokens", generate),
                                ("tokenize", tokenize), ("encode 200 KB", encode),
                                ("decode 30,000 ids", decode), ("render 801 messages", render)):
                count = _count(program, words, folder)
                found[name] = min(found.get(name, count), count)
    return found
