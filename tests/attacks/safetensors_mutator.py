"""Safetensors files: a length, a JSON header and the data."""
import struct

from json_mutator import (Object, Raw, by_bytes_where_too_deep, bytes_of, change, change_bytes,
                          is_array, near, parse)

SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1,
         "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F4": 1, "": 1, "f32": 4}


def split(data):
    (length,) = struct.unpack_from("<Q", data)
    return parse(data[8:8 + length].decode()), data[8 + length:]


def join(header, body, length=None):
    text = header if isinstance(header, bytes) else bytes_of(header)
    return struct.pack("<Q", (len(text) if length is None else length) % 2**64) + text + body


def write(tensors, metadata=None):
    """A file of {name: (dtype, shape, bytes)}."""
    header, body = Object(), b""
    if metadata:
        header.append(["__metadata__", Object([key, value] for key, value in metadata.items())])
    for name, (dtype, shape, data) in tensors.items():
        offsets = [Raw(len(body)), Raw(len(body) + len(data))]
        header.append([name, Object([["dtype", dtype], ["shape", [Raw(n) for n in shape]],
                                     ["data_offsets", offsets]])])
        body += data
    return join(header, body)


def list_of(entry, key):
    """The list under a key; nothing where an earlier change has put something else."""
    found = entry.get(key) if isinstance(entry, Object) else None
    return found if is_array(found) else []


def change_tensor(header, rng):
    tensors = [member for member in header if isinstance(member[1], Object)]
    if not tensors:
        return
    member = rng.choice(tensors)
    entry = member[1]
    shape, offsets = list_of(entry, "shape"), list_of(entry, "data_offsets")
    kind = rng.randrange(9)
    if kind == 0 and shape:
        shape[rng.randrange(len(shape))] = near(str(rng.choice(shape)), rng)
    elif kind == 1:
        entry.set("shape", rng.choice((
            [Raw(2**32), Raw(2**32)], [Raw(2**63 - 1)], [Raw("0")], [], [Raw("1")] * 7,
            [Raw("1")] * 100000, [Raw(2**62), Raw("4")], [Raw("0"), Raw(2**63 - 1)],
            [Raw("3037000500")] * 2, [Raw("-1"), Raw("-1")])))
    elif kind == 2 and offsets:
        at = rng.randrange(len(offsets))
        offsets[at] = near(str(offsets[at]), rng)
    elif kind == 3 and offsets:
        offsets.reverse()
    elif kind == 4 and offsets:  # Over another tensor.
        entry.set("data_offsets", list(list_of(rng.choice(tensors)[1], "data_offsets")))
    elif kind == 5:
        entry.set("dtype", rng.choice(sorted(SIZES)))
    elif kind == 6:
        member[0] = str(rng.choice(tensors)[0]) + rng.choice(("", "", ".1", "\0", "\x1b[2J"))
    elif kind == 7:
        header.remove(member)
    elif shape:  # The same number of elements in another shape.
        rng.choice((shape.reverse, lambda: shape.append(Raw("1")),
                    lambda: shape.insert(0, Raw("1"))))()


def change_metadata(header, rng):
    metadata = header.get("__metadata__")
    if not isinstance(metadata, Object) or rng.random() < 0.3:
        header.insert(0, ["__metadata__", Object([["volta.quant." + rng.choice(
            [key for key, _ in header] or ["a"]), '{"format":"q8","shape":[64,64],"block":32}']])])
        return
    texts = [member for member in metadata if str(member[1]).startswith("{")]
    if texts and rng.random() < 0.7:  # Texts that are JSON themselves (volta.quant).
        member = rng.choice(texts)
        try:
            member[1] = bytes_of(change(parse(member[1]), rng)).decode("utf-8", "replace")
        except (ValueError, TypeError, RecursionError):
            member[1] = "{"
        return
    change(metadata, rng)


def change_data(body, rng):
    body = bytearray(body)
    if not body:
        return bytes(8)
    at = rng.randrange(len(body))
    kind = rng.randrange(4)
    if kind == 0:  # NaN, infinity, the largest.
        at -= at % 4
        body[at:at + 4] = rng.choice((b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f"))
    elif kind == 1:
        del body[at:]
    elif kind == 2:
        body += bytes(rng.choice((1, 4, 4096)))
    else:
        body[at:at + 8] = b"\xff" * 8
    return bytes(body)


@by_bytes_where_too_deep
def mutate(data, rng):
    try:
        header, body = split(data)
    except (ValueError, struct.error):
        return change_bytes(data, rng)
    if not isinstance(header, Object):  # By an earlier mutation.
        return change_bytes(data, rng)
    length = None
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.randrange(20)
        if kind < 9:
            change_tensor(header, rng)
        elif kind < 13 and isinstance(header, Object):
            header = change(header, rng)
            if not (isinstance(header, Object) and all(isinstance(m, list) for m in header)):
                return join(header, body)
        elif kind < 15:
            change_metadata(header, rng)
        elif kind < 17:
            body = change_data(body, rng)
        elif kind == 17:
            size = len(bytes_of(header))
            length = rng.choice((size + 1, size - 1, 0, size + len(body), size + len(body) + 1,
                                 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8, 100 << 20))
        elif kind == 18:
            text = bytes_of(header)
            return join(rng.choice((text + b" " * rng.choice((1, 7, 2**20)), b" " + text,
                                    text[:-1], b"", b"{}", b"[]", b"null")), body, length)
        else:
            return change_bytes(join(header, body, length), rng)
    return join(header, body, length)


