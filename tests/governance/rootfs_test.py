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

    def inside(self, folder, *words, **environment):
        """The command that enters the system, as (its variables, the script that it runs there); chroot
        and what makes a system are replaced by scripts that only tell."""
        tools = Path(folder, "bin")
        tools.mkdir(exist_ok=True)
        for name, text in (("mmdebstrap", 'mkdir -p "$6/etc"'), ("git", "exit 0"), ("mount", "exit 0"),
                           ("unshare", 'while [ "$1" != bash ]; do shift; done; exec "$@"'),
                           ("chroot", 'shift; while [ "$1" != bash ]; do printf "%s\\0" "$1"; shift; done\n'
                                      'printf "%s\\0" "$3"')):
            Path(tools, name).write_text(f"#!/bin/sh\n{text}\n")
            Path(tools, name).chmod(0o755)
        system = Path(folder, "system")
        (system / "etc").mkdir(parents=True, exist_ok=True)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("VOLTA_")}
        done = subprocess.run([str(SCRIPT), "debian-12", *words], capture_output=True, text=True, check=False,
                              env={**variables, "PATH": f"{tools}:{os.environ['PATH']}",
                                   "VOLTA_ROOTFS": str(system), **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        *told, script = done.stdout.rstrip("\0").split("\0")
        return set(told), script

    @unittest.skipUnless(os.geteuid() == 0 and KEYRING.exists(), f"this needs root and {KEYRING}")
    def test_the_limits_of_time_reach_the_gate(self):
        with tempfile.TemporaryDirectory() as folder:
            told, _ = self.inside(folder)
            self.assertLessEqual({"VOLTA_CI_MINUTES=60", "VOLTA_CI_HARD_MINUTES=75"}, told)
            told, _ = self.inside(folder, VOLTA_CI_MINUTES="300", VOLTA_CI_HARD_MINUTES="400")
            self.assertLessEqual({"VOLTA_CI_MINUTES=300", "VOLTA_CI_HARD_MINUTES=400"}, told)

    @unittest.skipUnless(os.geteuid() == 0 and KEYRING.exists(), f"this needs root and {KEYRING}")
    def test_inside_it_runs_the_gate_stages_or_make_verify_and_ends_at_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            _, script = self.inside(folder)
            Path(folder, ".ci").mkdir()
            for path, text in ((".ci/run", 'echo "gate $*"; test "$1" != lint'), ("bin/make", 'echo "make $*"')):
                Path(folder, path).write_text(f"#!/bin/sh\n{text}\n")
                Path(folder, path).chmod(0o755)
            script = script.replace("/volta", folder)
            for words, code, told in (((), 0, "gate \n"), (("verify",), 0, "make verify\n"),
                                      (("test", "verify"), 0, "gate test\nmake verify\n"),
                                      (("lint", "verify"), 1, "gate lint\n")):
                done = subprocess.run(["bash", "-c", script, "gate", *words], capture_output=True, text=True,
                                      check=False,
                                      env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"})
                self.assertEqual((done.returncode, done.stdout), (code, told), done.stderr)

    def test_wrong_usage_is_refused_with_the_usage(self):
        for words in ((), ("debian-11",), ("debian-12", "--fast")):
            result = run(*words)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn("scripts/gate_in_rootfs debian-12|ubuntu-24.04", result.stderr)


if __name__ == "__main__":
    unittest.main()
