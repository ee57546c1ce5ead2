"""Laptop and pull request run the same: workflows, .ci/run, Makefile and documents agree."""
import re

import markdown
from tree import Finding

RULES = {
    "workflows.stages": "The stages of .ci/run are those that the workflows of a pull request run"
                        " and that docs/testing.md lists; each has a function.",
    "workflows.scripts": "A workflow's commands are .ci/run, make and scripts of the tree; beside"
                         " them only apt-get and git config, which prepare a container.",
    "workflows.make": "Every `make TARGET` in .ci/run and in a workflow is a target of the Makefile.",
    "workflows.same": "A stage of .ci/run and the target of the Makefile with its name call the same"
                      " script, or the stage calls the target.",
    "workflows.verify": "`make verify` runs every stage that a pull request runs; the `make` commands"
                        " of a pull request that it does not run are in docs/testing.md, with their"
                        " compilers.",
    "workflows.systems": "The workflows ci, policy, nightly and release are there. Pull requests are"
                         " tested with g++ and clang++-19 on Debian 12 and Ubuntu 24.04, nights run"
                         " `.ci/run --all`; the stages run, and a release is built, in a container of"
                         " Debian 12.",
    "workflows.pinned": "Every action is named by its full commit hash, with its version behind it.",
    "workflows.permissions": "A workflow may read the contents and nothing else; only a job of"
                             " release.yml may write.",
    "workflows.fork": "No workflow runs on pull_request_target: it would give secrets to strangers.",
}
GATE, WORKFLOWS, STAGE_DOCUMENT = ".ci/run", ".github/workflows", "docs/testing.md"
# workflow: {what it must hold: a pattern of one of its lines}.
SYSTEMS = {
    "ci": {"the images debian:12 and ubuntu:24.04": r' +image: \["debian:12", "ubuntu:24\.04"\]',
           "the stages in a container of Debian 12": r" +container: debian:12",
           "the compilers g++ and clang++-19": r' +compiler: \["g\+\+", "clang\+\+-19"\]',
           "a container of the image": r" +container: \$\{\{ matrix\.image \}\}",
           "make test with the compiler": r" +- run: make test .*-DCMAKE_CXX_COMPILER=\$COMPILER.*"},
    "policy": {"the stage policy": r" +- run: \.ci/run policy"},
    "nightly": {"a schedule": r"  schedule:", "a container of Debian 12": r" +container: debian:12",
                "every stage": r" +- run: \.ci/run --all"},
    "release": {"a container of Debian 12": r" +container: debian:12",
                "the archive": r" +- run: scripts/release build/release .*"},
}
_PREPARE = re.compile(r"(apt-get (--\S+ )*(update|install) ?[\w. -]*|git config --global"
                      r" --add safe\.directory \"\$GITHUB_WORKSPACE\")")


def _array(script, name):
    match = re.search(rf"^readonly {name}=\((.*?)\)", script, re.MULTILINE | re.DOTALL)
    return re.findall(r'"(\w+) \d+"', match[1]) if match else []


