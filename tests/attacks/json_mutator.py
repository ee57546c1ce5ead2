"""JSON as a tree that can hold what JSON should not (members twice, any text as a number), and
mutations that know the tree."""
import json


class Object(list):
    """Members as lists [key, value], in order and perhaps twice."""

    def get(self, key, otherwise=None):
        return next((value for name, value in self if name == key), otherwise)

    def set(self, key, value):
        for member in self:
            if member[0] == key:
                member[1] = value
                return
        self.append([key, value])

    def drop(self, key):
        self[:] = [member for member in self if member[0] != key]


class Raw(str):
    """Text that is written as it is: numbers, and whatever takes the place of a value."""


def is_array(value):
    return isinstance(value, list) and not isinstance(value, Object)


def parse(text):
    return json.loads(
        text, object_pairs_hook=lambda members: Object([key, value] for key, value in members),
        parse_int=Raw, parse_float=Raw, parse_constant=Raw)


def tree(value):
    """The tree of a Python value."""
    return parse(json.dumps(value))


def text_of(value):
    if isinstance(value, Object):
        return "{" + ",".join(json.dumps(str(k)) + ":" + text_of(v) for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return value if isinstance(value, Raw) else json.dumps(value)


def bytes_of(value):
    return text_of(value).encode("utf-8", "surrogatepass")


NUMBERS = [Raw(word) for word in (
    "0", "1", "-1", "2", "3", "7", "64", "65", "127", "255", "256", "1000", "65535", "65536",
    "1000000", "16777217", "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296",
    "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "18446744073709551615", "18446744073709551616", "1e18", "1e19", "1e308", "1e309", "-1e309",
    "1e-320", "0.5", "-0.0", "1.0", "1.5", "NaN", "Infinity", "01", "1.", "+1", "0x10",
    "1" * 400, "0." + "1" * 400)]
STRINGS = ["", "\0", "a", "/", "..", "../canary/secret.txt", "/etc/passwd", "/dev/zero", "\ud800",
           "\ufeff", "\x1b]52;c;aGk=\x07", "\u202e", "a" * 300, "\U0010ffff", "%s%n", "A" * 70000]
OTHERS = [None, True, False, [], Object(), [[]], Object([["a", Raw("1")]]),
          Object([["a", Raw("1")], ["a", Raw("2")]])]


def deep(rng):
    depth = rng.choice((40, 65, 200, 1100, 5000, 100000))
    if rng.random() < 0.5:
        return Raw("[" * depth + "]" * depth)
    return Raw('{"a":' * depth + "1" + "}" * depth)


def huge_array(rng):
    count = rng.choice((100, 5000, 200000))
    return Raw("[" + ",".join([rng.choice(("0", '""', "null", "[]", "1e9"))] * count) + "]")


def extreme(rng):
    roll = rng.random()
    if roll < 0.45:
        return rng.choice(NUMBERS)
    if roll < 0.7:
        return rng.choice(STRINGS)
    if roll < 0.9:
        return copied(rng.choice(OTHERS))
    return deep(rng) if roll < 0.95 else huge_array(rng)


def copied(value):
    if isinstance(value, Object):
        return Object([key, copied(inner)] for key, inner in value)
    if isinstance(value, list):
        return [copied(inner) for inner in value]
    return value


def places(value, rng):
    """A way from the root to some value: a list of (container, index)."""
    way = []
    while isinstance(value, list) and value:
        index = rng.randrange(len(value))
        way.append((value, index))
        value = value[index][1] if isinstance(value, Object) else value[index]
        if rng.random() < 0.25:
            break
    return way


def value_at(place):
    container, index = place
    return container[index][1] if isinstance(container, Object) else container[index]


def put(place, value):
    container, index = place
    if isinstance(container, Object):
        container[index][1] = value
    else:
        container[index] = value


def near(number, rng):
    """A number close to another, in ways that matter."""
    try:
        n = int(number)
    except ValueError:
        try:
            return Raw(repr(float(number) * rng.choice((-1, 0, 0.5, 2, 1e10, 1e-10, 1e300))))
        except ValueError:
            return rng.choice(NUMBERS)
    return Raw(str(rng.choice((n + 1, n - 1, -n, 2 * n, n // 2, n * 3, n + 2**31, n + 2**32, n << 32,
                               n * 1000, n ^ 1, n + 64))))


def changed(value, rng):
    """Another value instead of this one, most often of the same type."""
    roll = rng.random()
    if isinstance(value, Raw) and roll < 0.5:
        return near(value, rng)
    if isinstance(value, bool) and roll < 0.5:
        return not value
    if isinstance(value, str) and not isinstance(value, Raw) and roll < 0.4 and value:
        at = rng.randrange(len(value) + 1)
        return value[:at] + rng.choice(STRINGS + [value]) + value[at + rng.randrange(2):]
    return extreme(rng)


def change_once(root, rng):
    """Changes the tree in place; returns the root, which may be another value then."""
    way = places(root, rng)
    if not way:
        return changed(root, rng)
    place = way[-1]
    container, index = place
    kind = rng.randrange(10)
    if kind <= 3:
        put(place, changed(value_at(place), rng))
    elif kind == 4:
        del container[index]
    elif kind == 5:  # Twice, or many times.
        times = rng.choice((1, 1, 2, 50, 3000))
        times = min(times, 1 + 200000 // (1 + len(text_of(value_at(place)))))
        container[index:index] = [copied([container[index]])[0] for _ in range(times)]
    elif kind == 6:  # A value from elsewhere in the file.
        other = places(root, rng)
        if other:
            put(place, copied(value_at(other[-1])))
    elif kind == 7:
        other = rng.randrange(len(container))
        container[index], container[other] = container[other], container[index]
    elif kind == 8:
        if isinstance(container, Object):
            names = [key for key, _ in container] + STRINGS
            container[index][0] = rng.choice(names)
        else:
            rng.shuffle(container)
    else:
        value = value_at(place)
        put(place, [value] if rng.random() < 0.5 else Object([[rng.choice(("type", "a")), value]]))
    return root


def change(root, rng):
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        root = change_once(root, rng)
    return root


def change_bytes(data, rng):
    """What any file may suffer: bits, pieces, ends."""
    data = bytearray(data)
    kind = rng.randrange(7)
    at = rng.randrange(len(data) + 1)
    if kind == 0:
        del data[at:]
    elif kind == 1:
        data += rng.choice((b"\0", b"}", b"x" * 100, bytes(4096), data[:1000]))
    elif kind == 2:
        del data[at:at + rng.choice((1, 2, 8, 100))]
    elif kind == 3:
        data[at:at] = data[at:at + rng.choice((1, 8, 100, 1000))]
    elif kind == 4:
        data[at:at] = rng.choice((b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf",
                                  b"\0", b"\x1b[2J", b"\xc3"))
    else:
        for _ in range(rng.choice((1, 1, 2, 8))):
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def by_bytes_where_too_deep(mutate):
    """A function (data, rng) that works on the tree: on the bytes instead, where an earlier mutation
    has nested it deeper than Python can follow."""
    def guarded(data, rng):
        try:
            return mutate(data, rng)
        except RecursionError:
            return change_bytes(data, rng)
    return guarded


@by_bytes_where_too_deep
def change_text(data, rng):
    """JSON text, mutated by its structure, now and then by its bytes."""
    if rng.random() < 0.1:
        return change_bytes(data, rng)
    try:
        root = parse(data.decode())
    except ValueError:
        return change_bytes(data, rng)
    return bytes_of(change(root, rng))
