#!/usr/bin/env python3
"""Tests scripts/bench-guard: it sees a loss of 10%, and is quiet when both programs are the same."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "bench-guard"
sys.path.insert(0, str(ROOT / "scripts" / "benching"))
import counts  # noqa: E402
import paired  # noqa: E402
import record  # noqa: E402

LIMIT = 0.05
# The jobs whose instructions are counted, in their order.
COUNTED = ("train, 4 steps", "generate 8 tokens", "tokenize", "encode 200 KB", "decode 30,000 ids",
           "render 801 messages")
LONG_TEXT_SHA256 = "644ef6989f85bd63ae74d2e40fb071a6a72d6bb25e252e7175a4eaad02eb5944"

# A program that stands for Volta: SPEED times a rate that the machine disturbs from call to call.
FAKE = """#!/usr/bin/env python3
import json, os, pathlib, random, sys
words, here = sys.argv[1:], pathlib.Path(sys.argv[0])
calls = here.with_suffix(".calls")
count = int(calls.read_text()) if calls.exists() else 0
calls.write_text(str(count + 1))
rate = SPEED * random.Random(f"SEED {here.name} {count}").lognormvariate(0, 0.02)
if words[0] == "version":
    print(json.dumps({"commit": "0123456789ab", "isa": "avx2", "compiler": "g++ 12", "flags": "-O3"}))
elif words[:2] == ["bench", "infer"]:
    print(json.dumps({"lengths": [{"prompt": 16, "tokens_per_s": 100.0 * rate}]}))
elif words[0] in ("generate", "tokenize", "tokenizer", "chat"):
    if "--file" in words:
        print(",".join(map(str, range(30_000))))  # More ids than one argument can hold.
elif words[0] == "train" and SPEED > 0:
    out = pathlib.Path(words[words.index("--out") + 1])
    out.mkdir()
    (out / "metrics.jsonl").write_text('{"tokens_per_s": %f}\\n' % (1000.0 * rate) * 8)
else:
    sys.exit("no such command")
"""

# Stands for valgrind: runs the program and counts by its name.
VALGRIND = """#!/bin/sh
while case $1 in --*) ;; *) false ;; esac; do shift; done
"$@" || exit
test "$VOLTA_SIMD" = avx2 || exit 9
case $1 in */new) echo "==1== SAIDNEW" >&2 ;; *) echo "==1== SAID10000" >&2 ;; esac
"""
# Stands for git: the first checkout leaves one file and ends the guard, as a loss of power would.
GIT = """#!/bin/sh
case " $* " in *" checkout "*) if mkdir FOLDER/stopped 2>/dev/null; then
  for last; do :; done
  test "$1" != -C || cd "$2"
  LEFT
  kill -9 $PPID
  exit 1
