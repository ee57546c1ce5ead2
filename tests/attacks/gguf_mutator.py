"""GGUF files: counts, keys with typed values, tensors by name, shape, type and offset, data."""
import struct

from json_mutator import STRINGS, by_bytes_where_too_deep, change_bytes

# Value types: 0 u8, 1 i8, 2 u16, 3 i16, 4 u32, 5 i32, 6 f32, 7 bool, 8 string, 9 array, 10 u64,
# 11 i64, 12 f64.
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
SIZES = (0, 1, 2, 3, 7, 8, 31, 32, 33, 64, 1000, 65536, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
         2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, letter):
        value = struct.unpack_from("<" + letter, self.data, self.at)[0]
        self.at += struct.calcsize("<" + letter)
        return value

    def length(self):
        """A number of bytes or values, of which there cannot be more than bytes left."""
        length = self.number("Q")
        if length > len(self.data) - self.at:
            raise struct.error("a length beyond the end")
        return length

    def string(self):
        size = self.length()
        self.at += size
        return self.data[self.at - size:self.at]

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, count = self.number("I"), self.length()
            return [inner, [self.value(inner) for _ in range(count)]]
        return self.number(FORMATS[kind])


class File:
    """The parts as lists that may be changed; `sizes` are lies to tell about counts and lengths."""

    def __init__(self, data):
        reader = Reader(data)
        self.magic, self.version = data[:4], struct.unpack_from("<I", data, 4)[0]
        reader.at = 8
        tensors, keys = reader.number("Q"), reader.number("Q")
        self.lies = {}
        self.keys, self.tensors = [], []
        for _ in range(keys):
            name, kind = reader.string(), reader.number("I")
            self.keys.append([name, kind, reader.value(kind)])
        for _ in range(tensors):
            name = reader.string()
            shape = [reader.number("Q") for _ in range(reader.number("I"))]
            self.tensors.append([name, shape, reader.number("I"), reader.number("Q")])
        alignment = next((value for name, _, value in self.keys if name == b"general.alignment"), 32)
        self.alignment = alignment if isinstance(alignment, int) and alignment > 0 else 32
        self.data = data[-(-reader.at // self.alignment) * self.alignment:]

    def bytes(self):
        out = bytearray(self.magic + struct.pack("<I", self.version))
        count = lambda name, real: struct.pack("<Q", self.lies.get(name, real) % 2**64)
        out += count("tensors", len(self.tensors)) + count("keys", len(self.keys))

        def string(text, name=None):
            return count(name, len(text)) + text

        def value(kind, content, name):
            if kind == 8 and isinstance(content, bytes):
                return string(content, name)
            if kind == 9 and isinstance(content, list):
                inner, values = content
                body = b"".join(value(inner, element, None) for element in values)
                return struct.pack("<I", inner) + count(name, len(values)) + body
            if kind in FORMATS and isinstance(content, (int, float)):
                if FORMATS[kind] in "fd":
                    return struct.pack("<d" if kind == 12 else "<f", min(content, 1e38))
                size = struct.calcsize(FORMATS[kind])
                whole = content if isinstance(content, int) else 0
                return (whole % 256**size).to_bytes(size, "little")
            return content if isinstance(content, bytes) else bytes(8)  # A type that lies.

        for i, (name, kind, content) in enumerate(self.keys):
            out += string(name, ("key", i)) + struct.pack("<I", kind)
            out += value(kind, content, ("value", i))
        for i, (name, shape, kind, offset) in enumerate(self.tensors):
            rank = self.lies.get(("rank", i), len(shape))
            out += string(name, ("tensor", i)) + struct.pack("<I", rank % 2**32)
            out += b"".join(struct.pack("<Q", n % 2**64) for n in shape)
            out += struct.pack("<IQ", kind % 2**32, offset % 2**64)
        alignment = self.alignment if isinstance(self.alignment, int) and self.alignment else 32
        out += bytes(-len(out) % min(alignment, 65536))
        return bytes(out) + self.data


def near(n, rng):
    return rng.choice((n + 1, n - 1, n * 2, n // 2, n + 32, n ^ 1, n + 2**32, *SIZES))


def change_key(file, rng):
    if not file.keys:
        return
    i = rng.randrange(len(file.keys))
    entry = file.keys[i]
    name, kind, value = entry
    choice = rng.randrange(8)
    if choice <= 3:
        if isinstance(value, bytes):
            entry[2] = rng.choice((b"", b"\0", b"\xff\xfe", b"a" * 70000, value + b"x", value * 20,
                                   value[:-1], rng.choice(STRINGS).encode("utf-8", "surrogatepass"),
                                   rng.choice(file.keys)[0]))
        elif isinstance(value, list):
            change_array(value, rng)
        elif isinstance(value, float):
            entry[2] = rng.choice((0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), value * 2))
        else:
            entry[2] = near(value, rng)
    elif choice == 4:
        del file.keys[i]
    elif choice == 5:
        file.keys.insert(rng.randrange(len(file.keys) + 1), list(rng.choice(file.keys)))
    elif choice == 6:
        entry[1] = rng.choice((*range(14), 255, 2**31))
    else:
        entry[0] = rng.choice((rng.choice(file.keys)[0], name + b"x", b"", b"a" * 70000, b"\xff"))
    if name == b"general.alignment" and rng.random() < 0.5:
        file.alignment = entry[2]


def change_array(array, rng):
    _, values = array
    choice = rng.randrange(7)
    if choice == 0:
        array[0] = rng.choice((*range(14), 2**31))
    elif choice == 1 and values:
        del values[rng.randrange(len(values)):]
    elif choice == 2 and values:
        values.extend([rng.choice(values)] * rng.choice((1, 100, 20000)))
    elif choice == 3:
        rng.shuffle(values)
    elif choice == 4 and values:
        values[rng.randrange(len(values))] = rng.choice(values)
    elif choice == 5:  # Arrays in arrays.
        depth = rng.choice((2, 10, 1000))
        nested = [4, [1]]
        for _ in range(min(depth, 200)):
            nested = [9, [nested]]
        array[:] = nested
    elif values:
        at = rng.randrange(len(values))
        old = values[at]
        if isinstance(old, bytes):
            values[at] = rng.choice((b"", old * 30, b"\xff", b" ", old + b" " + old, b"a" * 5000))
        elif isinstance(old, float):
            values[at] = rng.choice((float("nan"), float("inf"), -1e30, 0.0))
        elif isinstance(old, int):
            values[at] = near(old, rng)


def change_tensor(file, rng):
    if not file.tensors:
        return
    i = rng.randrange(len(file.tensors))
    entry = file.tensors[i]
    choice = rng.randrange(8)
    if choice == 0 and entry[1]:
        at = rng.randrange(len(entry[1]))
        entry[1][at] = near(entry[1][at], rng)
    elif choice == 1:
        entry[1] = rng.choice(([], [0], [2**32, 2**32], [2**63], [1] * 5, [1] * 5000, [2**62, 4],
                               entry[1][::-1], entry[1] + [1], entry[1] + [2]))
    elif choice == 2:
        entry[2] = rng.choice((*range(40), 255, 2**31, 2**32 - 1))
    elif choice == 3:
        entry[3] = near(entry[3], rng)
    elif choice == 4:
        entry[3] = rng.choice(file.tensors)[3]
    elif choice == 5:
        entry[0] = rng.choice((rng.choice(file.tensors)[0], b"", b"\xff", entry[0] + b"\0",
                               b"blk.99999999999999999999.attn_q.weight", b"blk.-1.attn_q.weight"))
    elif choice == 6:
        del file.tensors[i]
    else:
        file.tensors.insert(i, list(rng.choice(file.tensors)))


@by_bytes_where_too_deep
def mutate(data, rng):
    try:
        file = File(data)
    except (struct.error, KeyError):
        return change_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.randrange(20)
        if kind < 9:
            change_key(file, rng)
        elif kind < 15:
            change_tensor(file, rng)
        elif kind < 17:
            name = rng.choice(("tensors", "keys", ("key", rng.randrange(len(file.keys) + 1)),
                               ("value", rng.randrange(len(file.keys) + 1)),
                               ("tensor", rng.randrange(len(file.tensors) + 1)),
                               ("rank", rng.randrange(len(file.tensors) + 1))))
            file.lies[name] = rng.choice(SIZES)
        elif kind == 17:
            file.version = rng.choice((0, 1, 2, 3, 4, 2**24 * 3))
        elif kind == 18:
            file.data = rng.choice((b"", file.data[:-1], file.data[1:], file.data + bytes(5000),
                                    b"\xff" * len(file.data), b"\0\x7c" * (len(file.data) // 2)))
        else:
            return change_bytes(file.bytes(), rng)
    return file.bytes()
