"""Which tests the lines of a change declare, and which of them only got another name."""
import re
from typing import NamedTuple

import looser

_TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP)\s*\(\s*(\w+)\s*,\s*(\w+)"
                   r"|^\s*def (test_\w+)|\badd_test\s*\(\s*NAME ([^\s)]+)")
_LISTED = re.compile(r"\bIN ITEMS ([^)]*)")  # Names of which each becomes a test.


class Declared(NamedTuple):
    """A test as one side of a hunk declares it."""
    name: str
    line: int
    body: str   # The kind, "|", and the rest without the name and without brackets at the end.
    hunk: int   # Which hunk, if the body goes on below it; else -1.
    path: str


def in_hunks(hunks, side):
    """{test: line number} of the tests that begin on one side ("removed", "added") of some hunks."""
    found = {}
    for hunk in hunks:
        for line, text in looser.statements(getattr(hunk, side), hunk.before):
            for match in _TEST.finditer(text):
                found[_name(match)] = line.number
            listed = _LISTED.search(text)
            for name in listed[1].split() if listed else ():
                found[name] = line.number
    return found


def _name(match):
    return ".".join(filter(None, match.groups()))


def _declared(change, side):
    """The tests that one side of a change declares. The last one of a hunk may go on below it."""
    path = change.old_path if side == "removed" else change.path
    for hunk in change.hunks:
        tests = []
        for line, text in looser.statements(getattr(hunk, side), hunk.before):
            begins = list(_TEST.finditer(text))
            for match, following in zip(begins, [*begins[1:], None]):
                kind = re.match(r"\s*\w+", match[0])[0].strip()
                tests.append([_name(match), line.number,
                              [kind + "|", text[match.end():following.start() if following else None]]])
            if tests and not begins:
                tests[-1][2].append(text)
        for test in tests:
            body = re.sub(r"[\s})]+$", "", "".join("".join(test[2]).split()))
            yield Declared(test[0], test[1], body, id(hunk) if test is tests[-1] else -1, path)


def _has_a_body(test):
    """Whether the hunk shows what the test does, and not only how it begins."""
    return re.search(r"\w", re.sub(r"^\w+\|(?:\(.*?\)(?:->\w+)?:)?", "", test.body)) is not None


def _is_renamed(old, new, changes, tree):
    if old.body != new.body or not (old.hunk == new.hunk != -1 or _has_a_body(old)):
        return False
    if re.match("TEST_F|TEST_P|TYPED_TEST", old.body):
        before, after = old.name.split(".")[0], new.name.split(".")[0]
        if before != after and not _fixture_is_renamed(before, after, changes):
            return False
    text = tree.texts.get(new.path, "")
    # A second method of the same name would replace the first one.
    if new.name.startswith("test_") and len(re.findall(rf"\bdef {new.name}\b", text)) > 1:
        return False
    return old.hunk != new.hunk or not _is_cut_below(new, text, changes)


def _fixture_is_renamed(before, after, changes):
    def has(lines, name):
        return any(re.search(rf"\b(?:class|struct|using) {name}\b", line.text) for line in lines)
    return (any(has(change.removed, before) for change in changes)
            and any(has(change.added, after) for change in changes))


def _is_cut_below(test, text, changes):
    """Whether the body of a test loses lines further down, in another hunk of its file."""
    lines = text.splitlines()
    end = next((number for number, line in enumerate(lines[test.line:], test.line + 1)
                if _TEST.search(line)), len(lines) + 1)
    return any(test.line < line.number < end for change in changes if change.path == test.path
               for hunk in change.hunks if id(hunk) != test.hunk for line in hunk.removed)


def _follows_a_file(old, new, changes):
    """Whether two names of tests differ as the old and the new name of a file do."""
    before, after = old.split(".")[-1], new.split(".")[-1]
    return any(change.old_path != change.path and
               re.sub(rf"(?<![^/_]){re.escape(before)}(?![^._/])", lambda _: after,
                      change.old_path) == change.path
               for change in changes)


def renamed(tree, changes):
    """The old names of tests that are still there, with the same body and another name."""
    removed = set().union(*(in_hunks(change.hunks, "removed") for change in changes))
    added = set().union(*(in_hunks(change.hunks, "added") for change in changes))
    gone, new_names = removed - added, added - removed
    come = [test for change in changes for test in _declared(change, "added")
            if test.name in new_names and test.path.startswith("tests/")]
    found = set()
    for old in [test for change in changes for test in _declared(change, "removed")]:
        new = next((new for new in come if old.name in gone - found
                    and _is_renamed(old, new, changes, tree)), None)
        if new:
            found.add(old.name)
            come.remove(new)  # Two tests do not become one.
    left = new_names - {test.name for change in changes for test in _declared(change, "added")}
    return found | {old for old in gone for new in left if _follows_a_file(old, new, changes)}
