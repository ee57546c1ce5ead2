#!/usr/bin/env python3
"""Each check of scripts/governance sees a bad tree as bad and the same tree, mended, as good."""
import re
import runpy
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "governance"))
import agents  # noqa: E402
import calls  # noqa: E402
import commands  # noqa: E402
import documents  # noqa: E402
import golden  # noqa: E402
import licences  # noqa: E402
import links  # noqa: E402
import markdown  # noqa: E402
import messages  # noqa: E402
import prd  # noqa: E402
import secret_scan  # noqa: E402
import small_yaml  # noqa: E402
import workflows  # noqa: E402
from tree import Tree, code_of  # noqa: E402

ALL_RULES = runpy.run_path(str(ROOT / "scripts" / "governance" / "check"))["RULES"]

PAGES = {  # Of each command, as golden.help_of() reads them.
    "": "Global:\n  --seed UINT    seed\n  --threads,--bench-threads INT    threads\n",
    "bench": "Subcommands:\n  infer    tokens\n",
    "bench infer": "Options:\n  -n,--runs INT    runs\n",
}


class CommandsWithHelp:
    """The check of commands with the help pages of a program."""

    @staticmethod
    def check(tree):
        return commands.check(tree, PAGES)


BOOTSTRAP = "readonly BUILD=(libtbb-dev)\n"
TABLE = ("| dependency | looked for as | licence | use |\n|---|---|---|---|\n"
         "| oneTBB | `TBB` `libtbb-dev` | Apache-2.0 | linked: threads |\n")
LICENCED = {"LICENSE": "MIT License\n", "scripts/bootstrap": BOOTSTRAP,
            "CMakeLists.txt": "find_package(TBB CONFIG REQUIRED)\n", licences.TABLE: TABLE,
            "bench/gpu/CMakeLists.txt": "target_link_libraries(b PRIVATE CUDA::cublasLt)\n",
            licences.PINNED: "# snapshot 20261123T000000Z\nlibtbb-dev=2021.8.0-2\n"}
PRD = ("- [x] 1. It works. Tests: `tests/a_test.cc`\n- [ ] 2. (agent) Later: see [task 2](#task-2).\n\n"
       "### Task 2\n\n- Owner: agent\n- Commands:\n  ```sh\n  make test\n  ```\n"
       "- Expected: 100%\n- Acceptance of task 2: it works.\n")
TRACED = {"PRD.md": PRD, "tests/a_test.cc": ""}
PERSONS = ("- [ ] 3. (person) Later: see [task 3](#task-3).\n", PRD.split("\n\n", 1)[1].replace(
    "ask 2", "ask 3").replace("agent", "person"))
GATE = ('readonly STAGES=(\n  "test 9"\n  "lint 9"\n)\nstage_test() { make test; }\n'
        "stage_lint() {\n  scripts/lint --changed\n}\n")
WORKFLOW = ("on:\n  pull_request:\npermissions:\n  contents: read\njobs:\n  a:\n    container: debian:12\n    steps:\n"
            f"      - uses: actions/checkout@{'0a' * 20} # v7.0.1\n"
            "      - run: .ci/run test\n      - run: .ci/run lint\n"
            "      - run: |\n          apt-get update && apt-get install --yes git\n"
            "  b:\n    container: ${{ matrix.image }}\n    strategy:\n      matrix:\n"
            '        image: ["debian:12", "ubuntu:24.04"]\n        compiler: ["g++", "clang++-19"]\n'
            '    steps:\n      - run: make test CMAKE_ARGS="-DCMAKE_CXX_COMPILER=$COMPILER"\n')
READS = "permissions:\n  contents: read\njobs:\n  a:\n"
SAME = {".ci/run": GATE,
        "Makefile": "test:\n\t@ctest\n\nlint:\n\t@scripts/bootstrap ci\n\t@scripts/lint\n\n"
                    "verify:\n\t@.ci/run\n",
        ".github/workflows/ci.yml": WORKFLOW,
        ".github/workflows/policy.yml": f"on:\n  push:\n{READS}    steps:\n      - run: .ci/run policy\n",
        ".github/workflows/nightly.yml": f"on:\n  schedule:\n{READS}    container: debian:12\n    steps:\n"
                                         "      - run: .ci/run --all\n",
        ".github/workflows/release.yml": f"on:\n  push:\n{READS}    container: debian:12\n    steps:\n"
                                         "      - run: scripts/release build/release out\n",
        "scripts/release": "",
        "docs/testing.md": "| stage | a | b |\n|---|---|---|\n| `test`, `lint` | x | y |\n\n"
                           "`make test CMAKE_ARGS=-DCMAKE_CXX_COMPILER=clang++-19`\n"}
# A stage of the night that a pull request runs, too.
NIGHT = {**SAME, ".ci/run": GATE + 'readonly CAMPAIGNS=("abi 0")\nstage_abi() { scripts/abi; }\n',
         "Makefile": SAME["Makefile"] + "\t@.ci/run abi\n",
         ".github/workflows/ci.yml": WORKFLOW + "      - run: .ci/run abi\n",
         "docs/testing.md": SAME["docs/testing.md"].replace("`lint`", "`lint`, `abi`")}
