"""Numbers and small arithmetic in the text of a statement of C++ or Python.

A name whose value nobody sees here counts as 1, so that `10 * kBound` is ten times `kBound`.
"""
import ast
import operator
import re

NUMBER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F.]+(?:[pP][+-]?\d+)?|\d[\d']*\.?\d*(?:[eE][+-]?\d+)?"
                    r"|\.\d+(?:[eE][+-]?\d+)?)")
_SUFFIX = r"[fFuUlL]*"
_LITERAL = re.compile(rf"(?:{NUMBER.pattern}){_SUFFIX}(?![\w.])")
# Not after a division, of which the second factor would be no part.
_PRODUCT = re.compile(rf"(?<![/%])(?<![/%]\s){_LITERAL.pattern}(?:\s*\*\s*{_LITERAL.pattern})+")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)*")
_CALL = re.compile(r"[A-Za-z_][\w:.]*\([^()]*\)")
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
              ast.Div: operator.truediv, ast.UAdd: operator.pos, ast.USub: operator.neg}


def value(word):
    """The value of a word that NUMBER matches."""
    word = word.replace("'", "").rstrip(".")
    try:
        return float.fromhex(word) if word.lower().startswith("0x") else float(word)
    except (ValueError, OverflowError):
        return 0.0  # It only looks like a number.


def numbers(text):
    return [value(word) for word in NUMBER.findall(text)]


def is_literal(text):
    """Whether an expression consists of numbers alone."""
    rest = _LITERAL.sub("", text)
    return bool(NUMBER.search(text)) and not re.search(r"[^-+*/().\s]", rest)


def with_products(text):
    """The text with one number for each product of numbers: `2 * 1e-5f` is `2e-05`."""
    def product(match):
        result = 1.0
        for factor in numbers(match[0]):
            result *= factor
        return repr(result)
    return _PRODUCT.sub(product, text)


def evaluate(text):
    """The value of an expression of numbers, names and + - * /, names counted as 1; None if there is
    anything else in it."""
    text = _NAME.sub("1.0", _LITERAL.sub(lambda match: repr(value(NUMBER.match(match[0])[0])), text))
    if not re.fullmatch(r"[-+*/().\se\d]+", text) or "**" in text or "//" in text:
        return None
    try:
        return _result(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ArithmeticError, KeyError, RecursionError, MemoryError):
        return None


def _result(node):
    if isinstance(node, ast.Constant):
        return float(node.value)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_result(node.left), _result(node.right))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_result(node.operand))
    raise KeyError  # A call, for example.


def without_common_calls(old, new):
    """Two expressions with a name for each call that both make."""
    for call in sorted(set(_CALL.findall(old)) & set(_CALL.findall(new)), key=len, reverse=True):
        old, new = old.replace(call, "call"), new.replace(call, "call")
    return old, new


def replace_names(text, known):
    """The text with what is `known` of its names."""
    for name, known_value in known.items():
        text = re.sub(rf"\b{re.escape(name)}\b", lambda _, known_value=known_value: f"({known_value})",
                      text)
    return text


def size(text, pick):
    """How large an expression is: its value, or what `pick` (min or max) takes of its numbers; None if
    there is no number in it."""
    if not NUMBER.search(text):
        return None
    exact = evaluate(text)
    return pick(numbers(with_products(text))) if exact is None else exact
