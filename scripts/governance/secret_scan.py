"""Looks for keys, tokens and passwords that must never be in a tree or in a diff."""
import re

from tree import Finding

RULES = {
    "secret.key": "No private key, access token or password stands in any file; revoke one that"
                  " did, because history keeps it.",
}

# (a part that every match has, in lower case, which is found fast; the pattern; what it is).
PATTERNS = [
    ("private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?m:$)|\\n[A-Za-z0-9+/=]{40})",
     "a private key"),
    ("ia", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", "an access key of AWS"),
    ("gh", r"\bgh[pousr]_[A-Za-z0-9]{36,}\b", "a token of GitHub"),
    ("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{40,}", "a token of GitHub"),
    ("glpat-", r"\bglpat-[A-Za-z0-9_-]{20,}", "a token of GitLab"),
    ("hf_", r"\bhf_[A-Za-z0-9]{34,}\b", "a token of Hugging Face"),
    ("sk-", r"\bsk-[A-Za-z0-9_-]{32,}", "a key of a model's API"),
    ("xox", r"\bxox[abprs]-[A-Za-z0-9-]{20,}", "a token of Slack"),
    ("aiza", r"\bAIza[0-9A-Za-z_-]{35}\b", "a key of Google"),
    ("pypi-", r"\bpypi-[A-Za-z0-9_-]{50,}", "a token of PyPI"),
    ("eyj", r"\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}",
     "a signed web token"),
    ("://", r"://[^\s/:@\"'<>{}$]+:[^\s/:@\"'<>{}$]{3,}@[\w.-]+", "a password in an address"),
]
# Values that are named like a secret, whatever the name begins with.
PATTERNS += [
    (name, rf"(?i:{name}\b[\"']?\s*[:=]\s*[\"'][A-Za-z0-9+/_=-]{{16,}}[\"'])",
     "a value that is named like a secret")
    for name in ("password", "passwd", "secret", "api_key", "apikey", "access_token")
]
PATTERNS = [(part, re.compile(pattern), what) for part, pattern, what in PATTERNS]


def findings_in(path, number, line):
    """The findings in one line; the secret itself is not repeated."""
    small = line.lower()
    for part, pattern, what in PATTERNS:
        if part in small and pattern.search(line):
            yield Finding(f"{path}:{number}", "secret.key",
                          f"this looks like {what}; take it out, and revoke it")


def check(tree):
    for path, text in sorted(tree.texts.items()):
        small = text.lower()
        if any(part in small and pattern.search(text) for part, pattern, _ in PATTERNS):
            for number, line in enumerate(text.splitlines(), 1):
                yield from findings_in(path, number, line)
