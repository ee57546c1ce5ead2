"""Finds what became easier to pass in a changed test: a larger tolerance, or a comparison that allows
a difference where an exact one stood.

The lines that go and those that come are joined into statements and paired: two statements that are
equal but for their numbers are one statement that changed, whatever its names are and however it is
laid out. Two comparisons of the same values are paired, too, when their bounds look different.
"""
import re
from typing import NamedTuple

NUMBER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F.]+(?:[pP][+-]?\d+)?|\d[\d']*\.?\d*(?:[eE][+-]?\d+)?"
                    r"|\.\d+(?:[eE][+-]?\d+)?)")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"|(?<!\w)\'(?:\\.|[^\'\\])*\'')
_COMMENT = re.compile(r"//.*|(?<!\S)#\s.*")
# Lines on which a number of 1 or more is a tolerance, too.
_NAMED = re.compile(r"(?i)toleranc|\b[ra]?tol\b|bound|error\s*[+*]?=(?!=)|kUnit|epsilon|\bslack\b"
                    r"|(?:\b|_)ulps?(?:\b|_)|max_?(?:error|ulp)|allclose")
# How much a comparison of two values allows: nothing, a rounding, a named difference, a whole side.
_STRICTNESS = {"EQ": 0, "STREQ": 0, "Equal": 0, "DOUBLE_EQ": 1, "FLOAT_EQ": 2, "NEAR": 3,
               "AlmostEqual": 3, "LT": 4, "LE": 4, "GT": 4, "GE": 4, "Less": 4, "LessEqual": 4,
               "Greater": 4, "GreaterEqual": 4, "NE": 5, "NotEqual": 5}
_COMPARISON = re.compile(r"\b(?:EXPECT_|ASSERT_|assert)(" + "|".join(_STRICTNESS) + r")\s*\((.*)")
_FEW = 50  # Statements that look alike, of which each is compared with each.
_UPWARDS = ("GT", "GE", "Greater", "GreaterEqual")  # A smaller bound is the looser one.


class Comparison(NamedTuple):
    kind: str
    values: tuple  # What is compared; of an inequality the first value.
    bound: str     # The largest difference, or the other side of an inequality; "" if there is none.


def statements(lines, before=()):
    """(line, text) of every statement of some lines of a diff: one goes on while a bracket is open.
    `before`: the unchanged lines above, in which the first statement may begin."""
    first, text, depth = None, "", 0
    for line in [*before, *lines]:
        code = _COMMENT.sub("", _STRING.sub(lambda match: NUMBER.sub("0", match[0]), line.text))
        if not code.strip():
            continue
        first = line if first is None or line not in before else first
        text = f"{text} {code.strip()}".strip()
        bare = _STRING.sub("", code)
        depth += sum(map(bare.count, "([")) - sum(map(bare.count, ")]"))
        if depth <= 0:
            if line not in before:
                yield first, text
            first, text, depth = None, "", 0
    if first is not None and first not in before:
        yield first, text


def _value(word):
    word = word.replace("'", "").rstrip(".")
    try:
        return float.fromhex(word) if word.lower().startswith("0x") else float(word)
    except ValueError:
        return 0.0  # It only looks like a number.


def numbers(text):
    return [_value(word) for word in NUMBER.findall(_STRING.sub('""', text))]


def _shape(text):
    """A statement with N for each number and, in a definition, without the name that it defines."""
    return re.sub(r"\w+=(?!=)", "=", "".join(NUMBER.sub("N", text).split()), count=1)


def comparison(text):
    """The Comparison that a statement makes, or None."""
    match = _COMPARISON.search(text)
    if not match:
        return None
    values, depth, start, rest = [], 0, 0, match[2]
    for at, letter in enumerate(rest + ")"):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0 or (letter == "," and not depth):
            values.append("".join(rest[start:at].split()))
            start = at + 1
        if depth < 0:
            break
    strictness = _STRICTNESS[match[1]]
    if len(values) < 2 + (match[1] == "NEAR"):
        return None
    if strictness == 3:
        return Comparison(match[1], tuple(values[:2]), values[2] if len(values) > 2 else "")
    if strictness == 4:
        return Comparison(match[1], (values[0],), values[1])
    return Comparison(match[1], tuple(values[:2]), "")


