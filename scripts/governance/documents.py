"""The documents of docs/governance: they are there, and each rule says what enforces it."""
import re

import markdown
from tree import Finding

RULES = {
    "documents.present": "Every document of the governance is in the tree, with its headings.",
    "documents.enforced": "Every rule in docs/governance ends with what enforces it: (check: NAME),"
                          " (stage: NAME), (test: FILE) or (by review).",
    "documents.known": "What a rule names as its check, stage or test exists.",
    "documents.seen_to_fail": "Every stage of .ci/run has a row in the table of"
                              " docs/governance/README.md that names the tests which see it fail, and"
                              " those tests name every program that the stage calls.",
}

FOLDER = "docs/governance/"
# document: the headings that it must have.
WANTED = {
    "README.md": ["Documents", "The checks", "Who checks the checks", "What was tried"],
    "quality.md": ["Order of values", "Definition of done", "Rules"],
    "tiers.md": ["The tiers", "What each needs", "Labels", "Rules"],
    "stability.md": ["Library", "Command line", "Files", "Deprecation", "Rules"],
    "determinism.md": ["Same bits", "Within a tolerance", "Rules"],
    "performance.md": ["Regressions", "The stored baseline", "Rules"],
    "unsafe.md": ["The fence", "Rules"],
    "dependencies.md": ["Table", "CUDA", "Rules"],
    "owners.md": ["Who decides", "Rules"],
    "rfc.md": ["When", "Template", "Rules"],
    "incidents.md": ["Playbook", "Rules"],
    "release.md": ["Checklist", "What the archive needs", "Rules"],
    "agents.md": ["What agents read", "One agent in a loop", "Several agents", "Rules"],
    "coding.md": ["Language", "Errors", "Text", "Rules"],
}
OTHERS = {
    "SECURITY.md": ["Reporting", "What is promised"],
    "CONTRIBUTING.md": ["Before you begin", "Before you ask for review"],
    ".github/CODEOWNERS": [],
    ".github/PULL_REQUEST_TEMPLATE.md": ["Change", "Tier", "Tests run", "Bench", "Op breakdown",
                                         "Risk", "Rollback"],
    "LICENSE": [],
    "CHANGELOG.md": [],
}
GATE, OVERVIEW = ".ci/run", FOLDER + "README.md"
# Programs that a stage calls, but for those that prepare and those that run the program under test.
_PROGRAM = re.compile(r"(?<![\w/])(?:scripts/(?!bootstrap)|tests/)([\w-]+(?:/[\w-]+)?)\b(?![./])")
_ENFORCED = re.compile(r"\(((?:(?:check|stage|test): [^();]+|by review)(?:; (?:(?:check|stage|test):"
                       r" [^();]+|by review))*)\)$")


def rules_of(text):
    """(number, rule) of every bullet below the heading "Rules"."""
    inside = False
    for number, line in markdown.prose(text):
        if line.startswith("#"):
            inside = line.lstrip("# ").strip() == "Rules"
        elif inside and line.startswith("- "):
            yield number, line[2:].strip()


def _seen_to_fail(tree):
    """The stages of the gate for which no test with a bad sample is named."""
    rows = {name: re.findall(r"`(tests/[^`]+)`", cells[2])
            for _, cells in markdown.tables(tree.texts.get(OVERVIEW, "")) if len(cells) == 3
            for name in re.findall(r"`([a-z]+)`", cells[0])}
    stages = re.findall(r"^stage_(\w+)\(\) \{(.*?)(?:^|; *)\}$", tree.texts.get(GATE, ""),
                        re.MULTILINE | re.DOTALL)
    for stage, body in stages:
        tests = rows.get(stage, [])
        if not tests:
            yield Finding(OVERVIEW, "documents.seen_to_fail",
                          f"add a row with the tests that see the stage '{stage}' fail")
        for test in tests:
            if test not in tree.paths:
                yield Finding(OVERVIEW, "documents.seen_to_fail", f"{test} is not in the tree")
        told = "\n".join(tree.texts.get(test, "") for test in tests)
        for program in _PROGRAM.findall(body) if tests else ():
            if not re.search(rf"\b{re.escape(program.split('/')[-1])}\b", told):
                yield Finding(OVERVIEW, "documents.seen_to_fail",
                              f"no test in the row of '{stage}' names {program}, which it calls")


def _unknown(mark, tree, known):
    """The names in a mark that nothing in the tree has."""
    stages = re.findall(r"^stage_(\w+)\(\)", tree.texts.get(GATE, ""), re.MULTILINE)
    for part in mark.split("; "):
        kind, _, names = part.partition(": ")
        for name in (name.strip(" `") for name in names.split(",") if name.strip()):
            exists = {"check": name in known, "stage": name in stages,
                      "test": name.startswith("tests/") and tree.exists(name)}
            if not exists[kind]:
                yield f"there is no {kind} '{name}'"


def check(tree, known=()):
    wanted = {FOLDER + name: titles for name, titles in WANTED.items()} | OTHERS
    for path, titles in wanted.items():
        if path not in tree.texts:
            yield Finding(path, "documents.present", "this document is missing")
            continue
        present = {title for _, title in markdown.headings(tree.texts[path])}
        for title in titles:
            if title not in present:
                yield Finding(path, "documents.present", f"the heading '{title}' is missing")
    yield from _seen_to_fail(tree)
    for path, text in tree.select(re.escape(FOLDER) + r".*\.md"):
        for number, rule in rules_of(text):
            mark = _ENFORCED.search(rule)
            if not mark:
                yield Finding(f"{path}:{number}", "documents.enforced",
                              "end the rule with (check: ...), (stage: ...), (test: ...) or (by review)")
                continue
            for problem in _unknown(mark[1], tree, known):
                yield Finding(f"{path}:{number}", "documents.known", problem)
