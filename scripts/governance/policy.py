"""Judges a change: a diff, the text of its pull request, and the labels that people gave it."""
import re

import calls
import markdown
import prd
import secret_scan
import tiers
from tree import CPP, Finding

RULES = {
    "policy.tier": "The pull request names the tier of its change, and not a lower one than the diff"
                   " has.",
    "policy.body": "The pull request says what was changed and which tests were run; from tier 2 on"
                   " also what the risk is and how it is rolled back.",
    "policy.changelog": "A change of tier 3 in src or apps has a line in CHANGELOG.md.",
    "policy.test": "A change of code comes with a change of tests, or with a line `No new test:"
                   " REASON`.",
    "policy.parity": "A change of a kernel comes with a parity test: a change in tests/kernels or"
                     " tests/ops, or one named under `Parity`; under that heading stand the sizes"
                     " 128, 256 and 512.",
    "policy.bench": "A change of tier 3 in src or apps has a table under `Bench` with before, after"
                    " and spread; outside of kernels and devices, `No bench: REASON` will do.",
    "policy.breakdown": "A change of a kernel shows under `Op breakdown` what share the op has.",
    "policy.tolerance": "A tolerance becomes larger only with the label human-approved-tolerance.",
    "policy.acceptance": "A requirement of PRD.md, a limit or a threshold of a gate changes only with"
                         " the label human-approved-acceptance.",
    "policy.removed_test": "A test is removed or disabled only with the label"
                           " human-approved-acceptance.",
    "policy.format": "The version of a file format changes together with a test and with"
                     " docs/governance/stability.md or another document that describes the format.",
    "policy.golden": "What small models compute (tests/golden_guard/expected.json) changes only with"
                     " the label human-approved-tolerance.",
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
_TOLERANT = re.compile(r"(?i)toleranc|\b[ra]tol\b|epsilon|_NEAR\b|\bslack\b|\bulps?\b"
                       r"|max_?(error|ulp)|(EXPECT|ASSERT)_L[TE]\(.*(err|diff|dist)|allclose")
_NUMBER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F.]+(?:[pP][+-]?\d+)?|\d+\.?\d*(?:[eE][+-]?\d+)?"
                     r"|\.\d+(?:[eE][+-]?\d+)?)")
_LIMIT = re.compile(r"\b([A-Z_]*(?:THRESHOLD|LIMIT|MINUTES)[A-Z_]*)\b.*=")
_TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP)\s*\(\s*(\w+)\s*,\s*(\w+)"
                   r"|^\s*def (test_\w+)")
_VERSION = re.compile(r"\bk(Format)?Version\b\s*=|\bkFormat\b\s*=|\"format_version\"")


def sections(body):
    """{heading: text} of a pull request, comments of the template left out."""
    result, title = {}, ""
    for line in re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL).splitlines():
        match = re.fullmatch(r"#+\s+(.*?)\s*", line)
        if match:
            title = match[1]
        result[title] = result.get(title, "") + ("" if match else line + "\n")
    return {name: text.strip() for name, text in result.items()}


def _numbers(line):
    """The numbers of a line, a name of a variable left out."""
    values = []
    for word in _NUMBER.findall(re.sub(r"//.*", "", line)):
        hexadecimal = word.lower().startswith("0x")
        values.append(float.fromhex(word) if hexadecimal else float(word))
    return values


def _shape(line):
    return _NUMBER.sub("N", re.sub(r"//.*", "", line)).split()


def loosened(hunk):
    """The added lines that say the same as a removed one with a larger tolerance."""
    moved = {line.text.strip() for line in hunk.removed} & {line.text.strip() for line in hunk.added}
    for old in hunk.removed:
        for new in hunk.added:
            if old.text.strip() in moved or new.text.strip() in moved:
                continue
            if not (_TOLERANT.search(old.text) and _TOLERANT.search(new.text)):
                continue
            before, after = _numbers(old.text), _numbers(new.text)
            same = _shape(old.text) == _shape(new.text)
            if same and len(before) == len(after) and any(b > a for a, b in zip(before, after)):
                yield new


def _tests_in(lines):
    """{test: line number} of the tests that begin on some lines of a diff."""
    found = ((line.number, _TEST.search(line.text)) for line in lines)
    return {match[0].strip(): number for number, match in found if match}


def _removed_tests(changes):
    """Tests that are gone, and not only somewhere else: a test may move to another file."""
    added = set().union(*(_tests_in(change.added) for change in changes))
    for change in changes:
        for name, number in _tests_in(change.removed).items():
            if name not in added and change.old_path.startswith("tests/"):
                yield Finding(f"{change.old_path}:{number}", "policy.removed_test",
                              f"`{name})` is gone: a person adds {ACCEPTANCE}")


