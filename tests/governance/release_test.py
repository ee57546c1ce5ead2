#!/usr/bin/env python3
"""scripts/release makes the same archive twice, with its contents and checksums."""
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "scripts" / "release"
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(Small VERSION 1.2.3 LANGUAGES NONE)
install(FILES CMakeLists.txt DESTINATION share)
"""


class Release(unittest.TestCase):
    def setUp(self):
        if not shutil.which("cmake"):
            self.skipTest("there is no cmake")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        (self.folder / "CMakeLists.txt").write_text(PROJECT)
        self.build = self.folder / "build"
        subprocess.run(["cmake", "-S", str(self.folder), "-B", str(self.build)], check=True,
                       capture_output=True)

    def release(self, name, build=None):
        return subprocess.run([str(RELEASE), str(build or self.build), str(self.folder / name)],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})

    def test_the_files_agree_and_are_the_same_twice(self):
        for name in ("one", "two"):
            result = self.release(name)
            self.assertEqual(result.returncode, 0, result.stderr)
        files = sorted(path.name for path in (self.folder / "one").iterdir())
        self.assertEqual([Path(name).suffix for name in files], ["", ".json", ".gz"])
        for name in files:
            self.assertEqual((self.folder / "one" / name).read_bytes(),
                             (self.folder / "two" / name).read_bytes(), name)
        for line in (self.folder / "one" / "SHA256SUMS").read_text().splitlines():
            checksum, name = line.split()
            content = (self.folder / "one" / name).read_bytes()
            self.assertEqual(hashlib.sha256(content).hexdigest(), checksum)
        with tarfile.open(self.folder / "one" / files[2]) as archive:
            self.assertTrue(archive.getnames()[-1].endswith("/share/CMakeLists.txt"))

    def test_the_contents_name_what_is_linked_and_not_what_only_tests_need(self):
        self.assertEqual(self.release("one").returncode, 0)
        path = next((self.folder / "one").glob("*.spdx.json"))
        document = json.loads(path.read_text())
        names = {package["name"]: package["licenseDeclared"] for package in document["packages"]}
        self.assertEqual(names["volta"], "MIT")
        self.assertEqual(names["libhwy-dev"], "Apache-2.0")
        self.assertNotIn("libgtest-dev", names)
        self.assertEqual(document["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        self.assertEqual(len(document["relationships"]), len(names))

    def test_what_cannot_work_is_refused(self):
        (self.folder / "there").mkdir()
        self.assertEqual(self.release("there").returncode, 2)
        self.assertEqual(self.release("new", self.folder / "nothing").returncode, 1)


if __name__ == "__main__":
    unittest.main()