def runs(text):
    """(number, command line) of every `run:` of a workflow, block or not."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        match = re.match(r"(\s*)(- )?run:\s*(.*)", line)
        if not match:
            continue
        if not re.fullmatch(r"[|>][+-]?", match[3]):
            yield number, match[3].strip("\"'") if match[3][:1] in "\"'" else match[3]
            continue
        indent = len(match[1]) + len(match[2] or "")
        for later in range(number, len(lines)):
            if lines[later].strip() and len(lines[later]) - len(lines[later].lstrip()) <= indent:
                break
            if lines[later].strip():
                yield later + 1, lines[later].strip()


def _verify_findings(tree, more):
    """`make verify` is the gate, and `more`: the stages that only pull requests run besides."""
    recipe = re.search(r"^verify:[^\n]*\n((?:\t[^\n]*\n)+)", tree.texts.get("Makefile", ""),
                       re.MULTILINE)
    run = re.findall(r"\.ci/run\b *([a-z]*)", recipe[1]) if recipe else []
    for name in sorted({"", *more} - set(run)):
        yield Finding("Makefile", "workflows.verify",
                      f"`make verify` does not run `{(GATE + ' ' + name).strip()}`")


def _systems_findings(tree):
    for name, wanted in SYSTEMS.items():
        path = f"{WORKFLOWS}/{name}.yml"
        lines = [line.split(" #")[0].rstrip() for line in tree.texts.get(path, "").splitlines()]
        if not lines:
            yield Finding(path, "workflows.systems", "this workflow is missing")
            continue
        for what, pattern in wanted.items():
            if not any(re.fullmatch(pattern, line) for line in lines):
                yield Finding(path, "workflows.systems", f"it lacks {what}")
    # What a laptop must run by itself, because `make verify` does not.
    compilers = re.search(r"^ +compiler: \[(.*)\]", tree.texts.get(f"{WORKFLOWS}/ci.yml", ""), re.MULTILINE)
    for name in re.findall(r'"([^"]+)"', compilers[1]) if compilers else ():
        if name != "g++" and f"-DCMAKE_CXX_COMPILER={name}" not in tree.texts.get(STAGE_DOCUMENT, ""):
            yield Finding(STAGE_DOCUMENT, "workflows.verify", f"say how to test with {name}, which a pull"
                          " request does and `make verify` does not")


def _stage_findings(tree):
    script = tree.texts.get(GATE, "")
    stages, nightly = _array(script, "STAGES"), _array(script, "CAMPAIGNS")
    if not stages:
        yield Finding(GATE, "workflows.stages", "there is no list STAGES")
    functions = set(re.findall(r"^stage_(\w+)\(\)", script, re.MULTILINE))
    for name in sorted(functions ^ set(stages + nightly)):
        yield Finding(GATE, "workflows.stages", f"'{name}' is a function or in a list, and not both")
    workflow = "\n".join(text for _, text in tree.select(r"\.github/workflows/.*")
                         if re.search(r"^  pull_request:", text, re.MULTILINE))
    called = set(re.findall(r"^\s*-? ?stage: (\w+)", workflow, re.MULTILINE))
    for match in re.finditer(r"^\s*stage: \[([^\]]*)\]", workflow, re.MULTILINE | re.DOTALL):
        called.update(re.findall(r"\w+", match[1]))
    called.update(re.findall(r"\.ci/run ([a-z]+)", workflow))
    for name in sorted((called - set(nightly)) ^ set(stages)):
        side = "runs in no pull request" if name in stages else f"is no stage of {GATE}"
        yield Finding(WORKFLOWS, "workflows.stages", f"'{name}' {side}")
    yield from _verify_findings(tree, called & set(nightly))
    rows = {name for _, cells in markdown.tables(tree.texts.get(STAGE_DOCUMENT, ""))
            if len(cells) == 3 for name in re.findall(r"`(\w+)`", cells[0])}
    for name in sorted(set(stages + nightly) - rows):
        yield Finding(STAGE_DOCUMENT, "workflows.stages", f"the table of the gate lacks '{name}'")


def _make_findings(tree, path, number, line):
    targets = set(re.findall(r"^([a-z]+):", tree.texts.get("Makefile", ""), re.MULTILINE))
    for match in re.finditer(r"(?:^|[;&|{]\s*)make ([a-z]+)", line):
        if match[1] not in targets:
            yield Finding(f"{path}:{number}", "workflows.make", f"the Makefile has no '{match[1]}'")


def _same_findings(tree):
    gate, makefile = tree.texts.get(GATE, ""), tree.texts.get("Makefile", "")
    recipes = dict(re.findall(r"^([a-z]+):[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE))
    stages = re.findall(r"^stage_(\w+)\(\) \{(.*?)(?:^|; *)\}$", gate, re.MULTILINE | re.DOTALL)
    for name, body in stages:
        if name in recipes and not re.search(rf"\bmake {name}\b", body):
            script = r"scripts/(?!bootstrap)\w+"
            theirs = set(re.findall(script, recipes[name]))
            if not theirs & set(re.findall(script, body)):
                yield Finding(GATE, "workflows.same", f"stage {name} calls none of what `make {name}`"
                              f" calls: {', '.join(sorted(theirs)) or 'no script'}")


def _workflow_findings(tree, path, text):
    if not re.search(r"^permissions:(\s*\{\}\s*$|\n  contents: read\n(?!  \S))", text, re.MULTILINE):
        yield Finding(path, "workflows.permissions",
                      "write `permissions:` with `contents: read` alone at the top")
    for number, line in enumerate(text.splitlines(), 1):
        where, line = f"{path}:{number}", line.rstrip()
        uses = re.match(r"\s*(?:- )?uses:\s*(.*)", line)
        if uses and not re.fullmatch(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}  ?# v\d+(\.\d+)*", uses[1]):
            yield Finding(where, "workflows.pinned", f"`{uses[1]}`: write NAME@FULL-HASH # vX.Y.Z")
        if re.match(r"\s+[\w-]+: write\b|\s*permissions:\s*write-all", line):
            if not path.endswith("/release.yml"):
                yield Finding(where, "workflows.permissions", "only release.yml may write")
        if re.search(r"\bpull_request_target\b", line):
            yield Finding(where, "workflows.fork", "use pull_request")
    for number, line in runs(text):
        script = re.match(r"(?:\./)?(\.ci/run|scripts/[\w./-]+|make [a-z]+)(?:\s+[^;&|]*)?$", line)
        if script:
            file = "Makefile" if script[1].startswith("make ") else script[1]
            if not tree.exists(file):
                yield Finding(f"{path}:{number}", "workflows.scripts", f"{file} is not in the tree")
        elif not all(_PREPARE.fullmatch(part.strip()) for part in line.split("&&")):
            yield Finding(f"{path}:{number}", "workflows.scripts",
                          f"`{line}`: put it into a stage of {GATE} or into a script")
        yield from _make_findings(tree, path, number, line)


def check(tree):
    yield from _stage_findings(tree)
    yield from _systems_findings(tree)
    yield from _same_findings(tree)
    for number, line in enumerate(tree.texts.get(GATE, "").splitlines(), 1):
        if not line.lstrip().startswith("#"):
            yield from _make_findings(tree, GATE, number, line)
    for path, text in tree.select(r"\.github/workflows/.*\.ya?ml"):
        yield from _workflow_findings(tree, path, text)
