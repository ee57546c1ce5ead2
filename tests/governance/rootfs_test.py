#!/usr/bin/env python3
"""scripts/gate_in_rootfs knows the systems of the pull request's gate, and says what it would do."""
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gate_in_rootfs"
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

    def test_wrong_usage_is_refused_with_the_usage(self):
        for words in ((), ("debian-11",), ("debian-12", "--fast")):
            result = run(*words)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn("scripts/gate_in_rootfs debian-12|ubuntu-24.04", result.stderr)


if __name__ == "__main__":
    unittest.main()
