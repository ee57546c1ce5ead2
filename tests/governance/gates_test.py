#!/usr/bin/env python3
"""The gates that call other people's programs judge what these say: workflows, interface, bits."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Stands for cmake: "builds" three files, of which one may hold the folder or the time.
CMAKE = """#!/bin/sh
test "$1" = --build || exit 0
test ! -f broken || { echo "no rule"; exit 1; }
test "$CCACHE_DISABLE" = 1 || exit 9
mkdir -p build/release
for file in volta libvolta.so libvolta.a; do echo "$SOURCE_DATE_EPOCH" > build/release/$file; done
test ! -f paths || pwd >> build/release/libvolta.so
"""
# Stands for pip: "installs" empty programs beside itself.
PIP = """#!/bin/sh
case "$*" in *"--requirement /requirements.txt") ;; *) exit 1 ;; esac
cd "$(dirname "$0")" && for tool in TOOLS; do echo > $tool && chmod +x $tool; done
"""
# What an attacker wants: code of a stranger with the rights of the repository.
UNSAFE = """name: unsafe
on: pull_request_target
jobs:
  a:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v4
        with:
          ref: ${{ github.event.pull_request.head.sha }}
      - run: echo "${{ github.event.pull_request.title }}"
"""


class Gate(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        (self.folder / "bin").mkdir()

    def tool(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def run_script(self, name, *words, path=None, **environment):
        return subprocess.run(
            [str(ROOT / "scripts" / name), *map(str, words)], capture_output=True, text=True,
            check=False, env={**os.environ, "PATH": path or f"{self.folder / 'bin'}:{os.environ['PATH']}",
                              **environment})


class Workflows(Gate):
    def judge(self, *words, **environment):
        return self.run_script("check_workflows", *words, VOLTA_SKIP_BOOTSTRAP="1", **environment)

    def test_it_fails_when_one_of_the_tools_does(self):
        for codes in ((0, 0), (0, 1), (1, 0)):
            for name, code in zip(("zizmor", "check-jsonschema"), codes):
                self.tool(name, f"#!/bin/sh\nexit {code}\n")
            self.assertEqual(self.judge().returncode, max(codes), codes)

    def test_a_missing_tool_or_folder_is_told(self):
        (self.folder / "bare").mkdir()
        for name in ("bash", "dirname"):
            (self.folder / "bare" / name).symlink_to(shutil.which(name))
        result = self.judge(path=str(self.folder / "bare"))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("'zizmor' is missing", result.stderr)
        self.assertEqual(self.judge(self.folder).returncode, 2)

    def test_the_image_installs_the_tools_and_puts_them_on_path(self):
        tools = re.search(r"^for tool in (.*); do$", (ROOT / "scripts" / "check_workflows").read_text(),
                          re.MULTILINE)[1].split()
        image = (ROOT / "Containerfile").read_text().replace("\\\n", "")
        self.assertIn("\nCOPY scripts/governance/requirements.txt /requirements.txt\n", image)
        run = re.search(r"^RUN (python3 -m venv .*)$", image, re.MULTILINE)[1]
        # The step itself, with another python3 and pip.
        local = self.folder / "local"
        local.mkdir()
        self.tool("pip", PIP.replace("TOOLS", " ".join(tools)))
        self.tool("python3", f'#!/bin/sh\nmkdir -p "$3/bin" && cp {self.folder}/bin/pip "$3/bin/pip"\n')
        run = run.replace("/opt/", f"{self.folder}/opt/").replace("/usr/local/bin/", f"{local}/")
        done = subprocess.run(["sh", "-c", run], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in local.iterdir()), sorted(tools))
        self.assertEqual(self.judge(path=f"{local}:/usr/bin:/bin").returncode, 0)

    def tools(self):
        """The folder of the real tools, installed as the stage installs them, or from PATH in the image,
        which has no network. Skips the test where neither is possible; VOLTA_NEED_TOOLS=1, which the
        stage sets, makes that a failure."""
        if os.environ.get("VOLTA_SKIP_BOOTSTRAP") == "1" and shutil.which("zizmor"):
            return Path(shutil.which("zizmor")).parent
        # One try: without a network the other tests need not wait for it.
        done = self.run_script("check_workflows", "--install", PIP_RETRIES="0", PIP_DEFAULT_TIMEOUT="20")
        if done.returncode and os.environ.get("VOLTA_NEED_TOOLS") != "1":
            self.skipTest(f"the tools cannot be installed here: {done.stderr.strip()[-300:]}")
        self.assertEqual(done.returncode, 0, done.stderr)
        return Path(done.stdout.strip())

    def test_the_real_tools_see_unsafe_and_wrong_workflows(self):
        tools = self.tools()
        path = f"{tools}:{os.environ['PATH']}"
        workflows = self.folder / "workflows"
        workflows.mkdir()
        (workflows / "a.yml").write_text(UNSAFE)
        result = self.judge(self.folder, path=path)
        self.assertEqual(result.returncode, 1)
        self.assertIn("dangerous-triggers", result.stdout)
        (workflows / "a.yml").write_text("on: push\njobs:\n  a:\n    runs: x\n")
        self.assertIn("Schema validation errors", self.judge(self.folder, path=path).stdout)


class Interop(Gate):
    """scripts/check_interop, and the programs that it runs."""

    def judge(self, imports=0, ctest=0):
        self.tool("python3", f"#!/bin/sh\nexit {imports}\n")
        self.tool("cmake", f'#!/bin/sh\necho "$*" >> "{self.folder}/cmake"\n')
        self.tool("ctest", f"#!/bin/sh\nexit {ctest}\n")
        return self.run_script("check_interop", self.folder, VOLTA_SKIP_BOOTSTRAP="1")

    def test_it_fails_without_the_packages_and_when_a_test_does(self):
        self.assertEqual(self.judge().returncode, 0)
        self.assertIn(f"-DVOLTA_INTEROP_PYTHON={self.folder}/bin/python3",
                      (self.folder / "cmake").read_text())
        self.assertNotEqual(self.judge(ctest=8).returncode, 0)
        result = self.judge(imports=1)
        self.assertEqual(result.returncode, 1)
        self.assertIn("lacks torch, transformers or peft", result.stderr)

    def start(self, count, pip=0):
        """Starts runs in a small tree with a pip that ends with this code; every tool writes down what
        it does."""
        log = self.folder / "log"
        for name in ("scripts/check_interop", "tests/interop/requirements.txt"):
            copy = self.folder / "tree" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
        self.tool("pip", f'#!/bin/sh\necho installs >> "{log}"\nsleep 0.3\ntest -x "$0" && exit {pip}\n')
        self.tool("python3", f"""#!/bin/sh
