#!/usr/bin/env python3
"""bench/peers/run installs what is missing and says what it could not get: a copy of it runs in a small
tree, where apt-get, dpkg-query, python3 and cmake only write down what they were asked for."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ["libopenblas-dev", "libblis4", "libdnnl-dev", "libxsmm-dev", "python3-venv"]
RECORD = '#!/bin/sh\necho "$(basename "$0") $*" >> asked\n'
PYTHON = RECORD + """
case "$2" in
  venv) test -z "$NO_VENV" && mkdir -p "$3/bin" && cp bin/pip "$3/bin/pip" ;;
  zipfile) mkdir -p "$5/a.data/data/lib" && touch "$5/a.data/data/lib/libdnnl.so" ;;
esac
"""
PIP = RECORD + 'test -z "$NO_PYPI" && touch build/peers/a.whl\n'


class PeersRun(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.tree = Path(temporary.name)
        for name in ("bench/peers/run", "scripts/bootstrap"):
            self.write(name, (ROOT / name).read_text())
        for name, text in (("apt-get", RECORD), ("cmake", RECORD), ("python3", PYTHON), ("pip", PIP),
                           ("dpkg-query", "#!/bin/sh\n"),
                           ("sudo", '#!/bin/sh\nexec "$@"\n')):
            self.write(f"bin/{name}", text)
        self.write("build/release/bench/peers/peers_matmul", '#!/bin/sh\necho "measured $*"\n')

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def peers(self, **environment):
        """(what the programs were asked for, messages); the program is measured in any case."""
        (self.tree / "asked").write_text("")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VOLTA_")}
        done = subprocess.run(
            ["bash", str(self.tree / "bench/peers/run"), "--threads", "1"], text=True, check=False,
            capture_output=True, cwd=self.tree,
            env={**kept, "PATH": f"{self.tree / 'bin'}:{os.environ['PATH']}", **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "measured --threads 1\n")
        return (self.tree / "asked").read_text(), done.stderr

    def test_what_is_missing_is_installed_behind_an_update(self):
        if not shutil.which("dpkg-query"):
            self.skipTest("scripts/bootstrap installs on Debian and Ubuntu only")
        asked, _ = self.peers()
        update, install = [line.split() for line in asked.splitlines() if line.startswith("apt-get")]
        self.assertIn("update", update)
        self.assertIn("libhwy-dev", install)
        self.assertLessEqual(set(LIBRARIES), set(install))

    def test_one_dnn_of_pypi_is_fetched_once(self):
        asked, said = self.peers(VOLTA_SKIP_BOOTSTRAP="1")
        self.assertIn("pip download", asked)
        self.assertNotIn("apt-get", asked)
        self.assertEqual(said, "")
        self.assertNotIn("pip download", self.peers(VOLTA_SKIP_BOOTSTRAP="1")[0])

    def test_what_could_not_be_fetched_is_told_with_its_reason(self):
        for name, said in (("NO_VENV", "cannot make a venv (install python3-venv)"),
                           ("NO_PYPI", "pip got no oneDNN 2023.2.0 from PyPI, for the reason above")):
            _, messages = self.peers(**{name: "1", "VOLTA_SKIP_BOOTSTRAP": "1"})
            self.assertIn(said, messages)
            self.assertIn("only the distribution's oneDNN is measured", messages)


if __name__ == "__main__":
    unittest.main()
