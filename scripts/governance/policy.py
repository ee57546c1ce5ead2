"""Judges a change: a diff, the text of its pull request, and the labels that people gave it."""
import re

import calls
import declared_tests
import diff
import looser
import markdown
import prd
import secret_scan
import tiers
from tree import CPP, Finding

RULES = {
    "policy.tier": "The pull request names the tier of its change, and not a lower one than the diff"
                   " has.",
    "policy.body": "The pull request says what was changed and which tests were run, with more than"
                   " `none`; what has failed or was given up is explained by a line `Not green:"
                   " REASON`; from tier 2 on also what the risk is and how it is rolled back.",
    "policy.changelog": "A change of tier 3 in src or apps, of a help page or of a key of JSON has a"
                        " line in CHANGELOG.md.",
    "policy.test": "A change of code comes with a change of tests, or with a line `No new test:"
                   " REASON`.",
    "policy.parity": "A change of a kernel comes with a parity test: a change in tests/kernels or"
                     " tests/ops, or one named under `Parity`; under that heading stand the sizes"
                     " 128, 256 and 512.",
    "policy.bench": "A change of tier 3 in src or apps has a table under `Bench` with before, after"
                    " and spread; outside of kernels and devices, `No bench: REASON` will do.",
    "policy.breakdown": "A change of a kernel shows under `Op breakdown` what share the op has.",
    "policy.tolerance": "A tolerance becomes larger, or an exact comparison becomes one that allows a"
                        " difference, only with the label human-approved-tolerance.",
    "policy.acceptance": "A requirement of PRD.md, a limit or a threshold of a gate changes only with"
                         " the label human-approved-acceptance.",
    "policy.removed_test": "A test is removed, disabled or skipped (by GTEST_SKIP, exit code 77 or"
                           " SKIP_RETURN_CODE, for example) only with the label"
                           " human-approved-acceptance; a new test may skip itself, and a test may get"
                           " another name.",
    "policy.format": "The version of a file format changes together with a test and with"
                     " docs/governance/stability.md or another document that describes the format.",
    "policy.golden": "What small models compute (tests/golden_guard/*.json) changes only with the"
                     " label human-approved-tolerance; figures of another kind are a new file.",
    "policy.history": "bench/history.jsonl only grows: its lines are not changed or removed.",
    "policy.baseline": "Stored figures of bench/baselines change only with the label"
                       " human-approved-acceptance; figures of another kind of CPU are a new file.",
    "policy.human": "A change of tier 4 has the label human-approved-governance.",
    "policy.calls": "The diff adds no banned call and no unsafe code outside of the fence, but for the"
                    " exceptions of scripts/governance/allowed_calls.txt.",
    "policy.secret": "The diff adds no key, token or password.",
}

TOLERANCE, ACCEPTANCE, GOVERNANCE = (
    "human-approved-tolerance", "human-approved-acceptance", "human-approved-governance")
_LIMIT = re.compile(r"\b([A-Z_]*(?:THRESHOLD|LIMIT|MINUTES)[A-Z_]*)\b.*="
                    r"|[\"'](--[\w-]*limit)[\"'].*\bdefault=")
# The exit code of a skipped test, or a name for it.
_SKIPPED = r"(?:77\b|(?:\w+(?:\.|::))?(?:SKIP|kSkip)\w*)"
_SKIP = re.compile(r"\bGTEST_SKIP\s*\(|\bDISABLED_\w|\bunittest\.skip\w*|\bskipTest\s*\("
                   r"|\bDISABLED (?:TRUE|ON)\b|\bSKIP_(?:RETURN_CODE|REGULAR_EXPRESSION)\s+\S+"
                   r"|\b(?:exit|_exit|_Exit|quick_exit|SystemExit)\s*\(\s*" + _SKIPPED + r"\s*\)"
                   r"|\breturn " + _SKIPPED)
_SHELL_SKIP = re.compile(r"\bexit 77\b")  # In C++ and Python it stands in a text.


