"""Commands in documents: the shell can read each, `volta` has each option that is used, make each
target, and CMake each preset.

The options are those that the program's own help pages list; without a program they are not checked.
"""
import json
import re
import shlex
import subprocess

import markdown
from tree import Finding

RULES = {
    "commands.syntax": "Every block of shell commands in a document is one that bash can parse.",
    "commands.option": "Every volta command in a document has a subcommand and options that the"
                       " program's help lists (with --program; ctest gives it).",
    "commands.file": "Every script that a command in a document runs is in the tree.",
    "commands.target": "Every `make TARGET` in a document is a target of the Makefile.",
    "commands.preset": "Every preset of `cmake --preset` in a document, and every folder build/PRESET"
                       " that a command of CMake names, is one of CMakePresets.json.",
}

_OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
# Ready-made names of whole commands: `volta --demo`.
ALIASES = {"--bench-infer", "--tune-matmul", "--demo"}


def options_of(page):
    """The options that a help page lists: of its lines, the names before the explanation."""
    found = {"--help", "-h"}
    for line in page.splitlines():
        if line.startswith("  -"):
            found.update(_OPTION.findall(re.split(r"\s{2,}", line.strip())[0]))
        elif line.startswith("Also:"):
            found.update(_OPTION.findall(line))
    return found


def _commands(line):
    """The words of each simple command of a line, without comments and assignments."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return
    command = []
    for word in words + [";"]:
        if re.fullmatch(r"[|&;()]+", word):
            if command:
                yield command
            command = []
        elif command or not re.fullmatch(r"\w+=.*", word):
            command.append(word)


def problem_of(words, pages):
    """What is wrong with one volta command, or None."""
    name, rest = "", list(words[1:])
    while rest and (name + " " + rest[0]).strip() in pages:
        name = (name + " " + rest.pop(0)).strip()
    if not name and rest and not rest[0].startswith("-") and re.fullmatch(r"[a-z]+", rest[0]):
        return None if rest[0] == "help" else f"volta has no command '{rest[0]}'"
    known = options_of(pages[name]) | options_of(pages.get("", "")) | ALIASES
    for word in rest:
        match = re.fullmatch(r"(--?[A-Za-z][\w-]*)(=.*)?", word)
        if match and match[1] not in known:
            return f"`{' '.join(['volta', *name.split()])}` has no option {match[1]}"
    return None


def _inline(text):
    """(number, command) of the commands in backticks outside of blocks."""
    for number, line in markdown.prose(text):
        for code in re.findall(r"`((?:volta|make|cmake|ctest) [^`]*)`", line):
            yield number, code.replace("\\|", "|").replace("...", "")


def _build_problem(words, targets, presets):
    """(rule, problem) of a command of make, cmake or ctest, or None."""
    if words[0] == "make":
        for word in words[1:]:
            if re.fullmatch(r"[a-z][\w-]*", word) and word not in targets:
                return "commands.target", f"the Makefile has no '{word}'"
    if words[0] in ("cmake", "ctest"):
        line = " ".join(words)
        for name in re.findall(r"--preset[ =]([a-z][\w-]*)|(?:^|\s)build/([a-z][\w-]*)", line):
            if (name[0] or name[1]) not in presets:
                return "commands.preset", f"CMakePresets.json has no '{name[0] or name[1]}'"
    return None


def _presets(tree):
    try:
        listed = json.loads(tree.texts.get("CMakePresets.json", "{}")).get("configurePresets", [])
    except ValueError:
        return set()
    return {preset["name"] for preset in listed if not preset.get("hidden")}


def check(tree, pages=None):
    """`pages`: the help page of each command, as golden.help_of() reads them; None: no options."""
    targets = set(re.findall(r"^([a-z]+):", tree.texts.get("Makefile", ""), re.MULTILINE))
    presets = _presets(tree)
    for path, text in tree.select(r"(README|CONTRIBUTING|SECURITY|AGENTS|PRD)\.md|docs/.*\.md"):
        lines = []
        for start, language, block in markdown.blocks(text):
            if language not in ("sh", "bash"):
                continue
            parsed = subprocess.run(["bash", "-n"], input="\n".join(block), text=True,
                                    capture_output=True, check=False)
            if parsed.returncode:
                reason = parsed.stderr.strip().splitlines()[0].replace("bash: ", "")
                yield Finding(f"{path}:{start}", "commands.syntax", reason)
                continue
            lines += enumerate(block, start)
        for number, line in lines:
            for words in _commands(line):
                file = re.fullmatch(r"(?:\./)?((?:scripts|tests|bench|\.ci)/[^$*]+)", words[0])
                if file and not tree.exists(file[1]):
                    yield Finding(f"{path}:{number}", "commands.file",
                                  f"{words[0]} is not in the tree")
        for number, line in lines + list(_inline(text)):
            for words in _commands(line):
                problem = _build_problem(words, targets, presets)
                if problem:
                    yield Finding(f"{path}:{number}", *problem)
        if not pages:
            continue
        for number, line in lines + list(_inline(text)):
            for words in _commands(line):
                if words[0] == "volta" or words[0].endswith("/volta"):
                    problem = problem_of(words, pages)
                    if problem:
                        yield Finding(f"{path}:{number}", "commands.option", problem)