BUILDS = {"README.md": "```sh\nmake test CMAKE_ARGS=-DA=b && cmake --preset check && cmake --build"
                       " build/check\nctest --test-dir build/check\n```\nThen `make test -j 2`.\n",
          "Makefile": "test:\n\t@true\n",
          "CMakePresets.json": '{"configurePresets": [{"name": "base", "hidden": true},'
                               ' {"name": "check"}]}'}
# Other folders, and targets of CMake. What is no part of the tree is not known.
TARGETS = {**BUILDS,
           "README.md": "```sh\nmake -C test lint && make -C build/check tool\nmake -C other lunch\n"
                        "make --directory=. test && make -f other.mk lunch\n"
                        "cmake -S . -Bbuild/check && cmake -S example -B build/example\n"
                        "cmake --build build/check --target tool test_nn lib_static all -j 2\n"
                        "cmake --build other/build --target=lunch -- -k 0\n```\n",
           "CMakeLists.txt": "add_executable(tool a.cc)\nforeach(kind IN ITEMS static shared)\n"
                             "  add_library(lib_${kind} a.cc)\n  add_library(${target} b.cc)\n",
           "tests/CMakeLists.txt": "add_executable( test_${folder} a.cc)\n", "tests/nn/a_test.cc": "",
           "test/Makefile": "lint:\n\t@true\nflags := 1\n"}
RULE_DOCUMENT = "docs/governance/extra.md"


def agent_tree(page):
    """A tree with a page for agents and what is generated from it."""
    return {"AGENTS.md": page, "src/a.cc": "", "Makefile": "build:\n\t@true\n\ntest:\n\t@true\n",
            ".ci/run": "stage_lint() { :; }\n", **agents.generated(page)}


PAGE = ("# Rules\n\n## Rules\n\n- Be good.\n\n## Commands\n\n- build: `make build`\n"
        "- test: `make test`\n- lint: `.ci/run lint`\n\n## Never touch\n\n- src/**\n")
AGENTS = agent_tree(PAGE)


def changed(texts, path, old, new):
    """The same tree with something replaced in one file; the thing must be there."""
    if old not in texts[path]:
        raise AssertionError(f"{path} has no {old!r}")
    return {**texts, path: texts[path].replace(old, new)}


def source(code, path="src/nn/a.cc"):
    return {path: code + "\n"}


# A help page, and messages that name its options and no others.
MESSAGES = {
    "tests/governance/golden/help/volta-train.txt": "Options:\n  --steps INT    updates\n\nAlso: --force\n",
    "src/train/a.cc": '// "--old" was another name.\nauto a = "give --steps\\n--force replaces it";\n'
                      'auto b = "--no-{}"; char c = \'"\'; auto d = R"(--steps=2)"; auto e = "a--b ---";\n',
    messages.SUGGESTIONS: 'ForeignWord{"--iters", "--steps"}, ForeignWord{"--max-very-long-iterations",\n'
                          '                                                 "--steps"};\n',
    "src/formats/hub_cache.cc": 'auto command = "hf download --revision ";\n',
}

