#!/usr/bin/env python3
"""tests/faults/run sees each way in which a program can take a fault badly, and the shim makes calls
fail. The program is a script that plays the faults itself."""
import errno
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from load_script import load_script  # noqa: E402
from program import Limits  # noqa: E402
from scenarios import Scenario  # noqa: E402

faults = load_script(HERE / "run", "faults")

# `make FOLDER` makes a model of two files, `verify FOLDER` judges one. What it does when a call fails
# stands in place of BAD, and what the next run does in place of AGAIN.
PROGRAM = """#!/bin/sh
test "$1" != --threads || shift 2
if test "$1" = verify; then
  test "$(cat "$2/config.json")" = "$(cat "$2/data")" || { echo "$2 is damaged" >&2; exit 3; }
  exit 0
fi
test -z "$VOLTA_FAULT_COUNTS" || printf 'open 2\\nmalloc 2\\nwrite 2\\nfsync 1\\nrename 1\\nthread 1\\n' \\
  >"$VOLTA_FAULT_COUNTS"
case "$VOLTA_FAULT_CALL $VOLTA_FAULT_ERRNO" in
  " "*) AGAIN ;;
  *kill) kill -9 $$ ;;
  malloc*) NO_MEMORY ;;
  thread*) NO_THREAD ;;
  *) BAD ;;
esac
rm -rf "$2"
mkdir "$2" && echo new >"$2/config.json" && echo new >"$2/data"
"""
GOOD = {"BAD": "echo 'cannot write' >&2; exit 1", "AGAIN": "true", "NO_THREAD": "true",
        "NO_MEMORY": "echo 'out of memory' >&2; exit 4"}
MAKE = Scenario("make", ("make", "out"), "out")
REPLACE = Scenario("replace", ("make", "out"), "out", start="old", replaces=True)


def a_shared_library():
    """One that is there anyway: preloading it changes nothing."""
    return re.search(r"/\S*/libc[-.]\S*", Path("/proc/self/maps").read_text())[0]