test "$2" = venv || exit 0
mkdir -p "$3/bin"
cp "$0" "{self.folder}/bin/pip" "$3/bin/"
""")
        self.tool("cmake", f'#!/bin/sh\necho "${{1%%_*}}" >> "{log}"\n')
        self.tool("ctest", f'#!/bin/sh\necho tests >> "{log}"\nsleep 0.3\n')
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        environment.pop("VOLTA_SKIP_BOOTSTRAP", None)
        return [subprocess.Popen([self.folder / "tree/scripts/check_interop"], env=environment,
                                 text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                for _ in range(count)]

    def test_two_runs_at_a_time_install_once_and_configure_in_turn(self):
        for run in self.start(2):
            said = run.communicate(timeout=60)[0]
            self.assertEqual(run.returncode, 0, said)
        self.assertEqual((self.folder / "log").read_text().split(),
                         ["installs", *["-DVOLTA", "tests", "-UVOLTA"] * 2])

    def test_packages_that_cannot_be_installed_end_the_run(self):
        run, = self.start(1, pip=3)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 3)
        self.assertEqual((self.folder / "log").read_text().split(), ["installs"])

    def test_its_programs_are_skipped_without_the_packages(self):
        for name in ("torch", "transformers", "peft"):
            (self.folder / f"{name}.py").write_text('raise ImportError("not here")\n')
        for name in ("interop", "lora", "chat", "run_tokenizers"):
            done = subprocess.run(
                ["python3", "-B", str(ROOT / "tests" / "interop" / f"{name}.py")], text=True,
                capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(self.folder)})
            self.assertEqual(done.returncode, 77, f"{name}: {done.stderr}")
            self.assertIn("cannot be imported (not here)", done.stdout)

    def test_a_run_that_trains_otherwise_is_seen(self):
        python = ROOT / "build" / "venv-interop" / "bin" / "python3"
        program = ROOT / "build" / "release" / "volta"
        if not (python.exists() and program.exists()):
            self.skipTest("scripts/check_interop has not installed its packages in build/venv-interop")
        # The last value of an option counts.
        self.tool("volta", f"""#!/bin/sh