# (rule, a check, a tree that breaks the rule).
BAD = [
    ("calls.process", calls, source("void f() { std::abort(); }")),
    ("calls.process", calls, source("void f() { exit(1); }")),
    ("calls.process", calls, source("__global__ void f() { __trap(); }", "src/kernels/cuda/a.cu")),
    ("calls.process", calls, source("__device__ void f() { assert(x); }", "src/kernels/cuda/a.cuh")),
    ("calls.process", calls, source("auto f = &std::abort;")),
    ("calls.process", calls, source("std::raise(SIGABRT);")),
    ("calls.process", calls, source("raise(SIGABRT);")),
    ("calls.process", calls, source("__builtin_trap();")),
    ("calls.process", calls, source("std::unreachable();")),
    ("calls.process", calls, source("std::abort();", "apps/volta/a.cc")),
    ("calls.throw", calls, source("throw 1;", "apps/volta/a.cc")),
    ("calls.access", calls, source("return v.at(1);")),
    ("calls.access", calls, source("return v->at(1);", "apps/volta/a.cc")),
    ("calls.access", calls, source("return std::get<int>(v);")),
    ("calls.access", calls, source("return std::any_cast<int>(v);")),
    ("calls.throw", calls, source("int f() { throw 1; }")),
    ("calls.throw", calls, source("int f() { return result.value(); }")),
    ("calls.throw", calls, source("int f() { return std::stoi(text); }")),
    ("calls.regex", calls, source("std::regex pattern(text);")),
    ("calls.random", calls, source("int f() { return rand(); }")),
    ("calls.random", calls, source("std::mt19937 generator;")),
    ("calls.new", calls, source("auto* p = new Thing(1);")),
    ("calls.new", calls, source("delete thing_;")),
    ("calls.new", calls, source("void* p = std::malloc(4);")),
    ("calls.allowed", calls, {calls.ALLOWED: "src/a.cc calls.new A reason.\n", "src/a.cc": "int a;"}),
    ("calls.allowed", calls, {calls.ALLOWED: "src/a.cc calls.new\n"}),
    ("fence.cast", calls, source("auto* p = reinterpret_cast<char*>(q);  // SAFETY: none")),
    ("fence.intrinsic", calls, source("__m256 a = _mm256_set1_ps(0);")),
    ("fence.cuda", calls, source("__global__ void f() {}", "src/device/a.cu")),
    ("fence.cuda", calls, source("f<<<1, 2>>>(x);", "src/device/cuda_a.cc")),
    ("fence.launch", calls, source("cudaMallocAsync(&p, 4, stream);", "src/kernels/cuda/a.cu")),
    ("fence.launch", calls, source("cudaStreamSynchronize(stream);", "src/kernels/cuda/a.cuh")),
    ("fence.safety", calls, source("auto* p = reinterpret_cast<float4*>(q);", "src/kernels/cuda/a.cu")),
    ("fence.mapping", calls, source("void* p = ::mmap(q, 1, 2, 3, 4, 5);")),
    ("fence.safety", calls, source("auto* p = reinterpret_cast<char*>(q);", "src/device/a.cc")),
    ("secret.key", secret_scan, {"a.py": "KEY = 'AKIA" + "A1B2C3D4E5F6G7H8" + "'\n"}),
    ("secret.key", secret_scan, {"a.pem": "-----BEGIN RSA " + "PRIVATE KEY-----\nabc\n"}),
    ("secret.key", secret_scan, {"a.md": "git clone https://me:" + "hunter22@host.org/x\n"}),
    ("secret.key", secret_scan, {"a.json": '{"api_' + 'key": "0123456789abcdef0123"}\n'}),
    ("licences.table", licences, changed(LICENCED, "CMakeLists.txt", "find",
                                         "find_package(Boost)\nfind")),
    ("licences.table", licences, {**changed(LICENCED, "scripts/bootstrap", "dev", "dev libfoo-dev"),
                                  licences.PINNED: "libtbb-dev=1\nlibfoo-dev=2\n"}),
    ("licences.pinned", licences, changed(LICENCED, licences.PINNED, "libtbb-dev", "libtbb")),
    ("licences.allowed", licences, changed(LICENCED, licences.TABLE, "Apache-2.0", "GPL-2.0-only")),
    ("licences.cuda", licences, changed(LICENCED, "CMakeLists.txt", "find",
                                        "target_link_libraries(a PRIVATE CUDA::cublas)\nfind")),
    ("licences.unused", licences, changed(LICENCED, licences.TABLE, "`TBB`", "`TBB` `Old`")),
    ("licences.header", licences, {**LICENCED, "src/a.cc": "// Copy" + "right (c) 2020 Somebody\n"}),
    ("licences.header", licences, {**LICENCED, "src/a.cc": "// SPDX-" + "License-Identifier: MIT\n"}),
    ("licences.licence", licences, changed(LICENCED, "LICENSE", "MIT", "GNU")),
    ("links.target", links, {"docs/a.md": "see [b](b.md)\n"}),
    ("links.target", links, {"docs/a.md": "see [b](../../b.md)\n", "b.md": ""}),
    ("links.anchor", links, {"docs/a.md": "see [b](b.md#the-end)\n", "docs/b.md": "# The start\n"}),
    ("links.path", links, {"docs/a.md": "See `scripts/b`.\n", "scripts/c": ""}),
    ("links.path", links, {"docs/a.md": "See `nn/b.h`, please.\n", "src/nn/c.h": ""}),
    ("links.path", links, {"docs/a.md": "See `bench/x/figures.jsonl`.\n", "bench/a.cc": ""}),
    ("links.path", links, {"docs/a.md": "Run `tests/a/b.py --all`.\n", "tests/a/c.py": ""}),
    ("commands.target", commands, {"README.md": "```sh\nmake lunch\n```\n", "Makefile": "build:\n"}),
    ("commands.target", commands, {"README.md": "Say `make lunch`.\n", "Makefile": "build:\n"}),
    ("commands.preset", commands, changed(BUILDS, "README.md", "--preset check", "--preset chek")),
    ("commands.preset", commands, changed(BUILDS, "README.md", "--build build/check", "--build build/a")),
    ("commands.preset", commands, changed(BUILDS, "README.md", "--preset check", "--preset base")),
    ("commands.preset", commands, changed(TARGETS, "README.md", "-Bbuild/check", "-Bbuild/chek")),
    ("commands.preset", commands, changed(TARGETS, "README.md", "-C build/check", "-C build/chek")),
    ("commands.preset", commands, changed(BUILDS, "README.md", "--test-dir build/check",
                                          "--test-dir=./build/a")),
    ("commands.target", commands, changed(TARGETS, "README.md", "-C test lint", "-C test test")),
    ("commands.target", commands, changed(TARGETS, "README.md", "-C test lint", "-Ctest flags")),
    ("commands.target", commands, changed(TARGETS, "README.md", "-C test lint", "-C tests lint")),
    ("commands.target", commands, changed(TARGETS, "README.md", "=. test", "=. lint")),
    ("commands.target", commands, changed(TARGETS, "README.md", "build/check tool", "build/check tol")),
    ("commands.target", commands, changed(TARGETS, "README.md", "--target tool", "--target tol")),
    ("commands.target", commands, changed(TARGETS, "README.md", "--target tool", "-t tool --target=b")),
    ("commands.target", commands, changed(TARGETS, "README.md", "test_nn", "test_mm")),
    ("commands.target", commands, changed(TARGETS, "README.md", "lib_static", "lib_plain")),
    ("commands.syntax", commands, {"README.md": "```sh\nif true; then\n```\n"}),
    ("commands.option", CommandsWithHelp, {"README.md": "```sh\nvolta bench infer --run 1\n```\n"}),
    ("commands.option", CommandsWithHelp, {"README.md": "Say `volta bench infer --speed`.\n"}),
    ("commands.option", CommandsWithHelp, {"README.md": "```sh\nls | volta dance\n```\n"}),
    ("messages.option", messages, changed(MESSAGES, "src/train/a.cc", "give --steps", "give --stepps")),
    ("messages.option", messages, changed(MESSAGES, "src/train/a.cc", "n--force", "n--farce")),
    ("messages.option", messages, changed(MESSAGES, "src/train/a.cc", "(--steps", "(--stapes")),
    ("messages.option", messages, changed(MESSAGES, "src/train/a.cc", "--no-{}", "--no-way")),
    ("messages.option", messages, changed(MESSAGES, messages.SUGGESTIONS, '", "--steps"', '", "--iters"')),
    ("messages.option", messages, {**MESSAGES, "apps/volta/a.cc": 'auto a = "hf download --revision ";\n'}),
    ("messages.option", messages, {"apps/volta/a.cc": 'auto a = "--steps";\n'}),
    ("messages.allowed", messages, changed(MESSAGES, "src/formats/hub_cache.cc", "--revision", "")),
    ("commands.file", commands, {"README.md": "```sh\nscripts/nothing --all\n```\n"}),
    ("prd.tests", prd, changed(TRACED, "PRD.md", " Tests: `tests/a_test.cc`", "")),
    ("prd.tests", prd, changed(TRACED, "PRD.md", "`tests/a_test.cc`", "by hand")),
    ("prd.exists", prd, changed(TRACED, "PRD.md", "a_test", "b_test")),
    ("prd.line", prd, {}),
    ("prd.line", prd, changed(TRACED, "PRD.md", "- [x] 1. It", "  - [x] It")),
    ("prd.line", prd, changed(TRACED, "PRD.md", "- [ ] 2.", "- [x] 1. A. Tests: `tests/a_test.cc`\n"
                              "- [x] 1. B. Tests: `tests/a_test.cc`\n- [ ] 2.")),
    ("prd.line", prd, changed(TRACED, "PRD.md", "(agent) ", "")),
    ("prd.line", prd, changed(TRACED, "PRD.md", "(agent)", "(somebody)")),
    ("prd.order", prd, changed(TRACED, "PRD.md", "Owner: agent", "Owner: person")),
    ("prd.order", prd, changed({**TRACED, "PRD.md": PRD + "\n" + PERSONS[1]}, "PRD.md", "- [ ] 2.",
                               PERSONS[0] + "- [ ] 2.")),
    ("prd.task", prd, changed(TRACED, "PRD.md", ": see [task 2](#task-2).", ".")),
    ("prd.task", prd, changed(TRACED, "PRD.md", "### Task 2", "### Task 3")),
    ("prd.task", prd, changed(TRACED, "PRD.md", "Owner: agent", "Owner: somebody")),
    ("prd.task", prd, changed(TRACED, "PRD.md", "  make test\n", "")),
    ("prd.task", prd, changed(TRACED, "PRD.md", "- Expected: 100%\n", "")),
    ("prd.task", prd, changed(TRACED, "PRD.md", "- Acceptance of task 2", "- Acceptance")),
    ("prd.task", prd, changed(TRACED, "PRD.md", "### Task 2", "### Task 1\n\n### Task 2")),
    ("agents.page", agents, {}),
    ("agents.page", agents, agent_tree(PAGE.replace("- build: `make build`\n", ""))),
    ("agents.page", agents, agent_tree(PAGE.replace("- src/**", "- lost/**"))),
    ("agents.generated", agents, {**AGENTS, "CLAUDE.md": "# Other rules\n"}),
    ("agents.generated", agents, changed(AGENTS, ".ralphy/config.yaml", "Be good.", "Be bad.")),
    ("agents.commands", agents, agent_tree(PAGE.replace("make build", "make lunch"))),
    ("agents.commands", agents, agent_tree(PAGE.replace(".ci/run lint", ".ci/run nothing"))),
    ("agents.commands", agents, agent_tree(PAGE.replace("make build", "scripts/nothing"))),
    ("workflows.stages", workflows, changed(SAME, ".ci/run", '"test 9"', '"test 9"\n  "more 9"')),
    ("workflows.stages", workflows, changed(SAME, "docs/testing.md", "`test`", "`other`")),
    ("workflows.stages", workflows, changed(SAME, ".github/workflows/ci.yml", ".ci/run test",
                                            "make test")),
    ("workflows.scripts", workflows, changed(SAME, ".github/workflows/ci.yml",
                                             "apt-get update &&", "curl https://x.org | sh &&")),
    ("workflows.scripts", workflows, changed(SAME, ".github/workflows/ci.yml",
                                             "apt-get update &&", "cmake --preset a &&")),
    ("workflows.same", workflows, changed(SAME, ".ci/run", "scripts/lint --changed", "other --all")),
    ("workflows.verify", workflows, changed(SAME, "Makefile", "@.ci/run", "@.ci/run lint")),
    ("workflows.verify", workflows, changed(NIGHT, "Makefile", "\t@.ci/run abi\n", "")),
    ("workflows.verify", workflows, changed(SAME, "docs/testing.md", "clang++-19", "icpx")),
    ("workflows.systems", workflows, {path: text for path, text in SAME.items() if "night" not in path}),
    ("workflows.systems", workflows, {path: text for path, text in SAME.items()
                                      if path != ".github/workflows/release.yml"}),
    ("workflows.systems", workflows, changed(SAME, ".github/workflows/ci.yml", ', "clang++-19"', "")),
    ("workflows.systems", workflows, changed(SAME, ".github/workflows/ci.yml", '"debian:12", ', "")),
    ("workflows.systems", workflows, changed(SAME, ".github/workflows/nightly.yml", "--all", "test")),
    ("workflows.systems", workflows, changed(SAME, ".github/workflows/ci.yml",
                                             "    container: debian:12\n", "")),
    ("workflows.systems", workflows, changed(SAME, ".github/workflows/nightly.yml",
                                             "    container: debian:12\n", "")),
    ("workflows.systems", workflows, changed(SAME, ".github/workflows/release.yml",
                                             "    container: debian:12\n", "")),
    ("workflows.make", workflows, changed(SAME, "Makefile", "test:", "tests:")),
    ("workflows.pinned", workflows, changed(SAME, ".github/workflows/ci.yml",
                                            f"{'0a' * 20} # v7.0.1", "v7")),
    ("workflows.permissions", workflows, changed(SAME, ".github/workflows/ci.yml",
                                                 "permissions:\n  contents: read\n", "")),
    ("workflows.permissions", workflows, changed(SAME, ".github/workflows/ci.yml", "    steps",
                                                 "    permissions:\n      packages: write\n"
                                                 "    steps")),
    ("workflows.fork", workflows, changed(SAME, ".github/workflows/ci.yml", "  pull_request:",
                                          "  pull_request:\n  pull_request_target:")),
]
# The same checks on what is right, and on what only looks wrong.
GOOD = [
    (messages, MESSAGES),
    (calls, source("// std::abort() and new Thing() in a comment\nauto s = \"throw exit(1)\";")),
    (calls, source("return std::unique_ptr<Thing>(new Thing(1));")),
    (calls, source("std::shared_ptr<Thing> thing(new Thing(1));\nout << (a << 2);")),
    (calls, source("__global__ void f() { __syncthreads(); }\nf<<<1, 2>>>(x);\n"
                   "cudaMemcpyAsync(a, b, 4, kind, stream);", "src/kernels/cuda/a.cu")),
    (calls, source("cudaStreamSynchronize(stream_); // cudaMalloc", "src/device/cuda_a.cc")),
    (calls, source("Thing(const Thing&) = delete;\nauto p = std::make_unique<Thing>(1);")),
    (calls, source("thing.exit(1); sum.raise(largest); const int new_rows = 1'000;")),
    (calls, source("auto v = row.at(2); sum.raise(largest);", "src/kernels/cpu/a.cc")),
    (calls, source("auto* v = std::get_if<int>(&a); auto* w = std::any_cast<int>(&b);")),
    (calls, source("std::set_terminate(on_terminate); std::at(1);")),
    (calls, source("auto* p = reinterpret_cast<char*>(q);  // SAFETY: q has bytes.",
                   "src/device/a.cc")),
    (calls, {calls.ALLOWED: "src/a.cc calls.new A reason.\n", "src/a.cc": "auto* p = new A;\n"}),
    (secret_scan, {"a.md": "https://example.org/a@b and user@host, password: ask\n"}),
    (licences, LICENCED),
    (licences, changed(LICENCED, "CMakeLists.txt", "find",
                       "set(libraries CUDA::cudart_static)  # not CUDA::cudart\nfind")),
    (links, {"docs/a.md": "[b](b.md#the-end-of-it) [c](../c/) [w](https://w.org) `[x](y)`\n",
             "docs/b.md": "# The `end`, of it\n", "c/d.txt": ""}),
    (links, {"docs/a.md": "`nn/b.h` `src/nn/b.h` `scripts/c --all` `src/nn/*.h` `DIR/e.json`"
                          " and/or `build/x.txt`\n",
             "src/nn/b.h": "", "scripts/c": "", "bench/a.cc": "", "CHANGELOG.md": "`scripts/old` went.\n"}),
    (commands, BUILDS),
    (commands, TARGETS),
    (CommandsWithHelp, {"README.md": "```sh\nvolta bench infer -n 4 --seed=1 | head -1  # --no\n"
                "volta --bench-infer && volta help bench\n```\n`volta bench --threads 2`\n"}),
    (commands, {"README.md": "```sh\nvolta dance --fast\n```\n"}),
    (prd, TRACED),
    (prd, changed({**TRACED, "PRD.md": PRD + "\n" + PERSONS[1]}, "PRD.md", "#task-2).\n",
                  "#task-2).\n" + PERSONS[0])),
    (agents, AGENTS),
    (workflows, SAME),
    (workflows, NIGHT),
]