def sections(body):
    """{heading: text} of a pull request, comments of the template left out."""
    result, title = {}, ""
    for line in re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL).splitlines():
        match = re.fullmatch(r"#+\s+(.*?)\s*", line)
        if match:
            title = match[1]
        result[title] = result.get(title, "") + ("" if match else line + "\n")
    return {name: text.strip() for name, text in result.items()}


def _removed_tests(tree, changes):
    """Tests that are gone, and not only somewhere else: a test may move to another file, and have
    another name."""
    added = set().union(*(declared_tests.in_hunks(change.hunks, "added") for change in changes))
    added |= declared_tests.renamed(tree, changes)
    for change in changes:
        for name, number in declared_tests.in_hunks(change.hunks, "removed").items():
            if name not in added and change.old_path.startswith("tests/"):
                yield Finding(f"{change.old_path}:{number}", "policy.removed_test",
                              f"`{name}` is gone: a person adds {ACCEPTANCE}")


def _skips(path, text):
    """What skips or disables a test on a line, each with its condition and without its reason."""
    found = list(_SKIP.finditer(text))
    if not re.search(r"\.(cc|h|cu|cuh|py)$", path):
        found += _SHELL_SKIP.finditer(text)
    # Other properties of a test are no condition.
    return {(text[:match.start()].split(" PROPERTIES ")[0] + match[0]).strip() for match in found}


def _skipped_tests(changes):
    """Tests that skip themselves from now on. Left out are new tests, tests that moved, and skips that
    were in their file, maybe with another reason."""
    moved = {line.text.strip() for change in changes for line in change.removed}
    old_tests = set().union(*(declared_tests.in_hunks(change.hunks, "removed") for change in changes))
    for change in changes:
        known = set().union(*(_skips(change.path, line.text) for line in change.removed))
        for hunk in change.hunks if change.path.startswith("tests/") else ():
            new = change.created
            for line in hunk.added:
                names = declared_tests.in_hunks([diff.Hunk([], [line])], "added")
                new = new or bool(names) and not old_tests & set(names) and "DISABLED_" not in line.text
                skips = set() if new else _skips(change.path, line.text) - known
                if skips and line.text.strip() not in moved:
                    yield Finding(f"{change.path}:{line.number}", "policy.removed_test",
                                  f"`{line.text.strip()}` disables a test: a person adds {ACCEPTANCE}")


def _human(tree, changes, labels):
    if ACCEPTANCE not in labels:
        yield from _removed_tests(tree, changes)
        yield from _skipped_tests(changes)
    renamed = {change.path: change.old_path for change in changes}
    for change in changes:
        figures = re.fullmatch(r"tests/golden_guard/.*\.json", change.old_path)
        if figures and not change.created and TOLERANCE not in labels:
            yield Finding(change.old_path, "policy.golden",
                          f"the figures change: explain why, and a person adds the label {TOLERANCE}")
        if re.fullmatch(r"bench/baselines/.*", change.old_path) and change.removed:
            if ACCEPTANCE not in labels:
                yield Finding(f"{change.old_path}:{change.removed[0].number}", "policy.baseline",
                              "say which commit changed the speed, and why it stays; a person adds the"
                              f" label {ACCEPTANCE}")
        if change.path == "bench/history.jsonl" and change.removed:
            yield Finding(f"{change.path}:{change.removed[0].number}", "policy.history",
                          "add lines at the end; what was measured stays")
        tests = re.match(r"(tests|bench|scripts)/", change.path)
        for hunk in change.hunks if tests and TOLERANCE not in labels else ():
            for line in looser.loosened(hunk):
                if _LIMIT.search(line.text):
                    continue  # A limit of a gate, which policy.acceptance judges.
                yield Finding(f"{change.path}:{line.number}", "policy.tolerance",
                              f"`{line.text.strip()}` is looser than before: derive it, or a person"
                              f" adds the label {TOLERANCE}")
        if ACCEPTANCE not in labels:
            yield from _acceptance(change, renamed)
    if GOVERNANCE not in labels:
        for path, tier, why in tiers.tier_of(changes)[1]:
            if tier == 4:
                yield Finding(path, "policy.human",
                              f"{why} changes: a person adds the label {GOVERNANCE}")


