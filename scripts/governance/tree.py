"""What the checks read and what they report: the files of a tree, C++ without comments, findings."""
import pathlib
import re
import subprocess
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Finding(NamedTuple):
    """One broken rule: where, which, and what a person can do about it."""

    where: str
    rule: str
    text: str

    def __str__(self):
        return f"{self.where}: {self.rule}: {self.text}"


class Tree:
    """Texts by path, with / between folders. Files that are not UTF-8 have no text."""

    def __init__(self, texts):
        self.texts = dict(texts)
        self.paths = set(self.texts)

    @classmethod
    def read(cls, root=ROOT):
        """The files that git tracks below `root`, and new ones that it does not ignore."""
        tree = cls({})
        for name in _names(root):
            path = pathlib.Path(root, name)
            if not path.is_file():
                continue
            tree.paths.add(name)
            try:
                tree.texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                pass
        return tree

    def exists(self, path):
        """Whether `path` is a file or a folder of the tree, or a pattern that some file matches."""
        path = path.rstrip("/")
        if path in self.paths or path in ("", "."):
            return True
        if "*" in path:
            return any(pathlib.PurePosixPath(name).match(path) for name in self.paths)
        return any(name.startswith(path + "/") for name in self.paths)

    def select(self, pattern):
        """(path, text) of every text file whose path matches the regular expression."""
        matches = re.compile(pattern).fullmatch
        return [(path, self.texts[path]) for path in sorted(self.texts) if matches(path)]


def _names(root):
    # What git tracks or has staged: other files of a working folder are nobody's rules.
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached"], check=False,
                            capture_output=True)
    if listed.returncode == 0:
        return [name for name in listed.stdout.decode().split("\0") if name]
    # An unpacked archive: everything but what a build or an editor puts there.
    aside = {".git", "build", "runs", ".cache", "__pycache__"}
    paths = (path.relative_to(root) for path in pathlib.Path(root).rglob("*"))
    return [path.as_posix() for path in paths if not aside & set(path.parts)]


CPP = r".*\.(h|cc|cu|cuh)"
_CPP_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'", re.DOTALL)


def code_of(text):
    """C++ with comments and literals blanked out; line numbers stay the same."""
    return _CPP_NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def literals_of(text):
    """(offset, literal with its quotes) of every string of C++, and of no comment."""
    for match in _CPP_NOISE.finditer(text):
        if match[0].startswith(('"', 'R"')):
            yield match.start(), match[0]


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1