# A program with a command "bench infer", whose every answer is the same.
FAKE = """#!/usr/bin/env python3
import sys
words = sys.argv[1:-1]
if sys.argv[-1] != "--help":
    print('{"steps": [{"loss": 1.5}]}')
elif len(words) < 2:
    print("usage\\n\\nSubcommands:\\n  " + ["bench", "infer"][len(words)] + "   text")
else:
    print("usage of " + " ".join(words))
"""


class Checks(unittest.TestCase):
    def test_every_bad_tree_breaks_its_rule_and_no_other(self):
        for rule, module, texts in BAD:
            with self.subTest(rule=rule, texts=texts):
                self.assertEqual({finding.rule for finding in module.check(Tree(texts))}, {rule})

    def test_good_trees_have_no_findings(self):
        for module, texts in GOOD:
            with self.subTest(module=module.__name__, texts=texts):
                self.assertEqual(list(module.check(Tree(texts))), [])

    def test_every_rule_of_a_tree_has_a_bad_tree(self):
        seen = {rule for rule, _, _ in BAD}
        wanted = {rule for rule in ALL_RULES
                  if not re.match(r"(policy|golden|documents|agents\.config)", rule)}
        self.assertEqual(wanted - seen, set())

    def test_every_kind_of_secret_is_seen(self):
        letters = "aB3dE5gH1jK2mN4pQ6rS8tU0vW7xY9zA" * 2
        lines = ["-----BEGIN " + "PRIVATE KEY-----", "AK" + "IA" + "A1B2C3D4E5F6G7H8",
                 "gh" + "o_" + letters[:36], "github" + "_pat_" + letters[:44],
                 "glp" + "at-" + letters[:20], "h" + "f_" + letters[:34], "s" + "k-" + letters[:40],
                 "xo" + "xb-" + letters[:24], "AI" + "za" + letters[:35], "py" + "pi-" + letters[:60],
                 ".".join(["ey" + "J" + letters[:24]] * 2 + [letters[:24]]),
                 "https://me:" + "hunter22@example.org"]
        lines += [f'{name}: "' + letters[:20] + '"' for name in
                  ("PASSWORD", "passwd", "client_secret", "api_key", "apikey", "access_token")]
        self.assertEqual(len(lines), len(secret_scan.PATTERNS))
        for line in lines:
            with self.subTest(line=line):
                self.assertEqual(len(list(secret_scan.check(Tree({"a": line + "\n"})))), 1)

    def test_a_finding_names_file_line_and_rule(self):
        finding = next(iter(calls.check(Tree(source("int a;\nint f() { std::abort(); }")))))
        self.assertEqual((finding.where, finding.rule), ("src/nn/a.cc:2", "calls.process"))

    def test_code_without_comments_keeps_its_lines(self):
        text = 'a /* b\nc */ d; // "e\nauto f = R"x(new\n)x"; g(\'"\');\n'
        self.assertEqual(code_of(text).count("\n"), text.count("\n"))
        self.assertEqual(code_of(text).split(), ["a", "d;", "auto", "f", "=", ";", "g(", ");"])


