"""Links between documents: every relative target is a file of the tree, every anchor a heading."""
import posixpath
import re

import markdown
from tree import Finding

RULES = {
    "links.target": "A relative link in a document leads to a file of the tree.",
    "links.anchor": "The part of a link after # is a heading of the document that it leads to.",
}


def check(tree):
    for path, text in tree.select(r".*\.md"):
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
