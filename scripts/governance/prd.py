"""PRD.md: a list of requirements that people read and that an agent's loop takes tasks from.

A requirement is one line at the margin, because loops read nothing else: `- [x] 4. TEXT Tests: ...`
or `- [ ] 13. TEXT: see [task 13](#task-13).`, and the block `### Task 13` says the rest.
"""
import re
from typing import NamedTuple

import markdown
from tree import Finding

RULES = {
    "prd.tests": "Every requirement of PRD.md that is done names its tests behind `Tests:`.",
    "prd.exists": "Every test that PRD.md names is in the tree.",
    "prd.line": "Every line with a box in PRD.md stands at the margin and is `- [x] NUMBER. TEXT` or"
                " `- [ ] NUMBER. TEXT`, with a number of its own.",
    "prd.task": "Every open requirement links to a block `### Task NUMBER` with an owner (agent or"
                " person), commands, expected output and acceptance; no other block exists.",
}
PATH = "PRD.md"
_LINE = re.compile(r"- \[([ x])\] (\d+)\. (.*)")
_BOX = re.compile(r"\s*[-*+]\s*\[[ xX]?\]")


class Requirement(NamedTuple):
    line: int
    number: str
    done: bool
    text: str   # What is promised, without its tests and its link.
    tests: str  # What stands behind "Tests:".


def requirement(line, text):
    """The Requirement that a line of PRD.md states, or None."""
    match = _LINE.fullmatch(text)
    if not match:
        return None
    promise, _, tests = match[3].partition(" Tests: ")
    promise = re.sub(r": see \[task \d+\]\(#task-\d+\)\.$", "", promise)
    return Requirement(line, match[2], match[1] == "x", promise.strip(" ."), tests)


def tasks(text):
    """{number: (line, lines of the block)} of every block `### Task NUMBER`."""
    found, number = {}, None
    for at, line in enumerate(text.splitlines(), 1):
        match = re.fullmatch(r"### Task (\d+)", line)
        if match:
            number = match[1]
            found[number] = (at, [])
        elif line.startswith("#"):
            number = None
        elif number:
            found[number][1].append(line)
    return found


def _task_problems(number, lines):
    text = "\n".join(lines)
    if not re.search(r"^- Owner: (agent|person)$", text, re.MULTILINE):
        yield "write `- Owner: agent` or `- Owner: person`"
    if not re.search(r"^- Commands:\n\s*```sh\n\s*[^\s`]", text, re.MULTILINE):
        yield "write `- Commands:` with a block of shell commands below it"
    for title in ("Expected", f"Acceptance of task {number}"):
        if not re.search(rf"^- {title}: \S", text, re.MULTILINE):
            yield f"write `- {title}: ...`"


def _requirements(text, findings):
    found = {}
    for number, line in markdown.prose(text):
        if not _BOX.match(line):
            continue
        item = requirement(number, line)
        if item is None:
            findings.append(Finding(f"{PATH}:{number}", "prd.line",
                                    "write `- [x] NUMBER. TEXT` or `- [ ] NUMBER. TEXT`"))
        elif item.number in found:
            findings.append(Finding(f"{PATH}:{number}", "prd.line", f"{item.number} comes twice"))
        else:
            found[item.number] = item
    return found


def check(tree):
    text = tree.texts.get(PATH, "")
    findings = []
    wanted, blocks = _requirements(text, findings), tasks(text)
    if not wanted:
        findings.append(Finding(PATH, "prd.line", "there is no requirement"))
    for item in wanted.values():
        where = f"{PATH}:{item.line}"
        paths = re.findall(r"`([^`]+)`", item.tests)
        if item.done and not paths:
            findings.append(Finding(where, "prd.tests", f"name the tests of {item.number}"))
        findings += [Finding(where, "prd.exists", f"{path} is not in the tree")
                     for path in paths if not tree.exists(path)]
        line = text.splitlines()[item.line - 1]
        link = f": see [task {item.number}](#task-{item.number})."
        if not item.done and (not line.endswith(link) or item.number not in blocks):
            findings.append(Finding(where, "prd.task", f"end the line with `{link}`, and write that"
                                    " block"))
    for number, (line, lines) in blocks.items():
        where = f"{PATH}:{line}"
        if number not in wanted or wanted[number].done:
            findings.append(Finding(where, "prd.task", f"{number} is not open; delete this block"))
            continue
        findings += [Finding(where, "prd.task", problem)
                     for problem in _task_problems(number, lines)]
    return findings