case "$1" in train) exec {program} "$@" --weight-decay 0.3 ;; esac
exec {program} "$@"
""")
        done = subprocess.run(
            [python, "-B", str(ROOT / "tests" / "interop" / "chat.py"), "--volta",
             str(self.folder / "bin" / "volta")], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, "FAIL llama: all weights: the masked losses .* are PyTorch's")


class Rebuild(Gate):
    def setUp(self):
        super().setUp()
        self.tool("cmake", CMAKE)
        self.source = self.folder / "source"
        self.source.mkdir()
        self.git("init", "--quiet")
        self.commit("empty")

    def git(self, *words):
        subprocess.run(["git", "-C", str(self.source), "-c", "user.name=a", "-c", "user.email=a@b",
                        *words], check=True, capture_output=True)

    def commit(self, name):
        (self.source / name).write_text("")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", name)

    def rebuild(self, *words):
        return self.run_script("check_reproducible", "--source", self.source, *words)

    def test_equal_builds_pass_and_leave_nothing(self):
        result = self.rebuild()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("3 files of", result.stdout)
        self.assertFalse((self.source / "build" / "reproducible").exists())

    def test_a_path_in_a_file_fails_and_the_builds_stay(self):
        self.commit("paths")
        result = self.rebuild()
        self.assertEqual(result.returncode, 1)
        self.assertIn("in two folders, 1 differ", result.stdout)
        self.assertTrue((self.source / "build" / "reproducible" / "a").is_dir())

    def test_a_build_that_fails_and_wrong_usage_are_told(self):
        self.commit("broken")
        result = self.rebuild()
        self.assertEqual(result.returncode, 1)
        self.assertIn("does not build", result.stderr)
        self.assertEqual(self.rebuild("no-such-commit").returncode, 2)
        self.assertEqual(self.rebuild("HEAD", "HEAD").returncode, 2)


class Abi(Gate):
    OLD = "struct [[gnu::visibility(\"default\")]] A { int x; int y() const; };\nint A::y() const"
    OLD += " { return x; }\n"

    def library(self, name, text):
        source = self.folder / f"{name}.cc"
        source.write_text(text)
        library = self.folder / f"lib{name}.so"
        subprocess.run(["c++", "-g", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        return library

    def test_what_breaks_linked_programs_is_seen(self):
        if not shutil.which("abidiff") or not shutil.which("c++"):
            self.skipTest("there is no abidiff or no compiler")
        old = self.library("old", self.OLD)
        grown = self.library("grown", self.OLD + "int more() { return 1; }\n")
        other = self.library("other", self.OLD.replace("int x;", "long x[4];").replace("return x",
                                                                                      "return 1"))
        self.assertEqual(self.run_script("check_abi", old, old).returncode, 0)
        self.assertEqual(self.run_script("check_abi", old, grown).returncode, 0)
        self.assertEqual(self.run_script("check_abi", grown, old).returncode, 1)
        self.assertEqual(self.run_script("check_abi", old, other).returncode, 1)

    def test_a_release_that_is_younger_than_the_clone_is_compared(self):
        self.tool("cmake", '#!/bin/sh\ntest "$1" = --build || exit 0\n'
                           'mkdir -p "$2" && cp "$2/../../../name" "$2/libvolta.so"\n')
        self.tool("abidiff", '#!/bin/sh\ncat "$2" "$3"\n')
        tree = self.folder / "tree"
        (tree / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "check_abi", tree / "scripts")
        (tree / "CMakeLists.txt").write_text("project(A\n  VERSION 0.1.9\n)\n")
        (tree / ".gitignore").write_text("build\n")

        def commit(name, *more):
            (tree / "name").write_text(name + "\n")
            for words in (("add", "--all"), ("commit", "--quiet", "--message", name), *more):
                subprocess.run(["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b",
                                *words], check=True, capture_output=True)
        subprocess.run(["git", "init", "--quiet", str(tree)], check=True)
        for release in ("v0.1.0", "v0.1.1"):
            commit(release, ("tag", release))
            commit("after " + release)
            result = subprocess.run(
                [str(tree / "scripts" / "check_abi")], capture_output=True, text=True, check=False,
                env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"{release}\nafter {release}\n", result.stdout)

    def test_what_cannot_be_compared_is_told(self):
        self.assertEqual(self.run_script("check_abi", "one").returncode, 2)
        result = self.run_script("check_abi", "no.so", "none.so")
        self.assertEqual(result.returncode, 1)
        self.assertIn("there is no no.so", result.stderr)


if __name__ == "__main__":
    unittest.main()
