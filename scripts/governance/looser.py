"""Finds what became easier to pass in a changed test: a larger tolerance, or a comparison that allows
a difference where an exact one stood.

The lines that go and those that come are joined into statements and paired: two statements that are
equal but for their numbers are one statement that changed, whatever its names are and however it is
laid out. Two comparisons of the same values, and two definitions of one name, are paired, too.
"""
import collections
import functools
import re
from typing import NamedTuple

import expressions
from expressions import NUMBER

_STRING = re.compile(r'"(?:\\.|[^"\\])*"|(?<!\w)\'(?:\\.|[^\'\\])*\'')
_COMMENT = re.compile(r"//.*|(?<!\S)#\s.*")
# Lines on which a number of 1 or more is a tolerance, too.
_NAMED = re.compile(r"(?i)toleranc|\b[ra]?tol\b|(?<!un)(?<!::lower_)(?<!::upper_)bound(?!ar|ed|less)"
                    r"|error\s*[+*]?=(?!=)|kUnit\b|epsilon|\bslack\b|(?:\b|_)ulps?(?:\b|_)"
                    r"|max_?(?:error|ulp)|allclose")
# Names of something about a tolerance that is none.
_NO_TOLERANCE = re.compile(r"\bk\w+(?:Format|Version|Name|Count|Index|Size)\b")
EXACT, NEAR, BELOW, ABOVE, OTHER = "exact", "near", "below", "above", "other"
_FLOAT, _DOUBLE, _CLOSE_CALL, _EQUAL_CALL = "float", "double", "close call", "equal call"
# How much a comparison of two values allows: nothing, a rounding, a named difference, a whole side.
_STRICTNESS = {EXACT: 0, _EQUAL_CALL: 0, _DOUBLE: 1, _FLOAT: 2, NEAR: 3, _CLOSE_CALL: 3, BELOW: 4,
               ABOVE: 4, OTHER: 5}
_KINDS = {"EQ": EXACT, "STREQ": EXACT, "Equal": EXACT, "DOUBLE_EQ": _DOUBLE, "FLOAT_EQ": _FLOAT,
          "NEAR": NEAR, "AlmostEqual": NEAR, "LT": BELOW, "LE": BELOW, "Less": BELOW,
          "LessEqual": BELOW, "GT": ABOVE, "GE": ABOVE, "Greater": ABOVE, "GreaterEqual": ABOVE,
          "NE": OTHER, "NotEqual": OTHER}
_OPERATORS = {"<": BELOW, "<=": BELOW, ">": ABOVE, ">=": ABOVE, "==": EXACT, "!=": OTHER}
_OPPOSITE = {BELOW: ABOVE, ABOVE: BELOW, EXACT: OTHER, OTHER: EXACT}
_COMPARISON = re.compile(r"\b(?:EXPECT_|ASSERT_|assert)(" + "|".join(_KINDS) + r")\s*\((.*)")
_STATED = re.compile(r"\b(?:(?:EXPECT_|ASSERT_|assert)(TRUE|FALSE|True|False)\s*\(|assert\s+)(.*)")
_SAME = re.compile(r"(?i)equal|same|identical|bits")
_CLOSE = re.compile(r"(?i)near|almost|approx|close|within|toler")
_DEFINITION = re.compile(r"(\w+)\s*=(?!=)\s*([^;]*)")
_FEW = 50  # Statements that look alike, of which each is compared with each.
# The half width of what FLOAT_EQ and DOUBLE_EQ accept: four units in the last place, of which each has
# at least this share of the value.
_ROUNDING = {_FLOAT: 4 * 2.0**-24, _DOUBLE: 4 * 2.0**-53}


class Comparison(NamedTuple):
    kind: str      # A key of _STRICTNESS.
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


def numbers(text):
    return expressions.numbers(_STRING.sub('""', text))


def _joined(text):
    return "".join(text.split())


def _shape(text):
    """A statement with N for each number and, in a definition, without the name that it defines."""
    text = re.sub(r"\bN[fFuUlL]+\b", "N", NUMBER.sub("N", text))
    return re.sub(r"\w+=(?!=)", "=", _joined(text), count=1)


def _outside(text):
    """The text with _ for each letter inside of brackets."""
    depth, result = 0, []
    for letter in text:
        depth -= letter in ")]}"
        result.append("_" if depth > 0 else letter)
        depth += letter in "([{"
    return "".join(result)