class Campaign(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        for name, value in (("SCENARIOS", (MAKE, REPLACE)), ("make_base", self.make_base),
                            ("LIMITS", Limits(1, 1 << 28))):
            self.addCleanup(setattr, faults, name, getattr(faults, name))
            setattr(faults, name, value)

    @staticmethod
    def make_base(_, folder):
        (folder / "old").mkdir()
        for name in ("config.json", "data"):
            (folder / "old" / name).write_text("old\n")

    def campaign(self, *words, program=PROGRAM, **changes):
        """(exit status, report) of a campaign against the program."""
        for name, line in {**GOOD, **changes}.items():
            program = re.sub(rf"\b{name}\b", lambda _, line=line: line, program)
        path = self.folder / "volta"
        path.write_text(program)
        path.chmod(0o755)
        report, before = io.StringIO(), sys.argv
        sys.argv = ["run", "--program", str(path), "--shim", a_shared_library(), "--jobs", "1", *words]
        try:
            with redirect_stdout(report):
                return faults.main(), report.getvalue()
        finally:
            sys.argv = before

    def test_a_program_that_takes_faults_well_passes(self):
        status, report = self.campaign()
        self.assertEqual(status, 0, report)
        # 6 of open, 6 of write, 4 of malloc, 2 of fsync, 2 of rename, 3 of threads.
        for scenario in ("make", "replace"):
            self.assertRegex(report, rf"{scenario} +23 +0\n")
        self.assertIn("\nby family: open 12, write 12, fsync 4, rename 4, malloc 8, thread 6\n", report)

    def test_each_way_to_end_badly_is_seen(self):
        for said, changes in (
                ("signal 11", {"BAD": "kill -11 $$"}),
                ("exit code 77", {"BAD": "echo why >&2; exit 77"}),
                ("exit code 1 without a word", {"BAD": "exit 1"}),
                ("over the limit of time", {"BAD": "exec sleep 100"}),
                ("exit code 1 for want of memory", {"NO_MEMORY": "echo why >&2; exit 1"}),
                ("exit code 5 for want of a thread", {"NO_THREAD": "echo why >&2; exit 5"})):
            with self.subTest(said=said):
                words = ("open", "--sample", "1") if "limit" in said else ("open,malloc,thread",)
                status, report = self.campaign("--scenario", "make", "--calls", *words, **changes)
                self.assertEqual(status, 1, report)
                self.assertIn(said, report)

    def test_each_way_to_leave_something_bad_is_seen(self):
        fails = "echo why >&2; exit 1"
        half = 'mkdir -p "$2"; echo half >"$2/config.json"; '
        for scenario, said, changes in (
                ("make", "success without a result", {"BAD": "exit 0"}),
                ("make", "success without a result", {"BAD": 'mkdir "$2"; exit 0'}),
                ("make", "what is left does not verify: .* is damaged", {"BAD": half + fails}),
                ("replace", "neither whole nor replaced", {"BAD": 'rm "$2/data"; ' + fails}),
                ("make", "differs: out/config.json and 1 more\n", {
                    "BAD": 'mkdir "$2"; for f in config.json data; do echo bad >"$2/$f"; done; exit 0',
                    "AGAIN": 'test ! -e "$2" || exit 0'}),
                ("make", r"the next run fails \(2\): still there", {
                    "BAD": "touch lock; " + fails,
                    "AGAIN": "test ! -e lock || { echo still there >&2; exit 2; }"}),
                ("make", "left behind: scratch", {"BAD": "touch scratch; " + fails})):
            with self.subTest(said=said):
                status, report = self.campaign("--scenario", scenario, "--calls", "write", **changes)
                self.assertEqual(status, 1, report)
                self.assertRegex(report, said)

    def test_every_byte_is_compared_but_for_what_differs_from_run_to_run(self):
        place = self.folder / "place"
        texts = {"run/run.json": "{}", "run/loss.svg": "<svg/>", "run/step-2/manifest.json": "{}",
                 "run/.lock": "1", "run/metrics.jsonl": '{"step":1,"loss":2.5,"tokens_per_s":3.5}\n',
                 "cache/matmul_tuning/cpu.json": "{}"}

        def leave(**changes):
            for name, text in {**texts, **changes}.items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_text(text)
            return faults.contents(place)
        reference = leave()
        for name in ("run/.lock", "cache/matmul_tuning/cpu.json"):
            self.assertEqual(faults.compare(reference, leave(**{name: "other"})), [])
        for speed in ("9.5}", '9e5,"val_loss":1}'):
            line = '{"step":1,"loss":2.5,"tokens_per_s":' + speed + "\n"
            wrong = faults.compare(reference, leave(**{"run/metrics.jsonl": line}))
            self.assertEqual(wrong, ["differs: run/metrics.jsonl"] if "val" in speed else [])
        for name in ("run/run.json", "run/loss.svg", "run/step-2/manifest.json", "run/metrics.jsonl"):
            self.assertEqual(faults.compare(reference, leave(**{name: "other"})), [f"differs: {name}"])

    def test_a_campaign_that_can_put_in_no_fault_is_an_error(self):
        for calls, names in (("open 2\\nmalloc 2\\n", "open, malloc"), ("fsync 1\\n", "fsync"),
                             ("rename 1\\n", "rename")):
            self.assertIn(calls, PROGRAM)
            with self.assertRaisesRegex(RuntimeError, f"make: the shim sees no call of {names}$"):
                self.campaign(program=PROGRAM.replace(calls, ""))


class Shim(unittest.TestCase):
    def test_the_chosen_call_fails_and_no_other(self):
        if not shutil.which("c++"):
            self.skipTest("there is no compiler")
        with tempfile.TemporaryDirectory() as folder:
            shim = Path(folder, "shim.so")
            subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", str(HERE / "fault_shim.cc"), "-o",
                            str(shim), "-ldl"], check=True)
            data = Path(folder, "data")
            data.write_text("text")

            def cat(**settings):
                environment = {f"VOLTA_FAULT_{name}": str(value) for name, value in settings.items()}
                return subprocess.run(["cat", str(data)], capture_output=True, check=False, text=True, env={
                    **os.environ, "LC_ALL": "C", "LD_PRELOAD": str(shim), "VOLTA_FAULT_UNDER": folder,
                    **environment})
            done = cat(COUNTS=Path(folder, "counts"))
            self.assertEqual((done.returncode, done.stdout), (0, "text"))
            counts = dict(map(str.split, Path(folder, "counts").read_text().splitlines()))
            self.assertEqual((counts["open"], counts["read"]), ("1", "2"), counts)
            for call in ("open", "read"):
                done = cat(CALL=call, NUMBER=1, ERRNO=errno.ENOSPC)
                self.assertEqual((done.returncode, done.stdout), (1, ""), call)
                self.assertIn("No space left", done.stderr)
            self.assertEqual(cat(CALL="open", NUMBER=2, ERRNO=errno.EIO).stdout, "text")
            self.assertEqual(cat(CALL="read", NUMBER=1, ERRNO="kill").returncode, -9)


if __name__ == "__main__":
    unittest.main()