class Agents(unittest.TestCase):
    def findings(self, config):
        tree = Tree({**AGENTS, agents.CONFIG: config})
        return [finding for finding in agents.check(tree) if finding.rule == "agents.config"]

    def test_a_config_without_a_part_or_with_another_key_is_found(self):
        good = AGENTS[agents.CONFIG]
        self.assertEqual(self.findings(good), [])
        for part in ("project", "commands", "rules", "boundaries", "never_touch"):
            with self.subTest(part=part):
                self.assertTrue(self.findings(good.replace(part + ":", "other:")))
        self.assertIn("'other'", self.findings(good + "other: 1\n")[0].text)
        self.assertEqual(len(self.findings("")), 4)

    def test_a_config_that_cannot_be_read_is_told_with_its_line(self):
        found = self.findings("rules:\n\t- a\n")
        self.assertEqual(found[0].where, agents.CONFIG + ":2")

    def test_a_command_without_a_value_is_found(self):
        for value in ("", ' ""', "\n    deep: x"):
            tree = Tree(changed(AGENTS, agents.CONFIG, 'build: "make build"', f"build:{value}"))
            found = [str(finding) for finding in agents.check(tree)
                     if finding.rule == "agents.commands"]
            self.assertEqual(len(found), 1, value)
            self.assertIn("build: the command is missing", found[0])

    def test_a_command_that_cannot_start_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "Makefile").write_text("good:\n\t@true\n")
            Path(folder, "broken").write_text("if true; then\n")
            self.assertIsNone(agents.dry_run("make good", folder))
            self.assertIn("No rule", agents.dry_run("make bad", folder))
            self.assertIn("syntax error", agents.dry_run("broken", folder))

    def test_every_command_of_this_tree_can_start(self):
        commands_here = agents.commands_of((ROOT / "AGENTS.md").read_text(encoding="utf-8"))
        self.assertEqual(set(commands_here), {"build", "test", "lint"})
        for command in commands_here.values():
            self.assertIsNone(agents.dry_run(command), command)