def _arguments(rest):
    """The arguments of a call, of which `rest` follows the opening bracket."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(rest + ")"):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0 or (letter == "," and not depth):
            found.append(rest[start:at].strip())
            start = at + 1
        if depth < 0:
            return found
    return [*found, rest[start:].strip()]  # The diff ends within the call.


def _largest_difference(name, rest):
    """The bound of NEAR or AlmostEqual from the arguments after the two values."""
    if name == "NEAR":
        return _joined(rest[0])
    named = dict(_joined(word).split("=", 1) for word in rest if re.match(r"(places|delta)\s*=", word))
    if "delta" in named:
        return named["delta"]
    places = named.get("places", rest[0] if rest and rest[0].isdigit() else "7")
    return f"5e-{int(places) + 1}" if places.isdigit() and len(places) < 4 else f"places({places})"


def _named_comparison(name, arguments):
    if len(arguments) < 2 + (name == "NEAR"):
        return None
    kind, values = _KINDS[name], tuple(map(_joined, arguments[:2]))
    if kind == NEAR:
        return Comparison(kind, values, _largest_difference(name, arguments[2:]))
    return _inequality(kind, *values) if kind in (BELOW, ABOVE) else Comparison(kind, values, "")


def _inequality(kind, value, bound):
    """An inequality with its number as the bound; one of |a - b| is a largest difference of a and b."""
    if expressions.is_literal(value) and not expressions.is_literal(bound):
        kind, value, bound = _OPPOSITE[kind], bound, value
    match = re.fullmatch(r"(?:std::|math\.)?f?abs\((.*)\)", value)
    if match and kind == BELOW and _outside(value).count("(") == 1:
        at = _outside(match[1]).find("-", 1)
        if at > 0 and _outside(match[1]).count("-") == 1:
            return Comparison(NEAR, (match[1][:at], match[1][at + 1:]), bound)
    return Comparison(kind, (value,), bound)


def _stated_comparison(condition, negated):
    """The Comparison of a condition that is written out: `a < b`, or a call of two values."""
    outside = _outside(condition)
    found = list(re.finditer(r"\s([<>]=?|[=!]=)\s", outside))
    if len(found) == 1 and not re.search(r"&&|\|\||\?|\b(?:and|or|not|if)\b|!(?!=)", outside):
        kind = _OPERATORS[found[0][1]]
        kind = _OPPOSITE[kind] if negated else kind
        sides = [_joined(part) for part in (condition[:found[0].start()], condition[found[0].end():])]
        if kind in (BELOW, ABOVE):
            return _inequality(kind, *sides)
        return Comparison(kind, tuple(sides), "")
    call = re.fullmatch(r"([\w:.]+)\(_*\)", outside)
    values = tuple(map(_joined, _arguments(condition[len(call[1]) + 1:]))) if call else ()
    if negated or len(values) < 2:
        return None
    exact = _SAME.search(call[1]) and not _CLOSE.search(call[1])
    return Comparison(_EQUAL_CALL if exact else _CLOSE_CALL, values, "")


@functools.lru_cache(maxsize=4096)
def comparison(text):
    """The Comparison that a statement makes, or None."""
    match = _COMPARISON.search(text)
    if match:
        return _named_comparison(match[1], _arguments(match[2]))
    match = _STATED.search(text)
    if match:
        return _stated_comparison(_arguments(match[2])[0], (match[1] or "").lower() == "false")
    return None


def _values(text):
    """What a statement compares, by which it finds others that compare the same."""
    made = comparison(text)
    if not made:
        return set()
    both = made.kind in (BELOW, ABOVE)
    return {value for value in [*made.values, made.bound if both else ""] if value}


def _is_named(text):
    return _NAMED.search(_NO_TOLERANCE.sub("", text))


def _grew(old, new, upwards=False):
    """Whether one of the numbers of two expressions of the same shape allows more."""
    before, after = expressions.evaluate(old), expressions.evaluate(new)
    if before is not None and after is not None and (after < before if upwards else after > before):
        return True
    if before is not None and after is not None and "/" in old:
        return False  # A larger divisor makes less.
    return any(b < a if upwards else b > a for a, b in zip(numbers(old), numbers(new)))


def _looser_numbers(old, new):
    """Whether a statement that is equal but for its numbers is looser."""
    was, now = comparison(old), comparison(new)
    if was and now and was.kind not in (_CLOSE_CALL, _EQUAL_CALL):
        return bool(was.bound) and _grew(was.bound, now.bound, was.kind == ABOVE)
    # A number alone is no tolerance, such as a learning rate or a pause, unless it is very small.
    judged = re.search(r"[<>]|[Nn]ear|NEAR|EXPECT|ASSERT|assert|[Cc]lose", old)
    if any(b > a and 0 < a < (1 if judged else 1e-4) for a, b in zip(numbers(old), numbers(new))):
        return True
    if not _is_named(old):
        return False
    defined = _definition(old), _definition(new)
    return _grew(*(value for _, value in defined)) if all(defined) else _grew(old, new)


def _larger(old, new, known, pick=max):
    """Whether a bound allows more than another one did; `pick` is min where a smaller one does."""
    old, new = expressions.without_common_calls(old, expressions.replace_names(new, known))
    before, after = expressions.size(old, pick), expressions.size(new, pick)
    if after is None:  # Nobody sees here what the name stands for.
        return before is not None
    before = 1.0 if before is None else before  # A name alone is what it stands for, once.
    return after < before if pick is min else after > before


def _looser_bound(was, now, known):
    """Whether two inequalities or two differences of the same values have bounds of which the new one
    is looser."""
    if was.kind != now.kind or sorted(was.values) != sorted(now.values) or was.bound == now.bound:
        return False
    return _larger(was.bound, now.bound, known, min if was.kind == ABOVE else max)


def _turned(made):
    """The same inequality read from its other side."""
    return Comparison(_OPPOSITE[made.kind], (made.bound,), made.values[0])


def _looser_inequality(was, now, known):
    if _looser_bound(was, now, known) or _looser_bound(was, _turned(now), known):
        return True
    # The first value is the bound, too. A number in a call is no part of its size.
    old = _turned(was)
    if expressions.evaluate(old.bound) is None or expressions.is_literal(old.values[0]):
        return False
    return _looser_bound(old, now, known) or _looser_bound(old, _turned(now), known)


def _allows_no_more(was, now):
    """Whether a NEAR after an exact comparison, or after one of a rounding, is as strict as that."""
    largest = expressions.evaluate(now.bound) if now.kind == NEAR else None
    if largest is None or not expressions.is_literal(now.bound):
        return False
    literals = [abs(expressions.evaluate(value) or 0.0) for value in was.values
                if expressions.is_literal(value)]
    return largest <= _ROUNDING.get(was.kind, 0.0) * max(literals, default=0.0)


def _same_values(was, now):
    if now.kind == _CLOSE_CALL:
        return set(was.values) <= set(now.values)
    names = [value for value in (was.values[0], now.values[0]) if not expressions.is_literal(value)]
    return (sorted(was.values) == sorted(now.values)
            or any(name in was.values and name in now.values for name in names))


def _looser_comparison(was, now, known):
    """Whether two comparisons of the same values differ, and the new one allows more."""
    if was.kind in (BELOW, ABOVE) and now.kind in (BELOW, ABOVE):
        return _looser_inequality(was, now, known)
    if was.kind == now.kind == NEAR:
        return _looser_bound(was, now, known)
    return (_STRICTNESS[was.kind] < _STRICTNESS[now.kind] and was.kind != _CLOSE_CALL
            and _same_values(was, now) and not _allows_no_more(was, now))


def _is_kept(was, others):
    """Whether an exact comparison of the first value is among others, so that a weaker one beside it
    takes nothing away."""
    return _STRICTNESS[was.kind] == 0 and any(
        now.kind == was.kind and now.values[0] == was.values[0] for now in others)


def _definition(text):
    """(name, value) of a statement that defines a number, or None."""
    match = None if comparison(text) else _DEFINITION.search(text)
    return (match[1], match[2]) if match and numbers(match[2]) else None


def _looser_definition(old, new, known):
    """Whether a tolerance of the same name has another definition, a larger one."""
    was, now = _definition(old), _DEFINITION.search(new)
    if not was or not now or comparison(new) or now[1] != was[0]:
        return False
    small = 0 < (expressions.size(was[1], max) or 0) < 1e-4
    return bool(small or _is_named(old)) and _larger(was[1], now[2], known)


def _definitions(added):
    return dict(filter(None, (_definition(text) for _, text in added)))


def _unmatched(lines, others):
    """The statements of some lines without those that the others have as well, however laid out."""
    left = collections.Counter(_joined(text) for _, text in others)
    for line, text in lines:
        if left[_joined(text)] > 0:
            left[_joined(text)] -= 1
        else:
            yield line, text


def _statements(hunk, side):
    return [(line, expressions.with_products(text))
            for line, text in statements(getattr(hunk, side), hunk.before)]


def loosened(hunk):
    """The added lines of a hunk with which a removed statement became easier to pass."""
    old, new = _statements(hunk, "removed"), _statements(hunk, "added")
    known, by_shape, by_value, by_name = _definitions(new), {}, {}, {}
    for line, now in _unmatched(new, old):
        by_shape.setdefault(_shape(now), []).append((line, now))
        for value in _values(now):
            by_value.setdefault(value, []).append((line, now))
        defined = None if comparison(now) else _DEFINITION.search(now)
        by_name.setdefault(defined[1] if defined else None, []).append((line, now))
    found, seen = [], {}
    for _, was in _unmatched(old, new):
        shape = _shape(was)
        alike = by_shape.get(shape, [])
        seen[shape] = seen.get(shape, -1) + 1
        if len(alike) > _FEW:  # A long table: its rows are paired in their order.
            alike = alike[seen[shape]:seen[shape] + 1]
        found += [line for line, now in alike if _looser_numbers(was, now)]
        found += _other_comparisons(was, by_value, known)
        defined = _definition(was)
        found += [line for line, now in by_name.get(defined[0], [])[:_FEW] if _shape(now) != shape
                  and _looser_definition(was, now, known)] if defined else []
    return sorted(set(found))


def _other_comparisons(was, by_value, known):
    """The lines of comparisons of another shape that allow more than the statement `was`."""
    made, shape = comparison(was), _shape(was)
    alike = [item for value in _values(was) for item in by_value.get(value, [])[:_FEW]]
    if not alike or _is_kept(made, [comparison(now) for _, now in alike]):
        return []
    return [line for line, now in alike
            if _shape(now) != shape and _looser_comparison(made, comparison(now), known)]