def _paths(tests):
    return set(re.findall(r"`([^`]+)`", tests))


def _requirements(change, renamed):
    """Requirements of PRD.md that say something else than before, lose a test, or are gone.
    `renamed`: {new path: old path} of the files that only moved."""
    def read(lines):
        return [item for line in lines for item in [prd.requirement(line.number, line.text)] if item]
    now = {item.number: item for item in read(change.added)}
    for old in read(change.removed):
        new = now.get(old.number)
        taken = new and not old.done and not new.done and new.owner != old.owner
        if new is None or new.text != old.text or (old.done and not new.done) or taken:
            yield Finding(f"PRD.md:{old.line}", "policy.acceptance",
                          f"requirement {old.number} changes: a person adds {ACCEPTANCE}")
            continue
        for path in sorted(_paths(old.tests) - {renamed.get(path, path) for path in _paths(new.tests)}
                           - _paths(new.tests)):
            yield Finding(f"PRD.md:{old.line}", "policy.acceptance",
                          f"requirement {old.number} no longer names {path}: a person adds"
                          f" {ACCEPTANCE}")
    added = {line.text for line in change.added}
    for hunk in change.hunks:
        # A block that goes as a whole, because its requirement is done, takes its lines along.
        tasks = re.findall(r"^- Acceptance of task (\d+): ", "\n".join(line.text for line in hunk.removed),
                           re.MULTILINE)
        if tasks and all(number in now and now[number].done for number in tasks):
            continue
        for line in hunk.removed:
            match = re.match(r"- (Acceptance of task \d+|Expected|Owner): ", line.text)
            if match and line.text not in added:
                yield Finding(f"PRD.md:{line.number}", "policy.acceptance",
                              f"`{match[1]}` changes: a person adds {ACCEPTANCE}")


def _acceptance(change, renamed):
    if change.path == "PRD.md":
        yield from _requirements(change, renamed)
    if re.fullmatch(r"(scripts|\.ci|tests|bench)/.*", change.path):
        added = {line.text for line in change.added}
        for line in change.removed:
            match = _LIMIT.search(line.text)
            if match and line.text not in added:
                yield Finding(f"{change.path}:{line.number}", "policy.acceptance",
                              f"the limit {match[1] or match[2]} changes: a person adds {ACCEPTANCE}")


def _added_code(tree, changes):
    exceptions, _ = calls.allowed(tree)
    for change in changes:
        for line in change.added:
            for finding in secret_scan.findings_in(change.path, line.number, line.text):
                yield finding._replace(rule="policy.secret")
        if re.fullmatch("(src|apps)/" + CPP, change.path):
            text = "\n".join(line.text for line in change.added)
            for finding in calls.findings_in(change.path, text):
                known = (change.path, finding.rule) in exceptions
                if finding.rule != "fence.safety" and not known:
                    yield Finding(change.path, "policy.calls", finding.text)


_NOTHING = re.compile(r"(?i)\W*(none|no|no tests|nothing|n/?a|not? (?:run|tested|yet)|to ?do|tbd)?\W*")


# A stage or a test that has not passed, in the words of .ci/run, ctest, GoogleTest and unittest.
_RED = re.compile(r"\bFAILED\b|\bGIVEN UP\b|\b[1-9][\d,]* failed\b"
                  r"|(?<!\b0 )(?<!\bno )\btests? failed\b(?! before\b)")