class SmallYaml(unittest.TestCase):
    def test_mappings_lists_and_values_are_read(self):
        text = ("# A comment\na: plain text\nb:\n  c: \"d: \\\"e\\\"\"\n  f: 'it''s'\n"
                "g:\n  - h\n  - \"- i\"\nj:\n")
        self.assertEqual(small_yaml.parse(text), {
            "a": "plain text", "b": {"c": 'd: "e"', "f": "it's"}, "g": ["h", "- i"], "j": None})
        self.assertEqual(small_yaml.parse("# Nothing\n"), {})

    def test_what_it_does_not_know_is_refused(self):
        for line, text in ((1, "a: [b]"), (1, "a: &b c"), (1, "a: |"), (2, "a: b\na: c"),
                           (2, "a:\n\t- b"), (3, "a:\n  - b\n  c: d"), (2, "a: b\n  c: d"),
                           (1, "a: b: c"), (1, 'a: "b'), (1, "a: 'b'c'"), (1, "- a"), (1, "a b"),
                           (3, "a:\n    b: c\n  d: e"), (2, "  a: b\nc: d"), (1, "a: b #c")):
            with self.subTest(text=text), self.assertRaises(small_yaml.Problem) as caught:
                small_yaml.parse(text + "\n")
            self.assertEqual(caught.exception.line, line, text)


