#!/usr/bin/env python3
"""What stages see only when something is built: findings of clang-tidy, a package that cannot be used,
warnings, faults at run time, raw memory outside of the fence. Each is put into a small project."""
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from small_tree import ROOT, Stage  # noqa: E402

BEGIN = """cmake_minimum_required(VERSION 3.25)
set(CMAKE_CXX_COMPILER_WORKS TRUE)  # CMake does not compile a program of its own first.
"""


class Lint(Stage):
    GOOD = '#include "a.h"\n\nnamespace small {\nint half(double x) { return static_cast<int>(x / 2); }\n}\n'
    HEADER = "#pragma once\nnamespace small {\nint half(double x);\n}\n"
    CAST = "char* text(const char* x) { return (char*)x; }\n"

    def setUp(self):
        super().setUp()
        self.need("cmake", "ninja", "clang++-19", "clang-tidy-19", "run-clang-tidy-19", "git")
        self.copy("CMakePresets.json", ".clang-tidy")
        self.write("CMakeLists.txt", BEGIN + "project(Small LANGUAGES CXX)\n"
                   "set(CMAKE_EXPORT_COMPILE_COMMANDS ON)\nfile(GLOB sources src/*.cc)\n"
                   "add_library(small ${sources})\n")
        self.write(".gitignore", "build\nbin\nscripts\n")
        self.write("src/a.h", self.HEADER)
        self.write("src/a.cc", self.GOOD)

    def seen(self, said, *words):
        status, text = self.judge("lint", *words)
        self.assertEqual(status, 1, text)
        self.assertIn(said, text)
        self.assertNotIn("nothing found", text)
        return text

    def test_a_finding_in_a_source_or_in_its_header_fails(self):
        status, text = self.judge("lint")
        self.assertEqual(status, 0, text)
        self.assertIn("lint: nothing found", text)
        status, text = self.judge("lint", "src/lost.cc")
        self.assertEqual(status, 2)
        self.assertIn("no source matches 'src/lost.cc'", text)
        self.write("src/b.cc", self.CAST)
        self.assertIn("src/b.cc:1:", self.seen("[cppcoreguidelines-pro-type-cstyle-cast"))
        self.assertEqual(self.judge("lint", "src/a.cc")[0], 0)
        self.write("src/b.cc", "int none() { return 0; }\n")
        self.write("src/a.h", self.HEADER + "inline int OtherName() { return 1; }\n")
        self.assertIn("src/a.h:5:", self.seen("[readability-identifier-naming"))
        self.write("src/a.h", self.HEADER)
        self.write("src/b.cc", "std::vector<int> list() { return {}; }\n")
        self.seen("undeclared identifier 'std'")

    def git(self, *words):
        subprocess.run(["git", "-C", str(self.tree), "-c", "user.name=a", "-c", "user.email=a@b",
                        *words], check=True, capture_output=True)

    def test_of_what_changed_each_file_is_read_and_no_other(self):
        self.write("src/old.cc", self.CAST)
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "base")
        for text in (self.GOOD, self.GOOD.replace("namespace small", "namespace small::names")):
            self.write("src/a.cc", text)
            status, said = self.judge("lint", "--changed", "HEAD")
            self.assertEqual((status, said), (0, "lint: no source of src differs from HEAD\n"))
        self.write("src/a.cc", self.GOOD)
        self.write("src/a.h", self.HEADER + "inline int OtherName() { return 1; }\n")
        self.seen("[readability-identifier-naming", "--changed", "HEAD")
        self.write("src/a.h", self.HEADER)
        self.write("src/new.cc", self.CAST)
        said = self.seen("src/new.cc:1:", "--changed", "HEAD")
        self.assertNotIn("old.cc", said)
        status, said = self.judge("lint", "--changed", "no-such-commit")
        self.assertEqual(status, 2)
        self.assertIn("there is no commit 'no-such-commit'", said)


