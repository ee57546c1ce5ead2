"""A unified diff (`git diff`) as data: which files change, and which lines go and come."""
import re
import subprocess
from typing import NamedTuple

from tree import ROOT


class Line(NamedTuple):
    number: int  # in the new file; for a removed line, of the line that follows it
    text: str


class Hunk(NamedTuple):
    removed: list
    added: list
    before: tuple = ()  # The unchanged lines above, up to three.


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
# git quotes a name with a quote, a backslash or a control character, or, unless it is told not to,
# one beyond ASCII.
_QUOTED_FILE = re.compile(r'diff --git (?:"a/(.*)"|a/(.*)) (?:"b/(.*)"|b/(.*))')
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def _unquoted(name):
    return name.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")


def _names(line):
    """The old and the new name in the first line of a file's changes; None for other lines."""
    plain = _FILE.fullmatch(line)
    if plain:
        return plain[1], plain[2]
    quoted = _QUOTED_FILE.fullmatch(line)
    if not quoted:
        return None
    old, old_plain, new, new_plain = quoted.groups()
    return (old_plain if old is None else _unquoted(old),
            new_plain if new is None else _unquoted(new))


def parse(text):
    """The FileChanges of a diff. A run of changed lines without context between is one Hunk."""
    changes, hunk, number, context = [], None, 0, []
    old_left = new_left = 0  # Lines that the current @@ block still has.
    for line in text.split("\n"):  # Not splitlines(): other characters end no line of a diff.
        if old_left <= 0 and new_left <= 0:
            names, block = _names(line), _HUNK.match(line)
            if names:
                changes.append(FileChange(names[1]))
                changes[-1].old_path = names[0]
            elif changes and line.startswith("new file"):
                changes[-1].created = True
            elif changes and line.startswith("deleted file"):
                changes[-1].deleted = True
            elif changes and block:
                old_left, new_left = int(block[1] or 1), int(block[3] or 1)
                number, hunk, context = int(block[2]), None, []
            continue
        kind, rest = line[:1], line[1:]
        if kind in "+-" and kind:
            if hunk is None:
                hunk = Hunk([], [], tuple(context[-3:]))
                changes[-1].hunks.append(hunk)
            (hunk.added if kind == "+" else hunk.removed).append(Line(number, rest))
        elif kind != "\\":
            context = [*context, Line(number, rest)] if hunk is None else [Line(number, rest)]
            hunk = None
        old_left -= kind in "- " or not kind
        new_left -= kind in "+ " or not kind
        number += kind in "+ " or not kind
    return changes


def _git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)


def since(base):
    """The diff of the files here against where `base` and HEAD parted; None: they have no commit in
    common."""
    parted = _git("merge-base", base, "HEAD").stdout.decode().strip()
    if not parted:
        return None
    return _git("-c", "core.quotePath=false", "diff", "--unified=3", "--no-color",
                "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/",
                parted).stdout.decode(errors="replace")


def messages(base):
    """The messages of the commits since `base`, the first line of each as an item of a list."""
    return _git("log", "--reverse", "--format=- %s", f"{base}..HEAD").stdout.decode().strip()
