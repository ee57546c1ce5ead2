"""PRD.md: each requirement names the tests that hold it, or says why it has none."""
import re

import markdown
from tree import Finding

RULES = {
    "prd.tests": "Every requirement of PRD.md has a row in its table of tests; one that is done or"
                 " partly done names at least one.",
    "prd.exists": "Every test that PRD.md names is in the tree.",
    "prd.known": "Every row of the table of tests belongs to a requirement, and none comes twice.",
}
PATH = "PRD.md"


def check(tree):
    states, traces = {}, {}
    for number, cells in markdown.tables(tree.texts.get(PATH, "")):
        if len(cells) == 3 and cells[0].isdigit():
            states[cells[0]] = (number, cells[2])
        elif len(cells) == 2 and cells[0].isdigit():
            if cells[0] in traces:
                yield Finding(f"{PATH}:{number}", "prd.known", f"{cells[0]} has two rows")
            traces[cells[0]] = (number, cells[1])
    if not states:
        yield Finding(PATH, "prd.tests", "there is no table of requirements")
    for key, (number, state) in states.items():
        if key not in traces:
            yield Finding(f"{PATH}:{number}", "prd.tests",
                          f"requirement {key} has no row in the table of tests")
    for key, (number, tests) in traces.items():
        where = f"{PATH}:{number}"
        paths = re.findall(r"`([^`]+)`", tests)
        if key not in states:
            yield Finding(where, "prd.known", f"there is no requirement {key}")
            continue
        if not paths and not (states[key][1].startswith("open") and re.match(r"none: \w", tests)):
            yield Finding(where, "prd.tests",
                          f"name the tests of {key}; only what is open may say `none: REASON`")
        for path in paths:
            if not tree.exists(path):
                yield Finding(where, "prd.exists", f"{path} is not in the tree")
