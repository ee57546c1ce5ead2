#!/usr/bin/env python3
"""The scripts behind the stages of .ci/run see what they are there to see: each runs in a small tree
with one fault, and in the same tree without it."""
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from small_tree import ROOT, Stage  # noqa: E402

VISIBLE = 'namespace [[gnu::visibility("default")]] volta {'

# Stands for a program that a build with CUDA made, on a machine without a GPU.
VOLTA = """#!/bin/sh
case $1 in
  devices) echo '{"cuda": "SAYS", "devices": [{"id": "cpu"}]}' ;;
  bench) exit CODE ;;
esac
"""
# Stands for a fuzz program with two targets, of which one may find something.
FUZZ = """#!/bin/sh
case $1 in
  --list) echo "json"; echo "gguf" ;;
  BAD) exit 77 ;;
  *) echo "stat::number_of_executed_units: 12" ;;
esac
"""


class Includes(Stage):
    def test_arrows_and_headers_of_others_are_judged(self):
        self.write("src/volta.h", '#include "base/a.h"\n')
        self.write("src/base/a.h", f"{VISIBLE}\n}}\n")
        self.assertEqual(self.judge("check_includes")[0], 0)
        for path, line, said in (
                ("src/base/b.cc", '#include "nn/decoder.h"', 'base must not include "nn/decoder.h"'),
                ("src/nn/b.cc", '#include "base/a.h"\n#include <immintrin.h>', "SIMD stays"),
                ("src/nn/b.cc", "#include <cuda_runtime.h>", "CUDA stays"),
                ("src/kernels/cuda/b.cu", "#include <cublas_v2.h>", "no kernel is a vendor's"),
                ("src/kernels/cuda/b.cu", "#include <cub/cub.cuh>", "no kernel is a vendor's"),
                ("src/kernels/cuda/b.cu", "#include <thrust/sort.h>", "no kernel is a vendor's"),
                ("src/text/b.cc", "#include <regex>", "std::regex"),
                ("src/base/b.h", VISIBLE, "volta.h does not reach it"),
                ("src/base/a.h", "namespace volta {", "volta.h reaches it"),
                ("src/text/jinja/b.cc", "\n" * 3999, "src/text/jinja: 4000 lines")):
            with self.subTest(line=line, path=path):
                before = self.tree / path
                kept = before.read_text() if before.exists() else None
                self.write(path, line + "\n")
                status, text = self.judge("check_includes")
                self.assertEqual(status, 1, text)
                self.assertIn(said, text)
                before.unlink() if kept is None else before.write_text(kept)
        self.write("src/kernels/cuda/b.cu", "#include <cuda_runtime.h>\n#include <mma.h>\n")
        self.assertEqual(self.judge("check_includes")[0], 0)


