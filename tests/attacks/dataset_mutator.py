"""Mutations of data to train on: conversations as JSON lines, and ids as 16-bit numbers."""
import json_mutator

# About the largest file made: training on it under the sanitizers stays well below the limit of a
# command.
LARGEST = 1 << 18
SEPARATORS = (b"\r\n", b"\r", b"\n\n", b"", b" \n", b"\0\n", b"\xe2\x80\xa8")


def many_messages(line, rng):
    """The messages of a conversation many times over."""
    root = json_mutator.parse(line.decode())
    messages = root.get("messages") if isinstance(root, json_mutator.Object) else None
    if not json_mutator.is_array(messages) or not messages:
        return line
    times = min(rng.choice((10, 100, 1000, 20000)), 1 + LARGEST // len(line))
    root.set("messages", json_mutator.Raw(
        "[" + ",".join([",".join(map(json_mutator.text_of, messages))] * times) + "]"))
    return json_mutator.bytes_of(root)


def long_text(line, rng):
    """A message as long as a file may get."""
    piece = rng.choice((b"a", b" ", b"so it is. ", "\u00e9".encode(), b"<|im_start|>", b"\\n"))
    text = piece * (rng.choice((1 << 12, 1 << 15, LARGEST)) // len(piece))
    return line.replace(b'"content": "', b'"content": "' + text, 1)


@json_mutator.by_bytes_where_too_deep
def mutate_chats(data, rng):
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    roll = rng.random()
    try:
        if roll < 0.6:
            lines[at] = json_mutator.change_text(lines[at], rng)
        elif roll < 0.7:
            lines[at] = many_messages(lines[at], rng)
        elif roll < 0.75:
            lines[at] = long_text(lines[at], rng)
        elif roll < 0.85:
            times = rng.choice((1, 10, 1000, 20000))
            lines[at:at] = [lines[at]] * min(times, 1 + LARGEST // (1 + len(lines[at])))
        elif roll < 0.95:
            lines[at] += rng.choice(SEPARATORS) + rng.choice(lines)
        else:
            return json_mutator.change_bytes(data, rng)
    except ValueError:
        return json_mutator.change_bytes(data, rng)
    return b"\n".join(lines)


def mutate_ids(data, rng):
    """Little-endian 16-bit ids: odd lengths, ids beyond the vocabulary, nothing, or a lot."""
    roll = rng.random()
    if roll < 0.2:
        return data[:rng.choice((0, 1, 2, 3, 17, 18, 33))]
    if roll < 0.3:
        return data * rng.choice((2, 100, LARGEST // max(1, len(data))))
    if roll < 0.6:
        at = rng.randrange(len(data) + 1)
        return data[:at] + rng.choice((b"\xff\xff", b"\x00\x80", b"\xff")) + data[at:]
    return json_mutator.change_bytes(data, rng)
