"""Commands in documents: the shell can read each, `volta` has each option that is used, make each
target, and CMake each preset.

The options are those that the program's own help pages list; without a program they are not checked.
"""
import json
import posixpath
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
    "commands.target": "Every `make TARGET` in a document is a target of the Makefile, also with"
                       " -C DIR, and every target of `cmake --build build/PRESET --target` is one of a"
                       " CMakeLists.txt.",
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


def _values(words, short, name):
    """The values that an option has in a command, in each form: -C X, -CX, --name X, --name=X."""
    for at, word in enumerate(words):
        if word in (short, name):
            yield from words[at + 1:at + 2]
        elif word.startswith(name + "=") or (short and re.match(short + r"[^-=]", word)):
            yield word.removeprefix(name + "=") if word.startswith("--") else word[len(short):]


def _make_problem(words, tree, builds):
    """What is wrong with the targets of a make command, as _build_problem() says it."""
    if list(_values(words, "-f", "--file")):
        return None
    folder = posixpath.normpath(posixpath.join(".", *_values(words, "-C", "--directory")))
    if folder.startswith("build/"):
        return _folder_problem(folder, builds) or _target_problem(_make_targets(words), builds)
    makefile = posixpath.normpath(posixpath.join(folder, "Makefile"))
    if folder != "." and makefile not in tree.texts:  # Maybe the folder of another project.
        return ("commands.target", f"{folder} has no Makefile") if tree.exists(folder) else None
    targets = re.findall(r"^([\w-]+)\s*:(?!=)", tree.texts.get(makefile, ""), re.MULTILINE)
    for word in _make_targets(words):
        if word not in targets:
            where = "the Makefile" if folder == "." else makefile
            return "commands.target", f"{where} has no '{word}'"
    return None


def _make_targets(words):
    for before, word in zip(words, words[1:]):
        if before not in ("-C", "--directory") and re.fullmatch(r"[a-z][\w-]*", word):
            yield word


def _folder_problem(folder, builds):
    """The problem of a build folder that no preset makes; folders outside of build/ are nobody's."""
    match = re.match(r"build/([A-Za-z][\w-]*)", posixpath.normpath(folder))
    if match and match[1] not in builds.presets:
        return "commands.preset", f"CMakePresets.json has no '{match[1]}'"
    return None


def _target_problem(words, builds):
    for word in words:
        if re.match(r"[a-z]", word) and not builds.has_target(word):
            return "commands.target", f"no CMakeLists.txt has the target '{word}'"
    return None


def _cmake_problem(words, builds):
    """What is wrong with a command of cmake or ctest, as _build_problem() says it."""
    for name in _values(words, "", "--preset"):
        if re.match(r"[a-z]", name) and name not in builds.presets:
            return "commands.preset", f"CMakePresets.json has no '{name}'"
    if any(posixpath.normpath(source) != "." for source in _values(words, "-S", "--source")):
        return None  # The build of another project.
    folders = [*_values(words, "-B", "--build"), *_values(words, "", "--test-dir"),
               *(word for word in words[1:] if re.match(r"(?:\./)?build/", word))]
    for folder in folders:
        problem = _folder_problem(folder, builds)
        if problem:
            return problem
    if any(posixpath.normpath(folder).startswith("build/") for folder in folders):
        return _target_problem(_cmake_targets(words), builds)
    return None


def _cmake_targets(words):
    """The targets of `cmake --build`; several may follow one --target."""
    inside = False
    for word in words:
        if word.startswith("-"):
            inside = word in ("--target", "-t")
            if word.startswith("--target="):
                yield word.removeprefix("--target=")
        elif inside:
            yield word


def _build_problem(words, tree, builds):
    """(rule, problem) of a command of make, cmake or ctest, or None."""
    if words[0] == "make":
        return _make_problem(words, tree, builds)
    return _cmake_problem(words, builds) if words[0] in ("cmake", "ctest") else None


class _Builds:
    """What can be built with CMake: the presets, and the targets."""

    def __init__(self, tree):
        self.presets = _presets(tree)
        self._targets, self._patterns = {"all", "clean", "help", "install", "test"}, []
        for path, text in tree.select(r"(?:.*/)?CMakeLists\.txt"):
            for name in re.findall(r"\badd_(?:executable|library|custom_target)\s*\(\s*([^\s)]+)", text):
                if "$" in name:
                    self._patterns += self._pattern(tree, posixpath.dirname(path), text, name)
                else:
                    self._targets.add(name)

    @staticmethod
    def _pattern(tree, folder, text, name):
        """The target `name_${x}` of a loop: its pattern, and what x can be: a word of the file, or the
        name of a file or folder beside it."""
        before, after = re.fullmatch(r"(.*?)\$\{\w+\}(.*)", name).groups()
        if not before + after or "$" in after:
            return
        beside = [path[len(folder):].lstrip("/").split("/") for path in tree.paths
                  if path.startswith(folder + "/") or not folder]
        words = set(re.findall(r"[\w-]+", text))
        words.update(posixpath.splitext(parts[0])[0] for parts in beside)
        yield re.compile(re.escape(before) + r"([\w-]+)" + re.escape(after)), words

    def has_target(self, name):
        if name in self._targets:
            return True
        matches = [(pattern.fullmatch(name), words) for pattern, words in self._patterns]
        return any(match and match[1] in words for match, words in matches)


def _presets(tree):
    try:
        listed = json.loads(tree.texts.get("CMakePresets.json", "{}")).get("configurePresets", [])
    except ValueError:
        return set()
    return {preset["name"] for preset in listed if not preset.get("hidden")}


def check(tree, pages=None):
    """`pages`: the help page of each command, as golden.help_of() reads them; None: no options."""
    builds = _Builds(tree)
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
                problem = _build_problem(words, tree, builds)
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