def _values(text):
    made = comparison(text)
    return made.values if made else ()


def _size(bound, known, pick):
    """The largest (or smallest) number of a bound, products of numbers computed and names replaced by
    what the change defines; None if there is no number."""
    for name, value in known.items():
        bound = re.sub(rf"\b{re.escape(name)}\b", lambda _, value=value: f"({value})", bound)
    sizes, product, end = [], None, 0
    for match in NUMBER.finditer(bound):
        between = bound[end:match.start()]
        if product is not None and re.fullmatch(r"[fFuUlL]*[()]*\*[()]*", between):
            product *= _value(match[0])
        else:
            sizes += [product] if product is not None else []
            product = _value(match[0])
        end = match.end()
    sizes += [product] if product is not None else []
    return pick(sizes) if sizes else None


def _looser_numbers(old, new):
    """Whether a statement that is equal but for its numbers is looser."""
    was, now = comparison(old), comparison(new)
    if was and now:
        if not was.bound:
            return False
        pairs = list(zip(numbers(was.bound), numbers(now.bound)))
        if was.kind in _UPWARDS:
            return any(b < a for a, b in pairs)
        if was.kind == "AlmostEqual" and "places=" in was.bound:
            return any(b < a for a, b in pairs)
        return any(b > a for a, b in pairs)
    pairs = list(zip(numbers(old), numbers(new)))
    # A number alone is no tolerance, such as a learning rate or a pause, unless it is very small.
    judged = re.search(r"[<>]|[Nn]ear|NEAR|EXPECT|ASSERT|assert|[Cc]lose", old)
    return any(b > a and (_NAMED.search(old) or 0 < a < (1 if judged else 1e-4)) for a, b in pairs)


def _looser_comparison(old, new, known):
    """Whether two comparisons of the same values differ, and the new one allows more."""
    was, now = comparison(old), comparison(new)
    if not was or not now:
        return False
    if was.kind != now.kind:
        same = was.values[0] in now.values or now.values[0] in was.values
        return same and _STRICTNESS[was.kind] < _STRICTNESS[now.kind]
    if was.values != now.values or was.bound == now.bound:
        return False
    pick = min if was.kind in _UPWARDS else max
    before, after = _size(was.bound, {}, pick), _size(now.bound, known, pick)
    if after is None:  # Nobody sees here what the name stands for.
        return before is not None
    before = 1.0 if before is None else before  # A name alone is what it stands for, once.
    return after < before if pick is min else after > before


def _definitions(added):
    found = {}
    for _, text in added:
        match = re.search(r"(\w+)\s*=(?!=)\s*([^;]*)", text)
        if match and numbers(match[2]):
            found[match[1]] = match[2]
    return found


def loosened(hunk):
    """The added lines of a hunk with which a removed statement became easier to pass."""
    old = list(statements(hunk.removed, hunk.before))
    new = list(statements(hunk.added, hunk.before))
    gone, come, known = {text for _, text in old}, {text for _, text in new}, _definitions(new)
    by_shape, by_value = {}, {}
    for line, now in new:
        if now not in gone:
            by_shape.setdefault(_shape(now), []).append((line, now))
            for value in set(_values(now)):
                by_value.setdefault(value, []).append((line, now))
    found, seen = [], {}
    for was in [text for _, text in old if text not in come]:
        shape = _shape(was)
        alike = by_shape.get(shape, [])
        seen[shape] = seen.get(shape, -1) + 1
        if len(alike) > _FEW:  # A long table: its rows are paired in their order.
            alike = alike[seen[shape]:seen[shape] + 1]
        found += [line for line, now in alike if _looser_numbers(was, now)]
        found += [line for value in set(_values(was)) for line, now in by_value.get(value, [])[:_FEW]
                  if _shape(now) != shape and _looser_comparison(was, now, known)]
    return sorted(set(found))