class Documents(unittest.TestCase):
    def findings(self, rule, stages="stage_test() { :; }"):
        tree = Tree({RULE_DOCUMENT: f"# Extra\n\n## Rules\n\n- {rule}\n", ".ci/run": stages + "\n",
                     "tests/a_test.cc": ""})
        return [finding.rule for finding in documents.check(tree, ALL_RULES)
                if finding.where.startswith(RULE_DOCUMENT)]

    def test_a_rule_names_what_enforces_it(self):
        self.assertEqual(self.findings("Be good. (by review)"), [])
        self.assertEqual(self.findings("Test. (stage: test; check: links.target, prd.tests)"), [])
        self.assertEqual(self.findings("Test. (test: tests/a_test.cc)"), [])
        self.assertEqual(self.findings("Be good."), ["documents.enforced"])
        self.assertEqual(self.findings("Be good. (somehow)"), ["documents.enforced"])

    def test_what_it_names_exists(self):
        self.assertEqual(self.findings("A. (stage: dance)"), ["documents.known"])
        self.assertEqual(self.findings("A. (check: links.nothing)"), ["documents.known"])
        self.assertEqual(self.findings("A. (test: tests/b_test.cc)"), ["documents.known"])

    def test_a_stage_that_no_test_sees_fail_is_found(self):
        def texts(rows, test="run(ROOT / 'scripts' / 'check_a')"):
            tree = Tree({documents.OVERVIEW: "| stage | what | test |\n|---|---|---|\n" + rows,
                         ".ci/run": "stage_a() { scripts/check_a --all; }\nstage_b() {\n  build\n"
                                    "  tests/b/run --shim build/release/tests/b/x.so\n}\n",
                         "tests/a_test.py": test, "tests/b/b_test.py": "HERE / 'run'"})
            return [finding.text for finding in documents.check(tree, ALL_RULES)
                    if finding.rule == "documents.seen_to_fail"]
        both = "| `a` | x | `tests/a_test.py` |\n| `b` | y | `tests/b/b_test.py` |\n"
        self.assertEqual(texts(both), [])
        self.assertEqual(texts("| `a`, `b` | x | `tests/a_test.py`, `tests/b/b_test.py` |\n"), [])
        missing = "add a row with the tests that see the stage 'b' fail"
        self.assertEqual(texts("| `a` | x | `tests/a_test.py` |\n"), [missing])
        self.assertEqual(texts(both.replace("`tests/b/b_test.py`", "by review")), [missing])
        self.assertEqual(texts(both.replace("tests/b/b_test.py", "tests/b/lost.py")),
                         ["tests/b/lost.py is not in the tree",
                          "no test in the row of 'b' names b/run, which it calls"])
        self.assertEqual(texts(both, "nothing"),
                         ["no test in the row of 'a' names check_a, which it calls"])

    def test_a_missing_document_or_heading_is_found(self):
        findings = [finding for finding in documents.check(Tree({"SECURITY.md": "# Reporting\n"}))
                    if finding.rule == "documents.present"]
        where = [finding.where for finding in findings]
        self.assertIn("docs/governance/tiers.md", where)
        self.assertEqual([finding.text for finding in findings if finding.where == "SECURITY.md"],
                         ["the heading 'What is promised' is missing"])


