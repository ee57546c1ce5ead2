"""The documents of docs/governance: they are there, and each rule says what enforces it."""
import re

import markdown
from tree import Finding

RULES = {
    "documents.present": "Every document of the governance is in the tree, with its headings.",
    "documents.enforced": "Every rule in docs/governance ends with what enforces it: (check: NAME),"
                          " (stage: NAME), (test: FILE) or (by review).",
    "documents.known": "What a rule names as its check, stage or test exists.",
}

FOLDER = "docs/governance/"
# document: the headings that it must have.
WANTED = {
    "README.md": ["Documents", "The checks"],
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
    "release.md": ["Checklist", "Rules"],
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


def _unknown(mark, tree, known):
    """The names in a mark that nothing in the tree has."""
    stages = re.findall(r"^stage_(\w+)\(\)", tree.texts.get(".ci/run", ""), re.MULTILINE)
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
    for path, text in tree.select(re.escape(FOLDER) + r".*\.md"):
        for number, rule in rules_of(text):
            mark = _ENFORCED.search(rule)
            if not mark:
                yield Finding(f"{path}:{number}", "documents.enforced",
                              "end the rule with (check: ...), (stage: ...), (test: ...) or (by review)")
                continue
            for problem in _unknown(mark[1], tree, known):
                yield Finding(f"{path}:{number}", "documents.known", problem)
