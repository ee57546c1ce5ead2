"""Reads the part of YAML that a settings file needs: mappings, lists of values, and comments.

Python has no reader of YAML without packages. What is not in this part is refused, never guessed:
anchors, tags, flow brackets, texts of several lines, tabs and repeated keys.
"""
import json
import re


class Problem(Exception):
    def __init__(self, line, text):
        super().__init__(f"line {line}: {text}")
        self.line, self.text = line, text


def _value(number, text):
    """A value at the end of a line: a quoted or a plain text."""
    if text.startswith('"'):
        try:
            return json.loads(text)
        except ValueError:
            raise Problem(number, f"{text} is not a text in double quotes") from None
    if text.startswith("'"):
        if not re.fullmatch(r"'(?:[^']|'')*'", text):
            raise Problem(number, f"{text} is not a text in single quotes")
        return text[1:-1].replace("''", "'")
    if re.match(r"[\[\]{}&*!|>%@`#?]|- ", text) or ": " in text or " #" in text or text.endswith(":"):
        raise Problem(number, f"write {text} in double quotes")
    return text


def _lines(text):
    """[(number, indent, content)] of the lines that say something."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        if "\t" in line:
            raise Problem(number, "indent with spaces, not with tabs")
        lines.append((number, len(line) - len(line.lstrip()), content))
    return lines


def _block(lines, at, indent):
    """(value, next line) of the lines from `at` on that have this indent."""
    is_list = lines[at][2].startswith("- ")
    result = [] if is_list else {}
    while at < len(lines) and lines[at][1] == indent:
        number, _, content = lines[at]
        if content.startswith("- ") != is_list:
            raise Problem(number, "a list and a mapping stand in one block")
        at += 1
        if is_list:
            result.append(_value(number, content[2:].strip()))
            continue
        match = re.fullmatch(r"([A-Za-z_][\w-]*):(?: +(.*))?", content)
        if not match:
            raise Problem(number, "write `name: value`")
        if match[1] in result:
            raise Problem(number, f"'{match[1]}' comes twice")
        if match[2]:
            result[match[1]] = _value(number, match[2])
        elif at < len(lines) and lines[at][1] > indent:
            result[match[1]], at = _block(lines, at, lines[at][1])
        else:
            result[match[1]] = None
    if at < len(lines) and lines[at][1] > indent:
        raise Problem(lines[at][0], "this line is indented further than the one before")
    return result, at


def parse(text):
    """The mapping that a text holds; Problem, with the line, if it is no such text."""
    lines = _lines(text)
    if not lines:
        return {}
    value, at = _block(lines, 0, lines[0][1])
    if at < len(lines):
        raise Problem(lines[at][0], "this line is indented less than the first one")
    if not isinstance(value, dict):
        raise Problem(lines[0][0], "the file must hold `name: value`")
    return value
