#!/usr/bin/env python3
"""tests/attacks/run sees each way in which a program can take a hostile file badly. The program is a
script that does one such thing for each of its commands."""
import io
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from load_script import load_script  # noqa: E402

attacks = load_script(HERE / "run", "attacks")

PROGRAM = """#!/bin/sh
case $1 in
  good) echo fine ;;
  refuses) echo "this model is damaged" >&2; exit 3 ;;
  makes) mkdir "$2" ;;
  verify) test ! -e "$2/damaged" || { echo "this is damaged" >&2; exit 3; } ;;
  crashes) kill -11 $$ ;;
  code) echo why >&2; exit 77 ;;
  silent) exit 1 ;;
  report) echo "a.cc:1:2: runtime error: signed integer overflow" >&2; exit 1 ;;
  hangs) exec sleep 100 ;;
  computes) while true; do :; done ;;
  trains) trap 'echo stopped >&2; exit 130' INT; while true; do :; done ;;
  deaf) trap '' INT; while true; do :; done ;;
  grows) exec awk 'BEGIN { text = "x"; while (1) text = text text; }' ;;
  changes) echo more >>in/model ;;
  beside) touch other ;;
  link) echo more >>../canary/config.json ;;
  prints) cat ../canary/secret.txt ;;
  copies) mkdir "$2"; cp ../canary/secret.txt "$2" ;;
  ruins) mkdir "$2"; touch "$2/damaged" ;;
esac
"""


class Seeds:
    def __init__(self, *_):
        pass


def case_of(*commands):
    """A kind whose every mutant is one small file, which the commands then read."""
    def make(case):
        case.inputs.mkdir()
        (case.inputs / "model").write_text("model")
        for words, rest in commands:
            case.add(*words.split(), **rest)
    return make


class Campaign(unittest.TestCase):
    def campaign(self, *commands, make=None):
        """(exit status, report) of a campaign whose only kind runs these commands."""
        report = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "volta")
            program.write_text(PROGRAM)
            program.chmod(0o755)
            words = ["run", "--program", str(program), "--count", "1", "--seconds", "0.5", "--mib", "64"]
            with mock.patch.object(attacks, "Seeds", Seeds), mock.patch.object(sys, "argv", words), \
                    mock.patch.dict(attacks.kinds.KINDS, {"small": make or case_of(*commands)},
                                    clear=True), redirect_stdout(report):
                return attacks.main(), report.getvalue()

    def test_commands_that_end_well_are_no_finding(self):
        status, report = self.campaign(
            ("verify in", {}), ("good", {"trusts": "in"}), ("refuses", {}),
            ("makes out", {"writes": ("out",), "result": "out"}))
        self.assertEqual(status, 0, report)
        self.assertIn("small               1         0", report)

    def expect(self, said, *commands, **rest):
        with self.subTest(said=said):
            status, report = self.campaign(*commands, **rest)
            self.assertEqual(status, 1, report)
            self.assertIn(f"1 x small, {said}", report)
            self.assertIn("--kind small --seed 1 --only 0 --keep FOLDER", report)

    def test_each_way_to_end_badly_is_seen(self):
        for word, said in (("crashes", "signal: signal 11"), ("code", "exit code: exit code 77"),
                           ("silent", "silence: exit code 1 without a word"),
                           ("report", "report: runtime error: signed integer overflow"),
                           ("hangs", "time: waits for ever"), ("computes", "time: "),
                           ("grows", "memory: ")):
            self.expect(said, (word, {}))

    def test_a_long_command_may_go_on_until_it_is_interrupted(self):
        status, report = self.campaign(("trains", {"long": True}))
        self.assertEqual(status, 0, report)
        self.expect("time: ", ("trains", {}))
        with mock.patch("program.SECONDS_TO_END", 0.2):
            self.expect("time: ", ("deaf", {"long": True}))

    def test_each_way_to_change_or_give_away_what_it_must_not_is_seen(self):
        for words, said in (("changes", "foreign file: changed in/model"),
                            ("beside", "foreign file: changed other"),
                            ("link", "foreign file: changed config.json"),
                            ("prints", "secret: what a link points at was copied")):
            self.expect(said, (words, {}))
        self.expect("secret: what a link points at was copied", ("copies out", {"writes": ("out",)}))

    def test_a_disagreement_with_verify_is_seen(self):
        self.expect("disagreement: verify calls it good", ("verify in", {}),
                    ("refuses", {"trusts": "in"}))
        self.expect("bad result: this is damaged", ("ruins out", {"writes": ("out",), "result": "out"}))

    def test_a_mutator_that_fails_is_a_finding(self):
        def fails(_):
            raise ValueError("no such field")
        self.expect("mutator: ValueError('no such field')", make=fails)


if __name__ == "__main__":
    unittest.main()
