#!/usr/bin/env python3
"""scripts/pinned_packages lists what a build needs in versions that can be installed, or says why not."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of dpkg: name, version, what it needs, what it provides.
INSTALLED = """ca-certificates\t1\topenssl (>= 3), debconf | debconf-2.0\t\tii 
openssl\t3\t, libc6\t\tii 
libc6\t2\t\t\tii 
mawk\t4\t\tawk\tii 
cdebconf\t5\tawk\tdebconf-2.0\tii 
make\t6\t\t\tii 
g++\t7\tlibc6 (>= 2)\t\tii 
unrelated\t8\t\t\tii 
removed\t9\t\t\trc 
"""
SERVED = "".join(f"{name} | {version} | http://x.org bookworm/main\n" for name, version in (
    ("ca-certificates", 1), ("openssl", 3), ("libc6", 2), ("mawk", 4), ("cdebconf", 5), ("make", 6),
    ("g++", 7)))


class PinnedPackages(unittest.TestCase):
    def run_script(self, *words, installed=INSTALLED, served=SERVED):
        """(exit status, messages, the list or None), in a small tree."""
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            shutil.copytree(ROOT / "scripts" / "governance", tree / "scripts" / "governance")
            shutil.copy(ROOT / "scripts" / "pinned_packages", tree / "scripts")
            (tree / "scripts" / "bootstrap").write_text("readonly BUILD=(g++=g++)\n")
            for name in ("containers", "bin"):
                (tree / name).mkdir()
            for name, text in (("dpkg-query", installed), ("apt-cache", served)):
                (tree / name).write_text(text)
                program = tree / "bin" / name
                program.write_text(f"#!/bin/sh\ncat '{tree / name}'\n")
                program.chmod(0o755)
            done = subprocess.run([str(tree / "scripts" / "pinned_packages"), *words], text=True,
                                  capture_output=True, check=False,
                                  env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}"})
            made = tree / "containers" / "debian-12.txt"
            return done.returncode, done.stderr, made.read_text() if made.exists() else None

    def test_what_is_wanted_and_what_that_needs_is_listed(self):
        status, said, made = self.run_script("20261126T000000Z")
        self.assertEqual((status, said), (0, ""))
        self.assertEqual(made.splitlines(), [
            "# snapshot 20261126T000000Z; written by scripts/pinned_packages", "ca-certificates=1",
            "cdebconf=5", "g++=7", "libc6=2", "make=6", "mawk=4", "openssl=3"])

    def test_a_version_that_no_archive_serves_is_refused(self):
        status, said, made = self.run_script("20261126T000000Z", served=SERVED.replace("| 3 |", "| 3.1 |"))
        self.assertEqual((status, made), (1, None))
        self.assertIn("no archive serves openssl=3; run apt-get update", said)

    def test_a_package_that_is_not_installed_is_told(self):
        status, said, made = self.run_script("20261126T000000Z",
                                             installed=INSTALLED.replace("g++\t", "g\t"))
        self.assertEqual((status, made), (1, None))
        self.assertIn("'g++' is not installed", said)

    def test_wrong_usage_is_refused(self):
        for words in ((), ("today",), ("20261126T000000Z", "more")):
            self.assertEqual(self.run_script(*words)[0], 2, words)


if __name__ == "__main__":
    unittest.main()