def _human(changes, labels):
    if ACCEPTANCE not in labels:
        yield from _removed_tests(changes)
    for change in changes:
        if change.path == "tests/golden_guard/expected.json" and TOLERANCE not in labels:
            yield Finding(change.path, "policy.golden",
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
            for line in loosened(hunk):
                yield Finding(f"{change.path}:{line.number}", "policy.tolerance",
                              f"`{line.text.strip()}` is looser than before: derive it, or a person"
                              f" adds the label {TOLERANCE}")
        if ACCEPTANCE not in labels:
            yield from _acceptance(change)
    if GOVERNANCE not in labels:
        for path, tier, why in tiers.tier_of(changes)[1]:
            if tier == 4:
                yield Finding(path, "policy.human",
                              f"{why} changes: a person adds the label {GOVERNANCE}")


def _requirements(change):
    """Requirements of PRD.md that say something else than before, or are gone."""
    def read(lines):
        return [item for line in lines for item in [prd.requirement(line.number, line.text)] if item]
    now = {item.number: item for item in read(change.added)}
    for old in read(change.removed):
        new = now.get(old.number)
        if new is None or new.text != old.text or (old.done and not new.done):
            yield Finding(f"PRD.md:{old.line}", "policy.acceptance",
                          f"requirement {old.number} changes: a person adds {ACCEPTANCE}")
    added = {line.text for line in change.added}
    for line in change.removed:
        match = re.match(r"- Acceptance of task (\d+): ", line.text)
        finished = match and match[1] in now and now[match[1]].done
        if match and line.text not in added and not finished:
            yield Finding(f"PRD.md:{line.number}", "policy.acceptance",
                          f"what is accepted for task {match[1]} changes: a person adds {ACCEPTANCE}")


def _acceptance(change):
    if change.path == "PRD.md":
        yield from _requirements(change)
    if re.fullmatch(r"(scripts|\.ci|tests|bench)/.*", change.path):
        for line in change.removed:
            match = _LIMIT.search(line.text)
            if match:
                yield Finding(f"{change.path}:{line.number}", "policy.acceptance",
                              f"the limit {match[1]} changes: a person adds {ACCEPTANCE}")


def _added_code(tree, changes):
    exceptions, _ = calls.allowed(tree)
    for change in changes:
        for line in change.added:
            for finding in secret_scan.findings_in(change.path, line.number, line.text):
                yield finding._replace(rule="policy.secret")
        if re.fullmatch("src/" + CPP, change.path):
            text = "\n".join(line.text for line in change.added)
            for finding in calls.findings_in(change.path, text):
                known = (change.path, finding.rule) in exceptions
                if finding.rule != "fence.safety" and not known:
                    yield Finding(change.path, "policy.calls", finding.text)


def _body(tier, parts):
    named = re.search(r"\b([0-4])\b", parts.get("Tier", ""))
    if not named:
        yield Finding("pull request", "policy.tier", f"write the tier under `Tier`; it is {tier}")
    elif int(named[1]) < tier:
        yield Finding("pull request", "policy.tier", f"this is tier {tier}, not {named[1]}")
    for title in ["Change", "Tests run"] + (["Risk", "Rollback"] if tier >= 2 else []):
        if not parts.get(title):
            yield Finding("pull request", "policy.body", f"write something under `{title}`")


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
    if heavy and "CHANGELOG.md" not in [change.path for change in changes if change.added]:
        yield Finding(heavy[0], "policy.changelog", "add a line to CHANGELOG.md")
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
        if not (named or changed) or not sizes:
            yield Finding(kernels[0], "policy.parity", "change or name a test of tests/kernels or"
                          " tests/ops, and give its runs at 128, 256 and 512 under `Parity`")
        if not parts.get("Op breakdown"):
            yield Finding(kernels[0], "policy.breakdown", "show the profile under `Op breakdown`")
    documents = [change.path for change in changes if re.match(r"docs/.*\.md", change.path)]
    for change in changes:
        lines = change.added + change.removed
        if change.path in code and any(_VERSION.search(line.text) for line in lines):
            if not documents or not tests:
                yield Finding(change.path, "policy.format", "the version of a file format changes:"
                              " add a test that reads the old one, and say it in docs")


def check(tree, changes, body, labels=()):
    """The findings of a change; `tree` is the one that the change leads to."""
    parts = sections(body)
    tier, _ = tiers.tier_of(changes)
    yield from _body(tier, parts)
    yield from _evidence(tree, changes, body, parts)
    yield from _human(changes, set(labels))
    yield from _added_code(tree, changes)
