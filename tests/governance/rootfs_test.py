#!/usr/bin/env python3
"""scripts/gate_in_rootfs knows the systems of the pull request's gate, and says what it would do."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gate_in_rootfs"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITES = {"debian-12": "bookworm", "ubuntu-24.04": "noble"}


def run(*words):
    return subprocess.run([str(SCRIPT), *words], capture_output=True, text=True, check=False)


class Rootfs(unittest.TestCase):
    def test_the_systems_are_those_of_the_workflow(self):
        workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
        images = re.search(r"^\s*image: \[([^\]]*)\]", workflow, re.MULTILINE)[1]
        self.assertEqual({image.replace(":", "-") for image in re.findall(r'"([^"]+)"', images)},
                         set(SUITES))

    def test_it_unpacks_the_suite_clones_the_tree_and_enters_it(self):
        for system, suite in SUITES.items():
            result = run(system, "--print", "format", "policy")
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = result.stdout.splitlines()
            self.assertRegex(lines[0], rf"^mmdebstrap .* {suite} ROOT .*{suite}-security")
            self.assertIn(f"git clone --quiet --no-hardlinks {ROOT} ROOT/volta", lines)
            self.assertRegex(result.stdout, r"chroot(.|\n)*\.ci/run(.|\n)* format policy$")

    @unittest.skipUnless(os.geteuid() == 0 and KEYRING.exists() and shutil.which("unshare"),
                         f"this needs root, unshare and {KEYRING}")
    def test_a_folder_that_it_made_is_removed_and_one_of_the_user_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            places = [Path(folder, name) for name in ("bin", "mine", "made")]
            for place in places:
                place.mkdir()
            Path(places[0], "mmdebstrap").write_text('#!/bin/sh\necho "$@"\nexit 7\n')
            Path(places[0], "mmdebstrap").chmod(0o755)
            Path(places[1], "data").write_text("dear")
            environment = {**os.environ, "PATH": f"{places[0]}:{os.environ['PATH']}",
                           "TMPDIR": str(places[2])}
            environment.pop("VOLTA_ROOTFS", None)
            for more in ({}, {"VOLTA_ROOTFS": str(places[1])}):
                result = subprocess.run([str(SCRIPT), "debian-12"], capture_output=True, text=True,
                                        check=False, env={**environment, **more})
                self.assertEqual(result.returncode, 7, result.stderr)
                self.assertIn(more.get("VOLTA_ROOTFS", str(places[2])), result.stdout)
            self.assertEqual(list(places[2].iterdir()), [])
            self.assertEqual(Path(places[1], "data").read_text(), "dear")

    def test_wrong_usage_is_refused_with_the_usage(self):
        for words in ((), ("debian-11",), ("debian-12", "--fast")):
            result = run(*words)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn("scripts/gate_in_rootfs debian-12|ubuntu-24.04", result.stderr)


if __name__ == "__main__":
    unittest.main()
