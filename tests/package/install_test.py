"""Installs a build into a folder, as `make install` and packagers do, and uses what is there.

    install_test.py BUILD
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = None
FILES = ["bin/volta", "include/volta/volta.h", "share/man/man1/volta.1",
         "share/man/man1/volta-bench-model.1", "share/bash-completion/completions/volta",
         "share/zsh/site-functions/_volta", "share/fish/vendor_completions.d/volta.fish"]
LIBRARY_FILES = ["libvolta.a", "libvolta.so", "cmake/Volta/VoltaConfig.cmake",
                 "pkgconfig/volta.pc"]


class Install(unittest.TestCase):
    def install(self, prefix, **environment):
        done = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", prefix], text=True,
                              capture_output=True, env=os.environ | environment, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check_tree(self, prefix):
        for name in FILES:
            self.assertTrue((prefix / name).is_file(), name)
        for name in LIBRARY_FILES:  # lib, lib64 or lib/x86_64-linux-gnu.
            self.assertTrue(any(prefix.glob(f"lib*/{name}")) or any(prefix.glob(f"lib/*/{name}")),
                            name)
        program = prefix / "bin" / "volta"
        version = subprocess.run([program, "version"], capture_output=True, text=True, check=True)
        self.assertTrue(version.stdout.startswith("volta "), version.stdout)
        for shell, name in (("bash", FILES[4]), ("zsh", FILES[5]), ("fish", FILES[6])):
            script = subprocess.run([program, "completion", shell], capture_output=True, text=True,
                                    check=True)
            self.assertEqual((prefix / name).read_text(), script.stdout)
        page = subprocess.run([program, "man", "bench", "model"], capture_output=True, text=True,
                              check=True)
        self.assertEqual((prefix / FILES[3]).read_text(), page.stdout)

    def test_a_prefix(self):
        with tempfile.TemporaryDirectory() as folder:
            self.install(f"{folder}/with space")
            self.check_tree(pathlib.Path(folder, "with space"))

    def test_a_staging_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.install("/usr", DESTDIR=folder)
            self.check_tree(pathlib.Path(folder, "usr"))
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()], ["usr"])

    def test_make_build_builds_what_is_installed(self):
        shown = subprocess.run(["make", "-n", "build"], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout
        for target in (" volta ", " volta_static ", " volta_shared "):
            self.assertIn(target, shown)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
