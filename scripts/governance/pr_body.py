"""Writes the text of a pull request from what was really run: commits, logs of the gate, tables."""
import re

# Of a stage's log, the lines that say how it went.
_SUMMARY = re.compile(r"tests passed|tests failed|\d+ findings|\d+ problems|coverage|nothing found"
                      r"|^fuzz \w+: |arrows in the wrong direction", re.IGNORECASE)


def tests_run(logs):
    """The section on tests. `logs`: {stage: text of build/ci/STAGE.log}."""
    lines = []
    for stage, text in sorted(logs.items()):
        told = [line.strip() for line in text.splitlines() if _SUMMARY.search(line)]
        last = [line.strip() for line in text.splitlines() if line.strip()][-1:]
        lines.append(f"- `.ci/run {stage}`: {(told or last or ['it printed nothing'])[-1]}")
    return "\n".join(lines)


def write(change, tier, logs, parts):
    """The text. `parts`: {heading: text} of what else the caller has; empty ones are left out."""
    sections = {"Change": change, "Tier": str(tier), "Tests run": tests_run(logs), **parts}
    return "\n".join(f"## {title}\n\n{text.strip()}\n" for title, text in sections.items()
                     if text.strip())
