#!/usr/bin/env python3
"""Tests scripts/bench-baseline: it sees a loss against the stored figures, is quiet when they are
equal, refuses damaged files, and replaces a file whole or not at all."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "bench-baseline"
sys.path.insert(0, str(ROOT / "scripts" / "benching"))
import baseline  # noqa: E402
import bench_guard_test  # noqa: E402  (the programs that stand for Volta and valgrind)
import record  # noqa: E402

LIMIT = 0.10
TOLD = {"date": "2026-01-02T03:04:05Z", "commit": "0123456789ab", "compiler": "g++ 12", "flags": "-O3"}


class Day:
    """A quiet machine on one day: it is up to 3% slower or faster than on others, each run varies, and
    a few are disturbed."""

    def __init__(self, seed, noise=0.02):
        self.generator, self.noise = random.Random(seed), noise
        self.level = self.generator.uniform(0.97, 1.03)

    def job(self, program):
        rate = program * self.level * self.generator.lognormvariate(0, self.noise)
        return {"job": rate * (0.7 if self.generator.random() < 0.02 else 1)}


class Judgement(unittest.TestCase):
    def verdict(self, seed, program, noise=0.02):
        before = baseline.measure(100, [Day(f"{seed} before", noise).job], {}, LIMIT, 15, 27)
        stored = {"job": baseline.rate_of(before["job"])}
        rates = baseline.measure(program, [Day(f"{seed} now", noise).job], stored, LIMIT, 9, 27)
        return baseline.judge(stored["job"], rates["job"], LIMIT)

    def test_a_loss_is_caught_each_time(self):
        for seed in range(20):
            self.assertEqual(self.verdict(seed, 80).kind, "loss", seed)

    def test_equal_programs_and_gains_are_quiet(self):
        for seed in range(20):
            self.assertEqual(self.verdict(seed, 100).kind, "ok", seed)
            self.assertEqual(self.verdict(seed, 120).kind, "ok", seed)

    def test_what_the_noise_hides_is_measured_for_longer_and_then_called_unclear(self):
        rates = iter([60.0, 88.0, 99.0] * 3)
        stored = {"job": baseline.Rate(100.0, 97.0, 103.0, 9)}
        found = baseline.measure("now", [lambda _: {"job": next(rates)}], stored, LIMIT, 3, 8)
        self.assertEqual(len(found["job"]), 8)
        self.assertEqual(baseline.judge(stored["job"], found["job"], LIMIT).kind, "unclear")


class Program(bench_guard_test.Guard):
    def setUp(self):
        super().setUp()
        self.script = SCRIPT
        self.baselines = self.folder / "baselines"
        self.rates = self.baselines / f"{record.baseline_signature('avx2')}.json"
        self.counts = self.baselines / "instructions-avx2.json"

    def valgrind(self, new=10000):
        self.tool("valgrind", bench_guard_test.VALGRIND.replace("NEW", str(new))
                  .replace("SAID", "Collected : "))

    def compare(self, program, *words):
        return self.guard("--program", program, "--folder", self.baselines, "--rounds", "3",
                          "--most", "9", *words)

    def stored(self, *words):
        """The baseline of the program `old`."""
        done = self.compare(self.program("old", 1.0), "--update", *words)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_rates_that_are_lower_are_a_loss_and_the_table_says_where(self):
        self.stored("--no-counts")
        result = self.compare(self.program("new", 0.75), "--no-counts")
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("| what | baseline | now | ratio | spread | verdict |", result.stdout)
        self.assertRegex(result.stdout, r"\| train, 1 threads, tokens/s \| \d+ \| \d+ \| 0\.7\d\d \|"
                                        r" 0\.\d+ to 0\.\d+ \| loss \|")
        self.assertRegex(result.stderr, "slower than the baseline: infer, after 16, 1 threads; ")

    def test_ten_per_cent_more_instructions_are_a_loss(self):
        self.valgrind(11000)
        self.stored("--no-rates")
        result = self.compare(self.program("new", 1.0), "--no-rates")
        self.assertEqual(result.returncode, 6, result.stderr)
        for job in bench_guard_test.COUNTED:
            self.assertIn(f"| {job}, instructions | 10000 | 11000 | 1.100 | counted | loss |",
                          result.stdout)

    def test_equal_figures_are_quiet_and_are_added_to_the_history(self):
        self.valgrind(10100)
        self.stored()
        history = self.folder / "history.jsonl"
        result = self.compare(self.program("new", 1.0), "--append", "--history", history)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertNotIn("loss", result.stdout)
        self.assertEqual(result.stdout.count("| counted | ok |"), len(bench_guard_test.COUNTED))
        figures = json.loads(history.read_text())["figures"]
        self.assertEqual(figures["tokenize, instructions"], 10100)
        self.assertAlmostEqual(figures["train, 1 threads"], 1000, delta=100)

    def test_the_files_have_what_a_reader_needs_one_figure_a_line(self):
        self.valgrind()
        self.stored()
        told, rates = baseline.read_rates(self.rates)
        self.assertEqual({**told, "date": ""}, {**TOLD, "date": ""})
        self.assertEqual({name.split(", ")[0] for name in rates}, {"infer", "train"})
        self.assertEqual(baseline.read_counts(self.counts)[1]["tokenize"], 10000)
        self.assertIn('\n    "tokenize": 10000,\n', self.counts.read_text().replace("\n  }", ",\n"))

    def test_another_cpu_is_told_how_to_write_its_baseline(self):
        self.valgrind()
        self.stored("--no-rates")
        result = self.compare(self.program("new", 0.5))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"no baseline for this CPU ({self.rates})", result.stdout)
        self.assertIn("`scripts/bench-baseline --update` writes one", result.stdout)
        self.assertEqual(result.stdout.count("| counted | ok |"), len(bench_guard_test.COUNTED))

    def test_counts_of_another_compiler_are_not_compared(self):
        self.valgrind(20000)
        self.stored("--no-rates")
        new = self.program("new", 1.0)
        new.write_text(new.read_text().replace("g++ 12", "g++ 13"))
        result = self.compare(new, "--no-rates")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the baseline's compiler is 'g++ 12', this program's 'g++ 13'", result.stdout)
        self.assertNotIn("| counted |", result.stdout)

    def test_where_nothing_can_be_counted_that_is_told(self):
        self.valgrind()
        self.stored()
        (self.folder / "bin" / "valgrind").unlink()
        for name in ("python3", "env"):
            (self.folder / "bin" / name).symlink_to(bench_guard_test.shutil.which(name))
        with mock.patch.dict(os.environ, {"PATH": ""}):
            result = self.compare(self.program("new", 1.0), "--no-rates")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not counted, because valgrind is not installed", result.stdout)
        old = self.program("new", 1.0)
        old.write_text(old.read_text().replace('"isa": "avx2"', '"isa": "sse4"'))
        self.assertIn("this CPU has no AVX2", self.compare(old, "--no-rates").stdout)

    def test_damaged_files_are_refused_and_stay(self):
        self.valgrind()
        self.stored()
        good = {path: path.read_text() for path in (self.rates, self.counts)}
        damages = [(self.rates, '"rounds": 3', '"rounds": "3"', "the figure"),
                   (self.rates, '"median": ', '"median": -', "the figure"),
                   (self.rates, '"low"', '"least"', "the figure"),
                   (self.rates, "}\n}", "}", "no JSON"),
                   (self.rates, '"rates"', '"other"', "'rates' is missing"),
                   (self.counts, "10000", "1e400", "the figure"),
                   (self.counts, "10000", "true", "the figure"),
                   (self.counts, '"version": 1', '"version": 2', "version 1"),
                   (self.counts, '"compiler": "g++ 12"', '"compiler": 12', "'compiler'"),
                   (self.counts, good[self.counts], "", "no JSON"),
                   (self.counts, good[self.counts], "[" * 100_000, "no JSON"),
                   (self.counts, good[self.counts], " " * (1 << 21), "version 1")]
        new = self.program("new", 1.0)
        for path, old, other, told in damages:
            with self.subTest(path=path.name, other=other[:40]):
                self.assertIn(old, good[path])
                damaged = good[path].replace(old, other)
                path.write_text(damaged)
                result = self.compare(new)
                self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
                self.assertIn(f"{path} is damaged: ", result.stderr)
                self.assertIn(told, result.stderr)
                self.assertIn("write it with --update", result.stderr)
                self.assertEqual(path.read_text(), damaged)
                path.write_text(good[path])

    def test_a_program_that_fails_leaves_the_baseline_as_it_was(self):
        self.valgrind()
        self.stored()
        before = {path.name: path.read_text() for path in self.baselines.iterdir()}
        result = self.compare(self.program("new", -1), "--update")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no such command", result.stderr)
        self.assertEqual({path.name: path.read_text() for path in self.baselines.iterdir()}, before)

    def test_a_busy_machine_leaves_no_baseline(self):
        old = self.program("old", 1.0)
        old.write_text(old.read_text().replace("lognormvariate(0, 0.02)", "lognormvariate(0, 0.5)"))
        result = self.compare(old, "--update", "--no-counts")
        self.assertEqual(result.returncode, 1)
        self.assertIn("too busy for a baseline, and none was written", result.stderr)
        self.assertFalse(self.baselines.exists())

    def test_a_figure_that_the_baseline_lacks_is_told(self):
        self.stored("--no-counts")
        text = self.rates.read_text()
        self.rates.write_text(text.replace('"train, 1 threads"', '"train, 999 threads"'))
        result = self.compare(self.program("new", 1.0), "--no-counts")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no rate of 'train, 1 threads'; write it with --update", result.stderr)

    def test_wrong_usage_is_refused(self):
        old = self.program("old", 1.0)
        for words in (("--program", self.folder / "none"), ("--program", old, "--rounds", "2"),
                      ("--program", old, "--limit", "1"), ("--program", old, "--count-limit", "0"),
                      ("--program", old, "--no-counts", "--no-rates"), ("--program", old, "more")):
            self.assertEqual(self.guard(*words).returncode, 2, words)


class Replace(unittest.TestCase):
    def test_a_file_is_replaced_whole_or_not_at_all(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "deep", "a.json")
            record.replace(path, "old\n")
            for name in ("write", "fsync", "replace"):
                target = "os.fdopen" if name == "write" else f"os.{name}"
                with mock.patch(target, side_effect=OSError("no space")), self.assertRaises(OSError):
                    record.replace(path, "new\n")
                self.assertEqual([item.name for item in path.parent.iterdir()], ["a.json"], name)
                self.assertEqual(path.read_text(), "old\n")
            record.replace(path, "new\n")
            self.assertEqual(path.read_text(), "new\n")
            self.assertEqual(path.stat().st_mode & 0o777, 0o644)

    def test_the_new_text_is_on_the_disk_before_the_old_one_goes(self):
        calls = []
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch("os.fsync", side_effect=lambda _: calls.append("fsync")), \
                mock.patch("os.replace", side_effect=lambda *_: calls.append("replace")):
            record.replace(Path(folder, "a"), "text")
        self.assertEqual(calls, ["fsync", "replace"])


class Signature(unittest.TestCase):
    def test_it_names_cpu_instruction_set_and_threads(self):
        text = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nstepping\t: 8\n"
        self.assertEqual(record.baseline_signature("amx", 2, text), "genuineintel-6-143-amx-2-threads")
        self.assertEqual(record.baseline_signature("avx2", 1, ""), "unknown-unknown-unknown-avx2-1-threads")

    def test_the_baselines_of_this_tree_can_be_read(self):
        for path in baseline.FOLDER.glob("*.json"):
            with self.subTest(path=path.name):
                read = baseline.read_counts if path.name == baseline.INSTRUCTIONS else baseline.read_rates
                self.assertTrue(read(path)[1])


if __name__ == "__main__":
    unittest.main()
