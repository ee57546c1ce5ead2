"""AGENTS.md is the one page of rules for agents; what their programs read is generated from it.

CLAUDE.md and .cursorrules repeat the page, .ralphy/config.yaml holds its rules, commands and limits.
"""
import json
import re
import subprocess

import small_yaml
from tree import ROOT, Finding

RULES = {
    "agents.generated": "CLAUDE.md, .cursorrules and .ralphy/config.yaml are what"
                        " `scripts/governance/agents --update` makes of AGENTS.md.",
    "agents.page": "AGENTS.md has rules, the commands build, test and lint, and a list of what agents"
                   " never touch; every path of that list is in the tree.",
    "agents.config": ".ralphy/config.yaml can be read, and holds `project`, `commands`, `rules` and"
                     " `boundaries.never_touch` and no other key.",
    "agents.commands": "Every command of .ralphy/config.yaml names what is there: a target of make,"
                       " a stage of .ci/run, or a program of the tree.",
}
PAGE, CONFIG = "AGENTS.md", ".ralphy/config.yaml"
COMMANDS = ("build", "test", "lint")
_NOTE = "generated from AGENTS.md by scripts/governance/agents --update; do not change it here"


def section(text, title):
    """The items of the list below a heading of the page."""
    match = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^- (.*)$", match[1], re.MULTILINE) if match else []


def commands_of(text):
    found = {}
    for item in section(text, "Commands"):
        match = re.fullmatch(r"(\w+): `([^`]+)`", item)
        if match:
            found[match[1]] = match[2]
    return found


def _config(text):
    quoted = json.dumps  # A string of JSON is one of YAML.
    lines = [f"# {_NOTE}", "project:", '  name: "Volta"', '  language: "C++23"',
             '  framework: "CMake and Ninja"',
             '  description: "A machine-learning runtime: a library without exceptions and a command'
             ' line"', "commands:"]
    lines += [f"  {name}: {quoted(command)}" for name, command in commands_of(text).items()]
    lines += ["rules:"] + [f"  - {quoted(rule)}" for rule in section(text, "Rules")]
    lines += ["boundaries:", "  never_touch:"]
    lines += [f"    - {quoted(path)}" for path in section(text, "Never touch")]
    return "\n".join(lines) + "\n"


def generated(page):
    """{path: text} of the files that follow from AGENTS.md."""
    return {"CLAUDE.md": f"<!-- {_NOTE} -->\n{page}", ".cursorrules": f"<!-- {_NOTE} -->\n{page}",
            CONFIG: _config(page)}


def _command_problem(tree, command):
    """What is wrong with one command of the config, or None."""
    words = command.split()
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z]+):", tree.texts.get("Makefile", ""), re.MULTILINE))
        unknown = [word for word in words[1:] if word not in targets]
        return f"the Makefile has no target '{unknown[0]}'" if unknown else None
    if words[0] == ".ci/run":
        script = tree.texts.get(".ci/run", "")
        unknown = [word for word in words[1:] if f"stage_{word}()" not in script]
        return f".ci/run has no stage '{unknown[0]}'" if unknown else None
    return None if tree.exists(words[0]) else f"{words[0]} is not in the tree"


def dry_run(command, root=ROOT):
    """What keeps a command from starting in this tree, or None. Nothing is built."""
    words = command.split()
    trial = ["make", "--dry-run", *words[1:]] if words[0] == "make" else ["bash", "-n", words[0]]
    done = subprocess.run(trial, cwd=root, capture_output=True, text=True, check=False)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else None


def _page_findings(tree, page):
    if not section(page, "Rules"):
        yield Finding(PAGE, "agents.page", "the list below 'Rules' is missing")
    for name in COMMANDS:
        if name not in commands_of(page):
            yield Finding(PAGE, "agents.page", f"write '- {name}: `COMMAND`' below 'Commands'")
    paths = section(page, "Never touch")
    if not paths:
        yield Finding(PAGE, "agents.page", "the list below 'Never touch' is missing")
    for path in paths:
        if not tree.exists(path.removesuffix("/**")):
            yield Finding(PAGE, "agents.page", f"'{path}' is not in the tree")


def _config_findings(tree, text):
    try:
        config = small_yaml.parse(text)
    except small_yaml.Problem as problem:
        yield Finding(f"{CONFIG}:{problem.line}", "agents.config", problem.text)
        return
    wanted = {"project": dict, "commands": dict, "rules": list, "boundaries": dict}
    for name, kind in wanted.items():
        if not isinstance(config.get(name), kind) or not config[name]:
            yield Finding(CONFIG, "agents.config", f"'{name}' is missing")
    boundaries = config.get("boundaries")
    if isinstance(boundaries, dict) and not isinstance(boundaries.get("never_touch"), list):
        yield Finding(CONFIG, "agents.config", "'boundaries.never_touch' is missing")
    for name in config:
        if name not in wanted:
            yield Finding(CONFIG, "agents.config", f"nobody reads '{name}'; delete it")
    commands = config.get("commands")
    for name, command in (commands.items() if isinstance(commands, dict) else ()):
        problem = (_command_problem(tree, command) if isinstance(command, str) and command.strip()
                   else "the command is missing")
        if problem:
            yield Finding(CONFIG, "agents.commands", f"{name}: {problem}")


def check(tree):
    page = tree.texts.get(PAGE)
    if page is None:
        yield Finding(PAGE, "agents.page", "this page is missing")
        return
    yield from _page_findings(tree, page)
    for path, text in generated(page).items():
        if tree.texts.get(path) != text:
            yield Finding(path, "agents.generated", "run scripts/governance/agents --update")
    yield from _config_findings(tree, tree.texts.get(CONFIG, ""))
