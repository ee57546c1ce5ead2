"""Options that the messages of the program name: each is one that some `volta` command has.

An option that was renamed lives on in messages and sends its reader the wrong way. The options are
those of the recorded help pages (tests/governance/golden/help), which the test governance.golden
compares with the program.
"""
import re

import commands
import golden
from tree import CPP, Finding, line_of, literals_of

RULES = {
    "messages.option": "Every --option in a text of src and apps/volta is one that a help page of volta"
                       " lists, or an exception in scripts/governance/messages.py with its reason.",
    "messages.allowed": "Every exception in scripts/governance/messages.py is still needed.",
}

# The left words of this table belong to other programs: it translates them into options of Volta.
SUGGESTIONS = "apps/volta/suggestion.cc"
_FOREIGN = re.compile(r'ForeignWord\{\s*"[^"]*"')
# (file, option): why it may be there although no help page lists it.
ALLOWED = {
    ("apps/volta/options.cc", "--hf-repo"): "An option of llama.cpp that users try; the answer says what"
                                            " Volta has instead.",
    ("apps/volta/options.cc", "--hf-path"): "An option of mlx-lm that users try; the answer says what"
                                            " Volta has instead.",
    ("src/formats/gguf/gguf_file.cc", "--merge"): "An option of llama-gguf-split.",
    ("src/formats/hub_cache.cc", "--revision"): "An option of hf download.",
}
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def known_options(tree):
    """The options of all commands, by the recorded help pages."""
    pages = tree.select(re.escape(f"{golden.FOLDER}/help/") + r".*\.txt")
    return commands.ALIASES.union(*(commands.options_of(page) for _, page in pages))


def options_in(path, text):
    """(option, line) of every option that the literals of a file name."""
    if path == SUGGESTIONS:
        text = _FOREIGN.sub(lambda match: " " * len(match[0]), text)
    for start, literal in literals_of(text):
        # The n of "\n--force" is no letter before the option.
        literal = re.sub(r"\\.", "  ", literal, flags=re.DOTALL)
        for match in _OPTION.finditer(literal):
            # The rest of "--no-{}" is known at run time only.
            if not literal.startswith("{", match.end()):
                yield match[0], line_of(text, start + match.start())


def check(tree):
    known, used = known_options(tree), set()
    for path, text in tree.select(r"(src|apps/volta)/" + CPP):
        for option, line in options_in(path, text):
            if option in known:
                continue
            if (path, option) in ALLOWED:
                used.add((path, option))
            else:
                yield Finding(f"{path}:{line}", "messages.option",
                              f"no help page of volta lists {option}")
    for path, option in sorted(set(ALLOWED) - used):
        if path in tree.texts:
            yield Finding(path, "messages.allowed",
                          f"there is no {option} that needs an exception; delete it")