class Policy(Stage):
    """A repository with a base and a change, and .ci/run or pr-body in it."""

    PULL_REQUEST = {"VOLTA_SKIP_BOOTSTRAP": "1", "VOLTA_PULL_REQUEST": "7", "VOLTA_CI_BASE": "base",
                    "VOLTA_PULL_REQUEST_BODY": "the text"}

    def git(self, *words):
        subprocess.run(["git", "-C", str(self.tree), "-c", "user.name=a", "-c", "user.email=a@b", *words],
                       check=True, capture_output=True)

    def commit(self, name, **files):
        for path, text in files.items():
            self.write(path, text, 0o755)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", name)
        self.git("tag", name)

    def begin(self):
        self.need("git")
        self.git("init", "--quiet")
        self.write(".gitignore", "build\n")

    def test_the_rules_of_the_base_judge_a_change_of_the_rules(self):
        self.begin()
        checker = "scripts/governance/check"
        self.write(".ci/run", (ROOT / ".ci" / "run").read_text(), 0o755)
        self.write("scripts/bootstrap", "#!/bin/sh\n", 0o755)
        # The checker of the base refuses a diff with the word "bad"; a change makes it accept all.
        strict = ('#!/bin/sh\ntest "$2" = --diff || exit 0\ntest "$(cat "$5")" = "the text" || exit 9\n'
                  '! grep "^+bad" "$3" || { echo "the base refuses it"; exit 1; }\n')
        self.commit("base", **{checker: strict, "old": "a\n"})
        self.commit("change", **{checker: "#!/bin/sh\nexit 0\n", "new": "bad\n"})
        for labels, code, said in (("", 1, "the base refuses it"),
                                   ("human-approved-tolerance", 1, "the base refuses it"),
                                   ("a,human-approved-governance", 0, "do not judge")):
            status, text = self.run_program(".ci/run", "policy", VOLTA_PULL_REQUEST_LABELS=labels,
                                            **self.PULL_REQUEST)
            self.assertEqual(status, code, text)
            self.assertIn(said, text)
            self.assertTrue(text.endswith(f"=== policy: {'FAILED' if code else 'ok'}\n"), text)
        self.git("checkout", "--quiet", "-B", "other", "base")
        self.commit("good", **{checker: "#!/bin/sh\nexit 0\n", "new": "good\n"})
        status, text = self.run_program(".ci/run", "policy", **self.PULL_REQUEST)
        self.assertEqual(status, 0, text)
        self.assertIn("the change by the rules of the base", text)

    def test_no_text_is_written_from_a_gate_that_is_not_green(self):
        self.begin()
        for path in [*(ROOT / "scripts" / "governance").glob("*.py"),
                     ROOT / "scripts" / "governance" / "pr-body"]:
            self.write(f"scripts/governance/{path.name}", path.read_text(), 0o755)
        self.commit("base", old="a\n")
        self.commit("change", old="b\n")
        log = "95% tests passed, 3 tests failed out of 55\n=== test: "
        for end, said in (("FAILED", "'test' has not passed: FAILED"),
                          ("GIVEN UP, it was ended after 9 s", "'test' has not passed: GIVEN UP"),
                          ("on its way", "does not say how the stage ended")):
            self.write("build/ci/test.log", log + end + "\n")
            status, text = self.run_program("scripts/governance/pr-body", "--base", "base")
            self.assertEqual(status, 1, text)
            self.assertIn(said, text)
            self.assertIn("no text is written", text)
            self.assertNotIn("## Tests run", text)
            status, text = self.run_program("scripts/governance/pr-body", "--base", "base", "--not-green",
                                            "it fails on main, too")
            self.assertEqual(status, 0, text)
            self.assertIn("\nNot green: it fails on main, too\n", text)
        self.write("build/ci/test.log", "100% tests passed, 0 tests failed out of 55\n=== test: ok\n")
        status, text = self.run_program("scripts/governance/pr-body", "--base", "base")
        self.assertEqual(status, 0, text)
        self.assertIn("- `.ci/run test`: 100% tests passed, 0 tests failed out of 55\n", text)


class Symbols(Stage):
    GOOD = ('#include <cstdio>\nnamespace volta {\n[[gnu::visibility("default")]] int f() '
            '{ std::puts("a"); BAD return 1; }\n}\n')

    def symbols(self, bad="", more=""):
        self.write("scripts/exported_symbols.txt", "volta::f()\n")
        self.write("scripts/allowed_throw_symbols.txt", "")
        source = self.GOOD.replace("BAD", bad).replace("#include", "#include <cstdlib>\n#include", 1)
        self.write("f.cc", source + more)
        for command in (["c++", "-fPIC", "-fvisibility=hidden", "-c", "f.cc", "-o", "f.o"],
                        ["ar", "rc", "libvolta.a", "f.o"],
                        ["c++", "-shared", "-o", "libvolta.so", "f.o"]):
            subprocess.run(command, cwd=self.tree, check=True)
        return self.judge("check_symbols", self.tree)

    def test_what_throws_ends_the_process_or_is_exported_by_accident_is_seen(self):
        self.need("c++", "nm", "ar", "strip")
        status, text = self.symbols()
        self.assertEqual(status, 0, text)
        self.assertIn("f.o: abort: ends the process", self.symbols("std::abort();")[1])
        self.assertIn("__cxa_throw: throws an exception", self.symbols("throw 1;")[1])
        shown = '[[gnu::visibility("default")]] '
        status, text = self.symbols(more=f"{shown}int stray() {{ return 2; }}\n")
        self.assertEqual(status, 1)
        self.assertIn("exports stray(), which is not Volta's", text)
        status, text = self.symbols(more=f"namespace volta {{ {shown}int g() {{ return 2; }} }}\n")
        self.assertIn("exports volta::g(), which scripts/exported_symbols.txt does not list", text)
        self.assertEqual(status, 1)
        status, text = self.symbols(more="[[gnu::used]] static char data[9000000] = {1};\n")
        self.assertEqual(status, 1)
        self.assertIn("bytes stripped, the limit is 8000000", text)


