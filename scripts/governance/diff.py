"""A unified diff (`git diff`) as data: which files change, and which lines go and come."""
import re
from typing import NamedTuple


class Line(NamedTuple):
    number: int  # in the new file; for a removed line, of the line that follows it
    text: str


class Hunk(NamedTuple):
    removed: list
    added: list


class FileChange:
    def __init__(self, path):
        self.path = path
        self.old_path = path
        self.created = self.deleted = False
        self.hunks = []

    @property
    def added(self):
        return [line for hunk in self.hunks for line in hunk.added]

    @property
    def removed(self):
        return [line for hunk in self.hunks for line in hunk.removed]


_FILE = re.compile(r"diff --git a/(.*) b/(.*)")
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def parse(text):
    """The FileChanges of a diff. A run of changed lines without context between is one Hunk."""
    changes, hunk, number = [], None, 0
    old_left = new_left = 0  # Lines that the current @@ block still has.
    for line in text.splitlines():
        if old_left <= 0 and new_left <= 0:
            file_line, block = _FILE.fullmatch(line), _HUNK.match(line)
            if file_line:
                changes.append(FileChange(file_line[2]))
                changes[-1].old_path = file_line[1]
            elif changes and line.startswith("new file"):
                changes[-1].created = True
            elif changes and line.startswith("deleted file"):
                changes[-1].deleted = True
            elif changes and block:
                old_left, new_left = int(block[1] or 1), int(block[3] or 1)
                number, hunk = int(block[2]), None
            continue
        kind, rest = line[:1], line[1:]
        if kind in "+-" and kind:
            if hunk is None:
                hunk = Hunk([], [])
                changes[-1].hunks.append(hunk)
            (hunk.added if kind == "+" else hunk.removed).append(Line(number, rest))
        elif kind != "\\":
            hunk = None
        old_left -= kind in "- " or not kind
        new_left -= kind in "+ " or not kind
        number += kind in "+ " or not kind
    return changes