class Golden(unittest.TestCase):
    def test_a_changed_help_page_is_found_in_both_directions(self):
        page = golden.file_of("bench infer")
        self.assertEqual(page, "tests/governance/golden/help/volta-bench-infer.txt")
        found = list(golden.compare({page: "  --runs\n"}, {page: "  --rounds\n"}))
        self.assertEqual([finding.rule for finding in found], ["golden.help"] * 2)
        self.assertEqual(list(golden.compare({page: "a\n"}, {page: "a\n"})), [])
        self.assertEqual(len(list(golden.compare({page: "a\n"}, {}))), 1)
        self.assertEqual(len(list(golden.compare({}, {page: "a\n"}))), 1)

    def test_a_changed_key_is_found(self):
        path = golden.FOLDER + "/json.txt"
        found = list(golden.compare({path: "volta a\n  x number\n"}, {path: "volta a\n  x text\n"}))
        self.assertEqual([finding.rule for finding in found], ["golden.json"] * 2)

    def test_a_key_that_another_command_has_too_is_found(self):
        path = golden.FOLDER + "/json.txt"
        both = "volta a\n  x number\n  y text\n\nvolta b\n  x number\n  y text\n"
        for one, command in ((both.replace("  x number\n", "", 1), "volta a"),
                             ("".join(both.rsplit("  x number\n", 1)), "volta b")):
            for wanted, found, said in (
                    (both, one, f"the program no longer says `x number` for `{command}`"),
                    (one, both, f"the program says `x number` for `{command}`, which is not here")):
                self.assertEqual([finding.text for finding in
                                  golden.compare({path: wanted}, {path: found})], [said])

    def test_a_line_of_a_help_page_that_stands_there_twice_is_found(self):
        page = golden.file_of("a")
        twice = "Options:\n  --all\n\nSubcommands:\n  --all\n"
        self.assertEqual(len(list(golden.compare({page: twice}, {page: twice[:-8]}))), 1)
        self.assertEqual(len(list(golden.compare({page: twice[:-8]}, {page: twice}))), 1)

    def test_every_page_and_every_answer_of_a_program_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "volta")
            program.write_text(FAKE)
            program.chmod(0o755)
            files = golden.files_of(str(program))
        pages = {path.rsplit("/", 1)[1] for path in files}
        self.assertEqual(pages, {"volta.txt", "volta-bench.txt", "volta-bench-infer.txt",
                                 "json.txt"})
        self.assertIn("usage of bench infer", files[golden.file_of("bench infer")])
        answers = files[golden.FOLDER + "/json.txt"]
        self.assertEqual(answers.count("\n  steps[].loss number\n"), len(golden.COMMANDS) - 1)
        self.assertIn("volta devices\n  steps[].loss\n", answers)

    def test_a_command_that_fails_is_told(self):
        with self.assertRaisesRegex(RuntimeError, "volta --help: exit code 1"):
            golden.help_of("/bin/false")

    def test_keys_have_paths_and_types(self):
        value = {"a": [{"b": 1, "c": None}, {"b": 2.5}], "d": {"MatMul": "x"}, "e": [], "f": {}}
        self.assertEqual(golden.key_paths(value), {
            "a[].b number", "a[].c null", "d.OP text", "e[] list", "f object"})


class Markdown(unittest.TestCase):
    def test_links_are_read_outside_of_code_only(self):
        text = "[a](b.md) ![c](d.svg)\n```\n[e](f.md)\n```\n`[g](h.md)` [`i`](j.md \"title\")\n"
        self.assertEqual([target for _, target in markdown.links(text)], ["b.md", "d.svg", "j.md"])

    def test_repeated_headings_get_numbers(self):
        self.assertEqual(markdown.anchors("# A b\n## A b\n"), {"a-b", "a-b-1"})

    def test_a_table_has_rows_without_its_head(self):
        rows = markdown.tables("| a | b |\n|---|---|\n| c | d \\| e |\n")
        self.assertEqual(rows, [(3, ["c", "d \\| e"])])


if __name__ == "__main__":
    unittest.main()
