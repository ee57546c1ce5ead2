"""Looks for keys, tokens and passwords that must never be in a tree or in a diff."""
import re

from tree import Finding

RULES = {
    "secret.key": "No private key, access token or password stands in any file; revoke one that"
                  " did, because history keeps it.",
}

PATTERNS = [
    (r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?m:$)|\\n[A-Za-z0-9+/=]{40})", "a private key"),
    (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", "an access key of AWS"),
    (r"\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_[A-Za-z0-9_]{40,}", "a token of GitHub"),
    (r"\bglpat-[A-Za-z0-9_-]{20,}", "a token of GitLab"),
    (r"\bhf_[A-Za-z0-9]{34,}\b", "a token of Hugging Face"),
    (r"\bsk-[A-Za-z0-9_-]{32,}", "a key of a model's API"),
    (r"\bxox[abprs]-[A-Za-z0-9-]{20,}", "a token of Slack"),
    (r"\bAIza[0-9A-Za-z_-]{35}\b", "a key of Google"),
    (r"\bpypi-[A-Za-z0-9_-]{50,}", "a token of PyPI"),
    (r"\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}", "a signed web token"),
    (r"\b[a-z]+://[^\s/:@\"'<>{}$]+:[^\s/:@\"'<>{}$]{3,}@[\w.-]+", "a password in an address"),
    (r"(?i:\b(?:password|passwd|secret|api_?key|access_?token)\b[\"']?\s*[:=]\s*"
     r"[\"'][A-Za-z0-9+/_=-]{16,}[\"'])", "a value that is named like a secret"),
]
_ANY = re.compile("|".join(f"(?:{pattern})" for pattern, _ in PATTERNS))


def findings_in(path, number, line):
    """The findings in one line; the secret itself is not repeated."""
    if _ANY.search(line):
        for pattern, what in PATTERNS:
            if re.search(pattern, line):
                yield Finding(f"{path}:{number}", "secret.key",
                              f"this looks like {what}; take it out, and revoke it")


def check(tree):
    for path, text in sorted(tree.texts.items()):
        if _ANY.search(text):
            for number, line in enumerate(text.splitlines(), 1):
                yield from findings_in(path, number, line)
