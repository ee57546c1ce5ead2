"""The parts of a Markdown document that the checks read: links, headings, fenced code, tables."""
import re

_FENCE = re.compile(r"\s*(```+|~~~+)\s*(\w*)")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^\s()<>]+(?:\([^\s()]*\))?)>?[^)]*\)")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*")


def blocks(text):
    """(first line's number, language, lines) of every fenced block of code."""
    inside, start, language, lines = None, 0, "", []
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if inside is None and match:
            inside, start, language, lines = match[1], number + 1, match[2], []
        elif inside is not None and match and match[1] == inside and not match[2]:
            yield start, language, lines
            inside = None
        elif inside is not None:
            lines.append(line)


def prose(text):
    """(number, line) of every line outside of fenced blocks."""
    inside = None
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if match and inside is None:
            inside = match[1]
        elif match and match[1] == inside and not match[2]:
            inside = None
        elif inside is None:
            yield number, line


def links(text):
    """(number, target) of every link and picture; code in backticks has none."""
    for number, line in prose(text):
        for match in _LINK.finditer(re.sub(r"`[^`]*`", "``", line)):
            yield number, match[1]


def headings(text):
    """(level, title) of every heading."""
    for _, line in prose(text):
        match = _HEADING.fullmatch(line)
        if match:
            yield len(match[1]), match[2]


def anchors(text):
    """The anchors that GitHub makes of the headings."""
    seen, result = {}, set()
    for _, title in headings(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        result.add(f"{slug}-{count}" if count else slug)
    return result


def tables(text):
    """(number, cells) of every row of a table, heads and rulers left out."""
    rows, previous = [], ""
    for number, line in prose(text):
        if re.fullmatch(r"\|[\s:|-]+\|", line) and previous.startswith("|"):
            rows.pop()
        elif line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            rows.append((number, [cell.strip() for cell in cells]))
        previous = line
    return rows