class Cuda(Stage):
    def cuda(self, says="install a driver of NVIDIA", code=5, size=1000):
        self.tool("strip", '#!/bin/sh\ncp "$3" "$2"\n')
        self.write("volta", VOLTA.replace("SAYS", says).replace("CODE", str(code)), 0o755)
        with (self.tree / "libvolta.so").open("wb") as file:
            file.truncate(size)
        return self.judge("check_cuda", self.tree)

    def test_size_and_answers_without_a_gpu_are_judged(self):
        self.assertEqual(self.cuda()[0], 0)
        for change, said in (({"size": 40_000_001}, "more than 40000000"),
                             ({"says": ""}, "does not say what is missing"),
                             ({"code": 0}, "ended with 0, not 5")):
            status, text = self.cuda(**change)
            self.assertEqual(status, 1, change)
            self.assertIn(said, text)


class Coverage(Stage):
    def coverage(self, core=(100, 0), rest=(100, 0), line="int a;"):
        """The gate where the tests ran and missed so many lines of both parts of src."""
        self.write("src/ops/a.cc", f"{line}\n")
        self.write("src/text/b.cc", "int b;\n")
        self.write("build/libvolta.so", "", 0o755)
        self.write("build/profiles/a.profraw", "")
        lcov = ""
        for path, (ran, missed) in (("ops/a.cc", core), ("text/b.cc", rest)):
            lcov += f"SF:{self.tree.resolve()}/src/{path}\n"
            lcov += "".join(f"DA:{n + 1},{int(n < ran)}\n" for n in range(ran + missed))
        self.write("lcov", lcov)
        self.tool("llvm-profdata-19", "#!/bin/sh\n")
        self.tool("llvm-cov-19", f"#!/bin/sh\ncat {self.tree}/lcov\n")
        return self.judge("check_coverage", self.tree / "build")

    def test_thresholds_and_markers_are_judged(self):
        status, text = self.coverage(core=(99, 1), rest=(95, 5))
        self.assertEqual(status, 0, text)
        for words, said in (({"core": (98, 2)}, "coverage of the core is below 99%: 98.00%"),
                            ({"rest": (94, 6)}, "coverage of the rest is below 95%: 94.00%"),
                            ({"line": "f();  // COVERAGE: line"}, "without `-- reason`"),
                            ({"line": "// COVERAGE: off -- a reason"}, "never turned on again"),
                            ({"line": "f();  // COVERAGE: line -- a reason", "core": (20, 0),
                              "rest": (20, 0)}, "2.50% of the lines are excluded")):
            status, text = self.coverage(**words)
            self.assertEqual(status, 1, words)
            self.assertIn(said, text)


class Compiled(Stage):
    def test_a_header_that_needs_another_one_is_seen(self):
        self.need("clang++-19")
        self.write("src/a.h", "#pragma once\n#include <vector>\nstd::vector<int> f();\n")
        self.assertEqual(self.judge("check_headers")[0], 0)
        self.write("src/b.h", "#pragma once\nstd::vector<int> g();\n")
        status, text = self.judge("check_headers")
        self.assertNotEqual(status, 0)
        self.assertIn("src/b.h", text)

    def test_a_source_that_is_not_formatted_is_seen_and_mended(self):
        self.need("clang-format-19")
        for name in ("apps", "tests", "bench", "examples"):
            self.write(f"{name}/a.cc", "int a;\n")
        self.write("src/a.cu", "int  a;\n")
        status, text = self.judge("format", "--check")
        self.assertNotEqual(status, 0)
        self.assertIn("src/a.cu", text)
        self.assertEqual(self.judge("format")[0], 0)
        self.assertEqual(self.judge("format", "--check")[0], 0)


class Programs(Stage):
    def test_a_fuzzer_that_finds_something_fails_and_shows_its_log(self):
        self.tool("cmake", "#!/bin/sh\n")
        for bad in ("none", "gguf"):
            self.write("build/check/tests/fuzz/fuzz", FUZZ.replace("BAD", bad), 0o755)
            status, text = self.judge("fuzz_smoke", 1)
            self.assertEqual(status == 0, bad == "none", text)
            self.assertIn("fuzz json: ok, 12 inputs", text)
        self.assertIn("fuzz gguf: FAILED", text)

    def test_a_benchmark_that_fails_or_is_missing_is_told(self):
        self.assertEqual(self.judge("run_bench")[0], 1)
        self.write("build/release/bench/bench_a", '#!/bin/sh\ntest "$1" = --flag\n', 0o755)
        self.assertEqual(self.judge("run_bench", "--flag")[0], 0)
        self.assertNotEqual(self.judge("run_bench", "--other")[0], 0)


if __name__ == "__main__":
    unittest.main()
