"""Writes the text of a pull request from what was really run: commits, logs of the gate, tables."""
import re

# Of a stage's log, the lines that say how it went.
_SUMMARY = re.compile(r"tests passed|tests failed|\d+ findings|\d+ problems|coverage|nothing found"
                      r"|^fuzz \w+: |arrows in the wrong direction", re.IGNORECASE)


def ending(stage, text):
    """How a stage ended, by the last line of this kind in its log, which .ci/run writes: `ok`, or
    something that begins with FAILED or GIVEN UP; None if the log does not say."""
    told = re.findall(rf"^=== {re.escape(stage)}: ((?:ok|FAILED|GIVEN UP)\b.*)$", text, re.MULTILINE)
    return told[-1].strip() if told else None


def not_passed(logs):
    """A line about each stage whose log does not say that it passed. `logs`: as for tests_run()."""
    for stage, text in sorted(logs.items()):
        how = ending(stage, text)
        if how is None:
            yield (f"build/ci/{stage}.log does not say how the stage ended; run"
                   f" `.ci/run {stage} | tee build/ci/{stage}.log`")
        elif how != "ok":
            yield f"the stage '{stage}' has not passed: {how}"


def tests_run(logs):
    """The section on tests. `logs`: {stage: text of build/ci/STAGE.log}."""
    lines = []
    for stage, text in sorted(logs.items()):
        how = ending(stage, text)
        printed = [line.strip() for line in text.splitlines()
                   if line.strip() and not line.startswith(f"=== {stage}: ")]
        told = [line for line in printed if _SUMMARY.search(line)] or printed or ["it printed nothing"]
        prefix = "" if how == "ok" else f"{how}; " if how else "it did not end; "
        lines.append(f"- `.ci/run {stage}`: {prefix}{told[-1]}")
    return "\n".join(lines)


def write(change, tier, logs, parts, not_green=None):
    """The text. `parts`: {heading: text} of what else the caller has; empty ones are left out.
    `not_green`: why a stage has not passed."""
    tests = tests_run(logs) + (f"\n\nNot green: {not_green}" if not_green else "")
    sections = {"Change": change, "Tier": str(tier), "Tests run": tests, **parts}
    return "\n".join(f"## {title}\n\n{text.strip()}\n" for title, text in sections.items()
                     if text.strip())
