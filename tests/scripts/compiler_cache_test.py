#!/usr/bin/env python3
"""The compiler cache never gives back a precompiled header of other bytes, and does find what is there.

A small project with the flags and the cache of cmake/VoltaOptions.cmake is built, one of its headers
is changed, and it is built again from nothing. The cache is one of the test's own.
"""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

MODULES = Path(__file__).resolve().parents[2] / "cmake"
COMPILERS = ("g++", "clang++-19")
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
set(CMAKE_CXX_COMPILER_WORKS TRUE)  # CMake does not compile a program of its own first.
project(Small LANGUAGES CXX)
include("{MODULES}/VoltaOptions.cmake")
add_executable(small main.cc)
target_include_directories(small PRIVATE "${{PROJECT_SOURCE_DIR}}")
volta_compile_options(small)
volta_precompile(small small thing.h)
"""
# Only the spaces before the comment differ. Preprocessed text has one space for any number of them.
HEADER = "#pragma once\nstruct Thing {};{spaces}// An empty thing.\n"
# The source differs, too, so that the cache does not have its object file.
SOURCE = '#include "thing.h"\nint main() {{ return Thing{{}}, {value}; }}\n'
# The settings that were wrong: the cache compared preprocessed text, with the comments in it.
BY_TEXT = ("CCACHE_COMMENTS=1", "CCACHE_NODEPEND=1", "CCACHE_NOHASHDIR=1",
           "CCACHE_SLOPPINESS=pch_defines,time_macros")


class CompilerCache(unittest.TestCase):
    def setUp(self):
        for program in ("ccache", "cmake", "ninja"):
            if not shutil.which(program):
                self.skipTest(f"there is no {program}, so nothing is cached")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def environment(self, compiler):
        """This environment with the cache of one compiler, and no setting of the user's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CCACHE_")}
        return {**kept, "CCACHE_DIR": str(self.folder / f"cache-{compiler}"), "CXX": compiler}

    def write(self, spaces, value, clone="clone"):
        tree = self.folder / clone
        tree.mkdir(exist_ok=True)
        (tree / "CMakeLists.txt").write_text(PROJECT)
        (tree / "thing.h").write_text(HEADER.replace("{spaces}", " " * spaces))
        (tree / "main.cc").write_text(SOURCE.format(value=value))
        return tree

    def build(self, tree, compiler, *words):
        """(exit status, what is said) of a build from nothing."""
        shutil.rmtree(tree / "build", ignore_errors=True)
        said = ""
        for command in (["cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja",
                         "-DCMAKE_BUILD_TYPE=Release", *words], ["cmake", "--build", tree / "build"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  env=self.environment(compiler))
            said += done.stdout + done.stderr
            if done.returncode:
                break
        return done.returncode, said

    def hits_and_misses(self, compiler):
        """How often the cache had what was asked for, and how often not. Forgets both."""
        environment = self.environment(compiler)
        said = subprocess.run(["ccache", "--print-stats"], env=environment, check=True, text=True,
                              capture_output=True).stdout
        subprocess.run(["ccache", "--zero-stats"], env=environment, check=True, capture_output=True)
        count = {name: int(number) for name, number in map(str.split, said.splitlines())}
        hits = count["direct_cache_hit"] + count["preprocessed_cache_hit"]
        return hits, count["cache_miss"]

    def test_a_header_with_other_spaces_is_compiled_again(self):
        for compiler in filter(shutil.which, COMPILERS):
            for spaces in (1, 2):
                with self.subTest(compiler=compiler, spaces=spaces):
                    status, said = self.build(self.write(spaces, value=spaces), compiler)
                    self.assertEqual(status, 0, said)
                    self.assertEqual(self.hits_and_misses(compiler), (0, 2), "the header, the source")

    def test_a_second_clone_finds_what_the_first_has_compiled(self):
        # With g++ only: clang's precompiled header names the folder of its headers.
        for clone, counts in (("one", (0, 2)), ("two", (2, 0))):
            status, said = self.build(self.write(1, 0, clone), "g++")
            self.assertEqual(status, 0, said)
            self.assertEqual(self.hits_and_misses("g++"), counts, clone)

    def test_a_cache_that_compares_preprocessed_text_breaks_the_build(self):
        """Without this, the first test might pass because it changes nothing that matters."""
        launcher = ["cmake", "-E", "env", *BY_TEXT, "CCACHE_BASEDIR=" + str(self.folder / "clone"),
                    "ccache"]
        word = "-DCMAKE_CXX_COMPILER_LAUNCHER=" + ";".join(launcher)
        status, said = self.build(self.write(1, 0), "g++", word)
        self.assertEqual(status, 0, said)
        status, said = self.build(self.write(2, 1), "g++", word)
        if status == 0:
            self.skipTest("this ccache and this g++ do without CCACHE_DEPEND")
        self.assertIn("redefinition of", said)


if __name__ == "__main__":
    unittest.main()