class Package(Stage):
    """A Volta of one header. Its CMakeLists.txt installs it, and is used as a subdirectory."""

    PROJECT = BEGIN + """project(Volta VERSION 0.1.0 LANGUAGES NONE)
add_library(volta INTERFACE)
add_library(Volta::volta ALIAS volta)
target_include_directories(volta INTERFACE "${PROJECT_SOURCE_DIR}/include")
install(DIRECTORY include DESTINATION .)
install(FILES VoltaConfig.cmake VoltaConfigVersion.cmake DESTINATION lib/cmake/Volta)
install(FILES volta.pc DESTINATION lib/pkgconfig)
"""
    PKG_CONFIG = """Name: Volta
Description: small
Version: 0.1.0
Cflags: -I${pcfiledir}/../../include
"""
    BUILT = ["static: ok", "shared: ok", "pkg-config: ok", "pkg-config-static: ok"]
    CONFIG = """add_library(Volta::volta INTERFACE IMPORTED)
set_target_properties(Volta::volta PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                      "${CMAKE_CURRENT_LIST_DIR}/../../../include")
"""
    MAIN = "#include <volta/volta.h>\nint main() { return volta::answer() - 42; }\n"

    def package(self, project=PROJECT, config=CONFIG, main=MAIN, pkg_config=PKG_CONFIG):
        self.need("cmake", "ninja", "c++", "pkg-config")
        shutil.rmtree(self.tree / "build", ignore_errors=True)
        self.copy("CMakePresets.json", "tests/package/CMakeLists.txt")
        self.write("include/volta/volta.h", "namespace volta { inline int answer() { return 42; } }\n")
        self.write("CMakeLists.txt", project)
        self.write("VoltaConfig.cmake", config)
        self.write("VoltaConfigVersion.cmake",
                   "set(PACKAGE_VERSION 0.1.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
        self.write("volta.pc", pkg_config)
        self.write("tests/package/main.cc", main)
        status, text = self.judge("check_package")
        verdicts = [line.removeprefix("check_package: ") for line in text.splitlines()
                    if line.startswith("check_package: ")]
        return status, verdicts, text

    def test_a_package_that_can_be_used_passes(self):
        status, verdicts, text = self.package()
        self.assertEqual((status, verdicts), (0, [*self.BUILT, "subdirectory: ok"]), text)

    def test_a_header_that_is_not_installed_is_seen(self):
        project = self.PROJECT.replace("DIRECTORY include DESTINATION .",
                                       "FILES CMakeLists.txt DESTINATION include")
        status, verdicts, text = self.package(project)
        self.assertEqual((status, verdicts), (1, ["static: FAILED"]), text)
        self.assertIn("volta/volta.h", text)

    def test_a_program_that_does_not_run_is_seen(self):
        status, verdicts, text = self.package(main=self.MAIN.replace("42", "41"))
        self.assertEqual((status, verdicts), (1, ["static: FAILED"]), text)

    def test_a_shared_library_that_is_not_found_is_seen(self):
        config = self.CONFIG + 'if(BUILD_SHARED_LIBS)\n  message(FATAL_ERROR "not here")\nendif()\n'
        status, verdicts, text = self.package(config=config)
        self.assertEqual((status, verdicts), (1, ["static: ok", "shared: FAILED"]), text)
        self.assertIn("not here", text)

    def test_a_subdirectory_without_its_headers_is_seen(self):
        project = self.PROJECT.replace('INTERFACE "${PROJECT_SOURCE_DIR}/include"', "INTERFACE nowhere")
        status, verdicts, text = self.package(project)
        self.assertEqual((status, verdicts), (1, [*self.BUILT, "subdirectory: FAILED"]), text)

    def test_wrong_flags_of_pkg_config_are_seen(self):
        for wrong in (self.PKG_CONFIG.replace("include", "nowhere"), "Name: Volta\n"):
            status, verdicts, text = self.package(pkg_config=wrong)
            self.assertEqual((status, verdicts),
                             (1, ["static: ok", "shared: ok", "pkg-config: FAILED"]), text)


class Flags(Stage):
    """Projects with the flags of cmake/VoltaOptions.cmake."""

    def setUp(self):
        super().setUp()
        self.need("cmake", "ninja", "clang++-19")
        self.write("CMakeLists.txt", BEGIN + f"""project(Small LANGUAGES CXX)
include("{ROOT}/cmake/VoltaOptions.cmake")
add_executable(small main.cc)
volta_compile_options(small)
volta_strict_options(small)
""")

    def build(self, main, compiler, *words):
        """(exit status, what is said) of a build from nothing."""
        self.write("main.cc", main)
        shutil.rmtree(self.tree / "build", ignore_errors=True)
        status, text = self.run_program("cmake", "-B", "build", "-G", "Ninja",
                                        f"-DCMAKE_CXX_COMPILER={compiler}", *words)
        self.assertEqual(status, 0, text)
        return self.run_program("cmake", "--build", "build")

    def test_a_warning_is_an_error_where_the_gate_asks_for_it(self):
        for compiler in filter(shutil.which, ("g++", "clang++-19")):
            for main, warning in (("int main() { int unused = 1; }", "unused-variable"),
                                  ("int main(int n, char**) { float x = n; return x > 1; }",
                                   "conversion")):
                with self.subTest(compiler=compiler, warning=warning):
                    self.assertEqual(self.build(main, compiler)[0], 0)
                    status, text = self.build(main, compiler, "-DVOLTA_WERROR=ON")
                    self.assertNotEqual(status, 0)
                    self.assertIn(warning, text)

    def test_a_warning_of_nvcc_is_an_error_where_the_gate_asks_for_it(self):
        self.need("nvcc")
        self.write("CMakeLists.txt", BEGIN + f"""set(CMAKE_CUDA_COMPILER_WORKS TRUE)
project(Small LANGUAGES CXX)
include("{ROOT}/cmake/VoltaOptions.cmake")
include("{ROOT}/cmake/VoltaCuda.cmake")
add_library(small OBJECT a.cu)
volta_cuda_options(small)
""")
        for kernel, good in (("__global__ void f(int* x) { *x = 1; }", True),
                             ("__global__ void f(int* x) { int unused = 1; *x = 1; }", False)):
            self.write("a.cu", kernel + "\n")
            status, text = self.build("", "g++", "-DVOLTA_CUDA=ON", "-DVOLTA_WERROR=ON",
                                      "-DCMAKE_CUDA_ARCHITECTURES=90a-real")
            self.assertEqual(status == 0, good, text)
            self.assertEqual("was declared but never referenced" in text, not good)

    def expect_reports(self, main, sanitizers, reports):
        """The program makes one fault for each number of arguments, and none without one."""
        status, text = self.build(main, "clang++-19", f"-DVOLTA_SANITIZE={sanitizers}")
        self.assertEqual(status, 0, text)
        self.assertEqual(self.run_program(self.tree / "build/small"), (0, ""))
        for count, report in enumerate(reports, 1):
            status, text = self.run_program(self.tree / "build/small", *["x"] * count)
            self.assertNotEqual(status, 0, report)
            self.assertIn(report, text)

    def test_faults_of_memory_and_undefined_behaviour_end_a_program(self):
        self.expect_reports("""#include <vector>
int main(int count, char**) {
  std::vector<int> list(3);
  int* volatile data = list.data();
  if (count == 2) return data[count + 1];
  volatile int most = 2147483647;
  if (count == 3) most = most + count;
  if (count == 4) data = new int[100], data = nullptr;
}
""", "address,undefined", ["heap-buffer-overflow", "signed integer overflow", "LeakSanitizer"])

    def test_a_race_of_two_threads_ends_a_program(self):
        self.expect_reports("""#include <thread>
volatile int shared = 0;
int main(int count, char**) {
  // Often, because accesses at the very same moment may go unseen.
  const auto write = [&] { for (int i = 1; i < count * 1000 - 999; ++i) shared = i; };
  std::thread other(write);
  write();
  other.join();
}
""", "thread", ["data race"])


class Fence(Stage):
    SAFE = "int first(int x) { return x; }\n"
    RAW = "int first(const int* list) { return list[1]; }\n"

    @staticmethod
    def fence_of_the_program():
        """What apps/CMakeLists.txt asks of the command line; nothing where it asks for nothing."""
        lines = (ROOT / "apps" / "CMakeLists.txt").read_text().splitlines(keepends=True)
        return "".join(line for line in lines if line.startswith("volta_fence("))

    def compile(self, **sources):
        """(exit status, what is said) of the modules and the command line with the flags of
        cmake/VoltaModuleFlags.cmake."""
        self.need("cmake", "ninja", "clang++-19")
        self.copy("cmake/VoltaOptions.cmake", "cmake/VoltaModuleFlags.cmake")
        self.write("CMakeLists.txt", BEGIN + "project(Small VERSION 0.1.0 LANGUAGES CXX)\n"
                   "include(cmake/VoltaOptions.cmake)\nadd_subdirectory(src)\n"
                   "add_library(volta OBJECT src/app.cc)\n" + self.fence_of_the_program())
        modules = {"kernels_cpu": "kernels/cpu/a.cc", "device": "device/a.cc", "nn": "nn/a.cc",
                   "base": "base/memory_map.cc base/text.cc", "tensor": "tensor/buffer.cc"}
        lines = [f"add_library(volta_{name} OBJECT {files})" for name, files in modules.items()]
        self.write("src/CMakeLists.txt", "\n".join(lines + ["include(../cmake/VoltaModuleFlags.cmake)\n"]))
        for path in " ".join([*modules.values(), "app.cc"]).split():
            self.write(f"src/{path}", self.SAFE)
        for path, text in sources.items():
            self.write(f"src/{path.replace('__', '/')}.cc", text)
        shutil.rmtree(self.tree / "build", ignore_errors=True)
        status, text = self.run_program("cmake", "-B", "build", "-G", "Ninja", "-DVOLTA_UNSAFE_BUFFERS=ON",
                                        "-DCMAKE_CXX_COMPILER=clang++-19")
        self.assertEqual(status, 0, text)
        return self.run_program("cmake", "--build", "build", "--", "-k", "0")

    def test_raw_memory_compiles_inside_of_the_fence_and_not_outside(self):
        status, text = self.compile(kernels__cpu__a=self.RAW, device__a=self.RAW,
                                    base__memory_map=self.RAW, tensor__buffer=self.RAW)
        self.assertEqual(status, 0, text)
        status, text = self.compile(nn__a=self.RAW, base__text=self.RAW, app=self.RAW)
        self.assertNotEqual(status, 0)
        for path in ("nn/a.cc", "base/text.cc", "app.cc"):
            self.assertRegex(text, rf"{path}:1:\d+: error: .*\[-Werror,-Wunsafe-buffer-usage")


if __name__ == "__main__":
    unittest.main()
