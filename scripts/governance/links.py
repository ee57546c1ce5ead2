"""Links between documents: every relative target is a file of the tree, every anchor a heading; and
every path in backticks is there."""
import posixpath
import re

import markdown
from tree import Finding

RULES = {
    "links.target": "A relative link in a document leads to a file of the tree.",
    "links.anchor": "The part of a link after # is a heading of the document that it leads to.",
    "links.path": "A path in backticks, of a script, a source, a test or a document, is in the tree, as"
                  " written or below src; CHANGELOG.md may name what is gone.",
}
_PATH = re.compile(r"[\w.][\w.+-]*(?:/[\w.*+-]+)+/?")
_FILE = re.compile(r".*\.(?:md|cc|h|cu|cuh|py|txt|jsonl|json|yml)")
_FOLDER = re.compile(r"(?:scripts|tests|docs|bench|examples|containers|\.ci|\.github)/.*")


def _lost_paths(tree, text):
    """(number, path) of the paths in backticks that are nowhere in the tree."""
    tops = {path.split("/")[0] for path in tree.paths if "/" in path}
    tops |= {path.split("/")[1] for path in tree.paths if path.startswith("src/")}
    for number, line in markdown.prose(text):
        for word in " ".join(re.findall(r"`([^`]+)`", line)).split():
            word = word.strip("(),;:\"'").rstrip("/")
            if not _PATH.fullmatch(word) or word.split("/")[0] not in tops:
                continue
            if (_FILE.fullmatch(word) or _FOLDER.fullmatch(word)) and not (
                    tree.exists(word) or tree.exists("src/" + word)):
                yield number, word


def check(tree):
    for path, text in tree.select(r".*\.md"):
        for number, word in _lost_paths(tree, text) if path != "CHANGELOG.md" else ():
            yield Finding(f"{path}:{number}", "links.path", f"{word} is not in the tree")
        for number, target in markdown.links(text):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            file = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
            if not tree.exists(file):
                yield Finding(f"{path}:{number}", "links.target",
                              f"'{target}' leads to {file}, which is not in the tree")
            elif anchor and file.endswith(".md"):
                if anchor not in markdown.anchors(tree.texts[file]):
                    yield Finding(f"{path}:{number}", "links.anchor",
                                  f"{file} has no heading with the anchor #{anchor}")
