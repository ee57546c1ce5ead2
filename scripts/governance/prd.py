"""PRD.md: a list of requirements that people read and that an agent's loop takes tasks from.

A requirement is one line at the margin, because loops read nothing else: `- [x] 4. TEXT Tests: ...`
or `- [ ] 13. (agent) TEXT: see [task 13](#task-13).`, and the block `### Task 13` says the rest.
"""
import re
from typing import NamedTuple

import markdown
from tree import Finding

RULES = {
    "prd.tests": "Every requirement of PRD.md that is done names its tests behind `Tests:`.",
    "prd.exists": "Every test that PRD.md names is in the tree.",
    "prd.line": "Every line with a box in PRD.md stands at the margin and is `- [x] NUMBER. TEXT`,"
                " `- [ ] NUMBER. (agent) TEXT` or `- [ ] NUMBER. (person) TEXT`, with a number of its"
                " own.",
    "prd.order": "The open requirements of agents come before those of persons, because a loop takes"
                 " them in order; each says the owner that its block names.",
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
    owner: str  # "agent" or "person" of an open one, else "".
    text: str   # What is promised, without its owner, its tests and its link.
    tests: str  # What stands behind "Tests:".


def requirement(line, text):
    """The Requirement that a line of PRD.md states, or None."""
    match = _LINE.fullmatch(text)
    if not match:
        return None
    owned = re.fullmatch(r"\((agent|person)\) (.*)", match[3])
    promise, _, tests = (owned[2] if owned else match[3]).partition(" Tests: ")
    promise = re.sub(r": see \[task \d+\]\(#task-\d+\)\.$", "", promise)
    return Requirement(line, match[2], match[1] == "x", owned[1] if owned else "",
                       promise.strip(" ."), tests)


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
        if item is None or item.done == bool(item.owner):
            found.update({item.number: item} if item else {})
            findings.append(Finding(f"{PATH}:{number}", "prd.line", "write `- [x] NUMBER. TEXT`,"
                                    " `- [ ] NUMBER. (agent) TEXT` or `- [ ] NUMBER. (person) TEXT`"))
        elif item.number in found:
            findings.append(Finding(f"{PATH}:{number}", "prd.line", f"{item.number} comes twice"))
        else:
            found[item.number] = item
    return found


def _order(wanted, blocks):
    """Open requirements whose owner is not that of their block, or of agents behind persons."""
    persons = None
    for item in wanted.values():
        if item.done:
            continue
        block = "\n".join(blocks[item.number][1]) if item.number in blocks else ""
        owner = re.search(r"^- Owner: (agent|person)$", block, re.MULTILINE)
        if owner and item.owner and owner[1] != item.owner:
            yield Finding(f"{PATH}:{item.line}", "prd.order",
                          f"the block of task {item.number} says that its owner is '{owner[1]}'")
        if item.owner == "person":
            persons = persons or item
        elif persons:
            yield Finding(f"{PATH}:{item.line}", "prd.order", f"move {item.number}, an agent's, above"
                          f" {persons.number}, a person's")


def check(tree):
    text = tree.texts.get(PATH, "")
    findings = []
    wanted, blocks = _requirements(text, findings), tasks(text)
    if not wanted:
        findings.append(Finding(PATH, "prd.line", "there is no requirement"))
    findings += _order(wanted, blocks)
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
