#!/usr/bin/env python3
"""This tree keeps its own rules, and what GitHub reads agrees with it."""
import re
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "scripts" / "governance" / "check"
sys.dont_write_bytecode = True
sys.path.insert(0, str(CHECK.parent))
from tree import Tree  # noqa: E402


def run(*arguments):
    return subprocess.run([sys.executable, "-B", str(CHECK), *arguments], capture_output=True,
                          text=True, check=False)


class ThisTree(unittest.TestCase):
    def test_all_checks_pass_in_less_than_ten_seconds_of_computing(self):
        def seconds():
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            return used.ru_utime + used.ru_stime
        started = seconds()
        result = run()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertLess(seconds() - started, 10)

    def test_every_folder_has_an_owner(self):
        owners = (ROOT / ".github" / "CODEOWNERS").read_text()
        listed = set(re.findall(r"^/([\w.]+)/\s+@", owners, re.MULTILINE))
        paths = Tree.read().paths
        self.assertEqual({path.split("/")[0] for path in paths if "/" in path} - listed, set())
        for path in re.findall(r"^/(\S+)/\s", owners, re.MULTILINE):
            self.assertTrue((ROOT / path).is_dir(), path)


class Program(unittest.TestCase):
    def test_without_git_the_folder_itself_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("src/a.cc", "build/b.cc", ".git/c"):
                path = Path(folder, name)
                path.parent.mkdir(parents=True)
                path.write_text("x")
            self.assertEqual(Tree.read(folder).paths, {"src/a.cc"})

    def test_explain_prints_every_rule(self):
        text = run("--explain").stdout
        for rule in ("calls.process", "policy.parity", "golden.help", "workflows.pinned"):
            self.assertRegex(text, rf"(?m)^{re.escape(rule)} +[A-Z]")

    def test_wrong_usage_is_refused(self):
        self.assertEqual(run("dance").returncode, 2)
        self.assertEqual(run("--body", "x").returncode, 2)


if __name__ == "__main__":
    unittest.main()