fi ;; esac
exec REAL "$@"
"""
# Stands for cmake: "builds" the program from two files of the tree.
CMAKE = """#!/bin/sh
test "$1" = --build || exit 0
mkdir -p build/release
cat CMakeLists.txt volta.py | tail -n +2 > build/release/volta
chmod +x build/release/volta
"""


class Machine:
    """Programs on a machine with noise: slow drift that both feel, small noise, and now and then a
    run that something else has disturbed."""

    def __init__(self, seed, noise=0.03):
        self.generator, self.noise, self.time = random.Random(seed), noise, 0

    def job(self, program):
        self.time += 1
        drift = 1 + 0.1 * (self.time % 40) / 40
        rate = program * drift * self.generator.lognormvariate(0, self.noise)
        if self.generator.random() < 0.05:
            rate *= 0.7
        return {"job": rate}

    def verdict(self, old, new, rounds=9, most=27):
        rates = paired.measure((old, new), [self.job], LIMIT, rounds, most)
        return paired.judge(*rates["job"], LIMIT)


class Statistics(unittest.TestCase):
    def test_a_loss_of_ten_per_cent_is_caught_each_time(self):
        for seed in range(20):
            verdict = Machine(seed).verdict(100, 90)
            self.assertEqual(verdict.kind, "loss", (seed, verdict))
            self.assertLess(verdict.high, 1)

    def test_twenty_runs_of_the_same_program_are_quiet(self):
        for seed in range(20):
            verdict = Machine(seed).verdict(100, 100)
            self.assertEqual(verdict.kind, "ok", (seed, verdict))
            self.assertLess(verdict.low, 1.02)
            self.assertGreater(verdict.high, 0.98)

    def test_a_gain_and_a_small_loss_are_no_loss(self):
        for seed in range(20):
            self.assertEqual(Machine(seed).verdict(100, 120).kind, "ok")
            self.assertEqual(Machine(seed, noise=0.005).verdict(100, 98).kind, "ok")

    def test_what_the_noise_hides_is_measured_for_longer_and_then_called_unclear(self):
        new = iter([0.7, 0.9, 1.4] * 3)
        rates = paired.measure(("old", "new"), [lambda program: {
            "job": 1.0 if program == "old" else next(new)}], LIMIT, 3, 8)
        self.assertEqual(len(rates["job"][0]), 8)
        self.assertEqual(paired.judge(*rates["job"], LIMIT).kind, "unclear")

    def test_the_interval_holds_the_median_and_narrows_with_rounds(self):
        generator = random.Random(3)
        values = [generator.gauss(0, 1) for _ in range(200)]
        few, many = paired.interval(values[:10]), paired.interval(values)
        self.assertLess(many[1] - many[0], few[1] - few[0])
        self.assertEqual(few, paired.interval(values[:10]))


class Guard(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        (self.folder / "bin").mkdir()
        self.script = SCRIPT

    def tool(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def program(self, name, speed, seed=1):
        path = self.folder / name
        path.write_text(FAKE.replace("SPEED", str(speed)).replace("SEED", str(seed)))
        path.chmod(0o755)
        return path

    def guard(self, *words):
        return subprocess.run(
            [sys.executable, "-B", str(self.script), *map(str, words)], capture_output=True, text=True,
            check=False, env={**os.environ, "VOLTA_CACHE_DIR": str(self.folder / "cache"),
                              "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})


class Program(Guard):
    def test_a_slower_program_fails_and_the_table_says_where(self):
        result = self.guard(self.program("old", 1.0), self.program("new", 0.9), "--no-counts",
                            "--rounds", "5", "--most", "9")
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertRegex(result.stdout, r"\| what \| before \| after \| ratio \| spread \| verdict \|")
        self.assertRegex(result.stdout, r"\| train, 1 threads, tokens/s .* \| loss \|")
        self.assertIn("slower: infer, after 16, 1 threads; train, 1 threads", result.stderr)

    def test_the_same_program_passes_and_its_figures_are_kept(self):
        history = self.folder / "history.jsonl"
        history.write_text('{"an": "older line"}\n')
        result = self.guard(self.program("old", 1.0), self.program("new", 1.0), "--no-counts",
                            "--rounds", "3", "--only", "infer", "--append", "--history", history)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = history.read_text().splitlines()
        self.assertEqual((len(lines), lines[0]), (2, '{"an": "older line"}'))
        told = json.loads(lines[1])
        self.assertEqual(sorted(told), ["commit", "date", "figures", "isa", "machine"])
        self.assertAlmostEqual(told["figures"]["infer, after 16, 1 threads"], 100, delta=10)

    def test_the_table_is_one_that_the_policy_takes(self):
        result = self.guard(self.program("old", 1.0), self.program("new", 1.0), "--no-counts",
                            "--rounds", "3", "--only", "infer")
        sys.path.insert(0, str(ROOT / "scripts" / "governance"))
        import policy
        self.assertTrue(policy._has_bench(result.stdout))

    def test_a_command_that_fails_and_wrong_usage_are_told(self):
        old = self.program("old", 1.0)
        broken = self.guard(old, self.program("new", -1), "--no-counts", "--rounds", "3")
        self.assertEqual(broken.returncode, 1)
        self.assertIn("no such command", broken.stderr)
        for words in ((old, "no-such-commit"), (old, old, "--rounds", "2"),
                      (old, old, "--limit", "2"), (old, old, "--threads", "many"),
                      (old, old, "--only", "nothing"), (old, old, "--only", "(")):
            self.assertEqual(self.guard(*words).returncode, 2, words)

    def counted(self, new, said="Collected : "):
        """The guard where valgrind counts 10000 instructions for the program `old`, `new` for `new`."""
        self.tool("valgrind", VALGRIND.replace("NEW", str(new)).replace("SAID", said))
        return self.guard(self.program("old", 1.0), self.program("new", 1.0), "--rounds", "3",
                          "--only", "infer")

    def test_more_instructions_are_a_loss(self):
        result = self.counted(10300)
        self.assertEqual(result.returncode, 6, result.stderr)
        for job in COUNTED:
            self.assertIn(f"| {job}, instructions | 10000 | 10300 | 1.030 | counted | loss |",
                          result.stdout)
        self.assertIn("slower: " + "; ".join(COUNTED), result.stderr)

    def test_a_few_more_instructions_and_fewer_are_none(self):
        for new in (10100, 5000):
            result = self.counted(new)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout.count("| counted | ok |"), len(COUNTED))

    def test_the_fewest_instructions_of_several_runs_count(self):
        self.tool("valgrind", VALGRIND.replace("SAIDNEW", f"Collected : $(sed 1q {self.folder}/counts)")
                  .replace('case $1 in */new)', f'sed -i 1d {self.folder}/counts\ncase $1 in */new)')
                  .replace("SAID", "Collected : "))
        # By turns of the jobs; the first line goes before it is read.
        others = [11000] * (len(COUNTED) - 3)
        rows = [[20000, 9000, 10000, *others], [10100, 9000, 30000, *others],
                [10200, 9000, 10150, *others]] + [[11000] * len(COUNTED)] * 2
        text = "".join(f"{count}\n" for row in [[0] * 5 * len(COUNTED), *rows]
                       for count in row) + "0\n"
        (self.folder / "counts").write_text("0\n" + text)
        result = self.guard(self.program("old", 1.0), self.program("new", 1.0), "--rounds", "3",
                            "--only", "infer")
        for job, count in (("train, 4 steps", 10100), ("generate 8 tokens", 9000), ("tokenize", 10000)):
            self.assertRegex(result.stdout, rf"\| {job}, instructions \| 10000 \| {count} \|")

    def test_the_long_jobs_have_long_inputs_that_never_change(self):
        self.tool("valgrind", VALGRIND.replace('"$@" || exit', textwrap.dedent(f"""\
            shift
            for word; do printf '%s ' "$word"; done >> {self.folder}/words; echo >> {self.folder}/words
            case " $* " in
              *" --file long.txt "*) sha256sum long.txt > {self.folder}/long ;;
              *" --messages "*) cp messages.json {self.folder} ;;
            esac""")).replace('case $1 in */new)', "case new in */new)")
            .replace("SAID", "Collected : "))
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        with mock.patch.dict(os.environ, {"PATH": path}):
            counts.instructions(self.program("old", 1.0))
        commands = (self.folder / "words").read_text().splitlines()
        self.assertEqual(len(commands), counts.RUNS * len(COUNTED))
        ids = next(line.split()[3] for line in commands if " --decode " in line)
        self.assertGreater(len(ids), 100_000)
        self.assertRegex(ids, r"^0,1,[\d,]*\d$")
        # Another text would have other counts than those that are stored.
        self.assertEqual((self.folder / "long").read_text().split()[0], LONG_TEXT_SHA256)
        roles = [message["role"] for message in json.loads((self.folder / "messages.json").read_text())]
        self.assertEqual((len(roles), roles[-1]), (801, "user"))
        self.assertTrue(counts.TEMPLATE.is_file())

    def test_a_count_that_is_missing_is_told(self):
        result = self.counted(10000, said="Profiled: ")
        self.assertEqual(result.returncode, 1)
        self.assertIn("under callgrind ended with 0", result.stderr)


class Build(Guard):
    def setUp(self):
        super().setUp()
        self.tree = self.folder / "tree"
        shutil.copytree(ROOT / "scripts" / "benching", self.tree / "scripts" / "benching",
                        ignore=shutil.ignore_patterns("__pycache__"))
        self.script = Path(shutil.copy(SCRIPT, self.tree / "scripts"))
        (self.tree / ".gitignore").write_text("build\n")
        (self.tree / "CMakeLists.txt").write_text("# made of\n")
        self.program("tree/volta.py", 1.0)
        for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "a"]):
            subprocess.run(["git", "-C", str(self.tree), "-c", "user.name=a", "-c", "user.email=a@b",
                            *words], check=True, capture_output=True)

    def test_a_commit_whose_checkout_was_stopped_is_built_the_next_time(self):
        self.tool("cmake", CMAKE)
        words = ("HEAD", "HEAD", "--rounds", "3", "--only", "infer", "--no-counts")
        for left in (":", 'REAL checkout "$last" -- CMakeLists.txt'):
            self.tool("git", GIT.replace("LEFT", left).replace("REAL", shutil.which("git"))
                      .replace("FOLDER", str(self.folder)))
            self.assertEqual(self.guard(*words).returncode, -9)
            result = self.guard(*words)
            self.assertEqual(result.returncode, 0, result.stderr)
            shutil.rmtree(self.tree / "build")
            (self.folder / "stopped").rmdir()


class Signature(unittest.TestCase):
    def test_it_names_the_kind_of_cpu(self):
        text = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nstepping\t: 8\n"
        self.assertEqual(record.signature(text, 2), "genuineintel-6-143-8-2-cores")
        self.assertEqual(record.signature("", 1), "unknown-unknown-unknown-unknown-1-cores")
        self.assertRegex(record.signature(), r"^[a-z0-9-]+-\d+-cores$")


if __name__ == "__main__":
    unittest.main()
