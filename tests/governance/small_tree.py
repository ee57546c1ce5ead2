"""A small tree in a temporary folder, for the tests of the scripts behind the stages of .ci/run."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Stage(unittest.TestCase):
    """A test with a small tree of its own, in which a script of this tree judges."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.tree = Path(temporary.name)

    def write(self, name, text, mode=0o644):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def copy(self, *names):
        """Files of this tree into the small one."""
        for name in names:
            self.write(name, (ROOT / name).read_text(encoding="utf-8"))

    def tool(self, name, text):
        self.write(f"bin/{name}", text, 0o755)

    def judge(self, script, *words):
        """(exit status, what is said) of a copy of a script in the tree."""
        (self.tree / "scripts").mkdir(exist_ok=True)
        return self.run_program(shutil.copy(ROOT / "scripts" / script, self.tree / "scripts"), *words)

    def run_program(self, *words, **environment):
        """(exit status, what is said) of a program, in the tree. No compiler cache takes part."""
        done = subprocess.run(list(map(str, words)), cwd=self.tree, capture_output=True, text=True,
                              check=False, env={**os.environ, "CCACHE_DISABLE": "1",
                                                "PATH": f"{self.tree / 'bin'}:{os.environ['PATH']}",
                                                **environment})
        return done.returncode, done.stdout + done.stderr

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"there is no {program}")
