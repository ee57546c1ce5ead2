"""Licences: what Volta depends on is in a table with its licence, and nobody else's code is here."""
import re

import markdown
from tree import Finding

RULES = {
    "licences.table": "Every library that CMake looks for and every package that scripts/bootstrap"
                      " installs is in the table of docs/governance/dependencies.md.",
    "licences.allowed": "Every licence in that table is one that Volta may use in that way.",
    "licences.unused": "Every row of that table names something that the tree still looks for.",
    "licences.pinned": "Every package that scripts/bootstrap installs has a version in"
                       " containers/debian-12.txt, which Containerfile installs.",
    "licences.cuda": "Of the CUDA toolkit only the static runtime is linked: it may be passed on, and"
                     " no kernel is a vendor's. Benchmarks may link the libraries that they compare"
                     " with.",
    "licences.header": "No file carries a copyright or licence notice of its own: all of Volta is"
                       " under the LICENSE, and none of it is copied.",
    "licences.licence": "LICENSE is the MIT licence.",
}

TABLE = "docs/governance/dependencies.md"
PINNED = "containers/debian-12.txt"
# What is linked into a program that others get must be as free as Volta itself; a tool may be more.
LINKED = {"MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "BSL-1.0", "ISC", "Zlib",
          "MIT AND Unicode-DFS-2016"}
TOOLS = LINKED | {"GPL-2.0-or-later", "GPL-2.0-only", "GPL-3.0-or-later", "PSF-2.0",
                  "MIT-Modern-Variant", "Apache-2.0 WITH LLVM-exception", "GPL-3.0-or-later WITH GCC-exception-3.1",
                  "NVIDIA CUDA EULA"}
_NOTICE = re.compile(r"SPDX-" r"License-Identifier:|[Cc]opyright\s+(?:\([cC]\)|©|\d{4})"
                     r"|All rights\s+reserved")


def _cuda_findings(tree):
    for path, text in tree.select(r"(?!bench/).*(CMakeLists\.txt|\.cmake|\.cmake\.in)"):
        for number, line in enumerate(text.splitlines(), 1):
            for name in re.findall(r"\bCUDA::(\w+)", line.split("#")[0]):
                if name != "cudart_static":
                    yield Finding(f"{path}:{number}", "licences.cuda",
                                  f"CUDA::{name} is linked; write the kernel, or link cudart_static")


def _looked_for(tree):
    """{name: where} of the libraries and packages that the tree asks for."""
    found = {}
    for path, text in tree.select(r".*(CMakeLists\.txt|\.cmake)"):
        for number, line in enumerate(text.splitlines(), 1):
            line = line.split("#")[0]
            package = re.search(r"\bfind_package\(\s*(\w+)", line)
            module = re.search(r"\bpkg_check_modules\(.*?([a-z][\w.+-]*)\s*\)\s*$", line)
            for match in (package, module):
                if match and match[1] != "Volta":
                    found.setdefault(match[1], f"{path}:{number}")
    for name in bootstrap_packages(tree):
        found.setdefault(name, "scripts/bootstrap")
    return found


def bootstrap_packages(tree):
    """The names of the packages that scripts/bootstrap installs."""
    lists = re.findall(r"^(?:readonly )?[A-Z]+=\(([^)]*)\)", tree.texts.get("scripts/bootstrap", ""),
                       re.MULTILINE)
    return {word.split("=")[0] for words in lists for word in words.split()}


def linked_rows(tree):
    """The rows of the table whose packages are linked into programs."""
    return [row for row in _table(tree) if row[3]]


def _table(tree):
    """(number, names, licence, whether it is linked) of every row."""
    for number, cells in markdown.tables(tree.texts.get(TABLE, "")):
        if len(cells) == 4:
            yield number, re.findall(r"`([^`]+)`", cells[1]), cells[2], cells[3].startswith("linked")


def check(tree):
    rows, wanted = list(_table(tree)), _looked_for(tree)
    named = {name for _, names, _, _ in rows for name in names}
    for name, where in sorted(wanted.items()):
        if name not in named:
            yield Finding(where, "licences.table", f"'{name}' has no row in {TABLE}")
    for number, names, licence, linked in rows:
        where = f"{TABLE}:{number}"
        if licence not in (LINKED if linked else TOOLS):
            use = "linked into programs" if linked else "used as a tool"
            yield Finding(where, "licences.allowed", f"'{licence}' is not a licence that may be {use}")
        for name in names:
            if name not in wanted:
                yield Finding(where, "licences.unused", f"nothing looks for '{name}'; delete it")
    yield from _cuda_findings(tree)
    pinned = {line.split("=")[0] for line in tree.texts.get(PINNED, "").splitlines()}
    for name in sorted(bootstrap_packages(tree) - pinned):
        yield Finding(PINNED, "licences.pinned", f"'{name}' has no version; write the list anew with"
                      " scripts/pinned_packages")
    for path, text in sorted(tree.texts.items()):
        match = _NOTICE.search(text) if path != "LICENSE" else None
        if match:
            number = text.count("\n", 0, match.start()) + 1
            yield Finding(f"{path}:{number}", "licences.header",
                          "a notice of its own: write this code yourself, or depend on its package")
    if not tree.texts.get("LICENSE", "").startswith("MIT License\n"):
        yield Finding("LICENSE", "licences.licence", "this file must be the MIT licence")