def _body(tier, parts):
    named = re.search(r"\b([0-4])\b", parts.get("Tier", ""))
    if not named:
        yield Finding("pull request", "policy.tier", f"write the tier under `Tier`; it is {tier}")
    elif int(named[1]) < tier:
        yield Finding("pull request", "policy.tier", f"this is tier {tier}, not {named[1]}")
    for title in ["Change", "Tests run"] + (["Risk", "Rollback"] if tier >= 2 else []):
        if not parts.get(title):
            yield Finding("pull request", "policy.body", f"write something under `{title}`")
    if _NOTHING.fullmatch(parts.get("Tests run") or "x"):
        yield Finding("pull request", "policy.body",
                      "name under `Tests run` what was run, and what it said")
    red = _RED.search(parts.get("Tests run", ""))
    if red and not re.search(r"^Not green: \S", parts["Tests run"], re.MULTILINE):
        yield Finding("pull request", "policy.body", f"`{red[0]}` stands under `Tests run`: make the gate"
                      " green, or say why it is not in a line `Not green: REASON`")


def _has_bench(text):
    """Whether there is a table with before, after and spread, and a row of figures in it."""
    table = markdown.tables(text)
    head = [line.lower() for line in text.splitlines() if line.startswith("|")][:1]
    return bool(head) and all(word in head[0] for word in ("before", "after", "spread")) and any(
        re.search(r"\d", cell) for _, cells in table for cell in cells[1:])


def _evidence(tree, changes, body, parts):
    """What a change of code must bring with it, by what it touches."""
    files = [path for path, tier, _ in tiers.tier_of(changes)[1] if tier > 0]
    code = [path for path in files if re.fullmatch(r"(src|apps)/" + CPP, path)]
    highest = {path: tier for path, tier, _ in tiers.tier_of(changes)[1]}
    heavy = [path for path in code if highest[path] == 3]
    kernels = [path for path in code if path.startswith("src/kernels/")]
    fast = [path for path in code if path.startswith(("src/kernels/", "src/device/"))]
    tests = [change.path for change in changes
             if change.path.startswith("tests/") and not change.deleted and change.added]
    if code and not tests and not re.search(r"^No new test: \S", body, re.MULTILINE):
        yield Finding(code[0], "policy.test", "add a test, or the line `No new test: REASON`")
    promised = heavy + [path for path in files if path.startswith("tests/governance/golden/")]
    if promised and "CHANGELOG.md" not in [change.path for change in changes if change.added]:
        yield Finding(promised[0], "policy.changelog", "add a line to CHANGELOG.md")
    bench = parts.get("Bench", "")
    excused = not fast and re.search(r"^No bench: \S", bench, re.MULTILINE)
    if heavy and not excused and not _has_bench(bench):
        yield Finding(heavy[0], "policy.bench",
                      "add a table with `before`, `after` and `spread` under `Bench`")
    if kernels:
        parity = parts.get("Parity", "")
        named = any(tree.exists(name) for name in re.findall(r"tests/[\w./-]+\w", parity))
        changed = any(path.startswith(("tests/kernels/", "tests/ops/")) for path in tests)
        sizes = all(re.search(rf"\b{size}\b", parity) for size in (128, 256, 512))
        ran = not any(re.search(r"(?i)\bnot (?:been )?(?:run|tested|tried)\b", line) and
                      re.search(r"\b(128|256|512)\b", line) for line in parity.splitlines())
        if not (named or changed) or not sizes or not ran:
            yield Finding(kernels[0], "policy.parity", "change or name a test of tests/kernels or"
                          " tests/ops, and give its runs at 128, 256 and 512 under `Parity`")
        if not parts.get("Op breakdown"):
            yield Finding(kernels[0], "policy.breakdown", "show the profile under `Op breakdown`")
    documents = [change.path for change in changes if re.match(r"docs/.*\.md", change.path)]
    for change in changes:
        lines = change.added + change.removed
        if change.path in code and any(re.search(tiers.VERSION, line.text) for line in lines):
            if not documents or not tests:
                yield Finding(change.path, "policy.format", "the version of a file format changes:"
                              " add a test that reads the old one, and say it in docs")


def check(tree, changes, body, labels=()):
    """The findings of a change; `tree` is the one that the change leads to."""
    parts = sections(body)
    tier, _ = tiers.tier_of(changes)
    yield from _body(tier, parts)
    yield from _evidence(tree, changes, body, parts)
    yield from _human(tree, changes, set(labels))
    yield from _added_code(tree, changes)
