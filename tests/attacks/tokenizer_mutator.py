"""tokenizer.json: stages repeated, shuffled, nested and invented, regular expressions from a
grammar, vocabularies that contradict themselves; and texts to go with them."""
import json_mutator
from json_mutator import (Object, Raw, by_bytes_where_too_deep, change, change_bytes, is_array, parse,
                          text_of, tree)

CHARACTERS = ("a", "b", "A", "1", " ", "  ", "\n", "\t", "'s", ".", "!", "\u00e9", "\u0130", "\u00df",
              "\u4e2d", "\u0301", "\u200d", "\u2581", "\u0120", "\ufffd", "\U0001f600", "\U00100000",
              "\U0010ffff", "\x1c", "\0", "\u2028", "\u00ad", "\uac00", "\u1e9b\u0323", "</s>", "<s>",
              "<|im_end|>", "##a", "the ", "P@@")
CLASSES = (r"\p{L}", r"\p{N}", r"\p{Lu}", r"\P{L}", r"\s", r"\S", r"\d", r"\w", r"\W", ".", r"[\s\S]",
           r"[a-z]", r"[^\p{L}\p{N}]", r"[[:alpha:]]", r"[^]a]", r"[]a]", r"[\]a-]", r"[a-\d]", r"\X",
           r"\R", r"\h", r"\v", r"\C", r"\p{Han}", r"\p{Script=Greek}", r"[\p{L}--[a]]", r"[a&&b]",
           r"[\c\]", r"\N{U+41}", r"\x{10ffff}", r"\x{110000}", r"\x{d800}", r"\o{101}", r"\101",
           r"\cA", r"\c\\", r"\e", r"\Q.*\E", r"\Qa", r"\E", r"\K", r"\G", r"\A", r"\z", r"\Z", "^",
           "$", r"\b", r"\B", r"(?i)", r"(?x) # a", r"(?-i)", r"(*UTF)", r"(*ACCEPT)", r"(*SKIP)",
           r"(*COMMIT)", r"(?#a)", r"\1", r"\g{-1}", r"(?R)", r"(?1)", r"(?C1)", r"(?&a)", r"\k<a>")


def pattern(rng, depth=0):
    roll = rng.random()
    if depth > 4 or roll < 0.3:
        word = rng.choice(CLASSES if rng.random() < 0.6 else CHARACTERS)
        return word if rng.random() < 0.8 else "\\" + word[:1]
    inner = lambda: pattern(rng, depth + 1)
    if roll < 0.5:
        return inner() + inner()
    if roll < 0.65:
        return inner() + "|" + inner()
    if roll < 0.85:
        opening = rng.choice(("(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?<a>", "(?|",
                              "(?=(?:(?:a|aa)+c|))", "["))
        return opening + inner() + rng.choice((")", ")", ")", "]", ""))
    return inner() + rng.choice(("*", "+", "?", "{2}", "{1,}", "{,3}", "{0,65535}", "{1000}", "*?",
                                 "++", "{99999}", "+*", "{1,3}+"))


def some_text(rng, most=300):
    roll = rng.random()
    if roll < 0.15:
        return rng.choice(CHARACTERS) * rng.choice((1, 30, 1000, 20000))
    if roll < 0.25:
        return "".join(rng.choice("ab") for _ in range(rng.choice((10, 1000, 20000))))
    if roll < 0.3:
        return ""
    return "".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(most)))


def word(rng):
    return rng.choice(("", "a", "aa", " ", "\u2581", "\u0120", "aaaaaaaaaa", rng.choice(CHARACTERS),
                       rng.choice(CHARACTERS) * 30))


def replacement(rng):
    kind = "Regex" if rng.random() < 0.6 else "String"
    what = pattern(rng) if kind == "Regex" else word(rng)
    return {"type": "Replace", "pattern": {kind: what}, "content": word(rng)}


def normalizer(rng):
    return rng.choice((
        lambda: {"type": rng.choice(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
                                     "ByteLevel"))},
        lambda: {"type": "Strip", "strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5},
        lambda: replacement(rng),
        lambda: {"type": "Prepend", "prepend": word(rng)},
        lambda: {"type": "BertNormalizer", "clean_text": rng.random() < 0.5,
                 "handle_chinese_chars": rng.random() < 0.5, "strip_accents": None,
                 "lowercase": rng.random() < 0.5}))()


def pre_tokenizer(rng):
    behavior = rng.choice(("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                           "Contiguous"))
    return rng.choice((
        lambda: {"type": "ByteLevel", "add_prefix_space": rng.random() < 0.5,
                 "trim_offsets": True, "use_regex": rng.random() < 0.5},
        lambda: {"type": "Split", "pattern": {rng.choice(("Regex", "Regex", "String")): pattern(rng)},
                 "behavior": behavior, "invert": rng.random() < 0.5},
        lambda: {"type": "Metaspace", "replacement": rng.choice(("\u2581", "_", "a", "\U00100000")),
                 "prepend_scheme": rng.choice(("always", "first", "never")),
                 "split": rng.random() < 0.5},
        lambda: {"type": rng.choice(("Whitespace", "WhitespaceSplit", "BertPreTokenizer"))},
        lambda: {"type": "Punctuation", "behavior": behavior},
        lambda: {"type": "Digits", "individual_digits": rng.random() < 0.5},
        lambda: {"type": "CharDelimiterSplit", "delimiter": rng.choice(CHARACTERS)},
        lambda: {"type": "FixedLength", "length": rng.choice((0, 1, 2, 5, 2**31, 2**63 - 1))}))()


def processor(rng, tokens):
    piece = lambda: rng.choice(({"Sequence": {"id": "A", "type_id": 0}},
                                {"Sequence": {"id": "A", "type_id": 0}},
                                {"SpecialToken": {"id": rng.choice(tokens), "type_id": 0}}))
    used = {token: {"id": token, "ids": [i], "tokens": [token]} for i, token in enumerate(tokens)}
    pair = [rng.choice(tokens), rng.randrange(3)]
    return rng.choice((
        lambda: {"type": "TemplateProcessing", "single": [piece() for _ in range(rng.choice(
            (1, 2, 3, 8, 64, 1000)))], "pair": [], "special_tokens": used},
        lambda: {"type": "BertProcessing", "sep": pair, "cls": pair},
        lambda: {"type": "RobertaProcessing", "sep": pair, "cls": pair, "trim_offsets": True,
                 "add_prefix_space": rng.random() < 0.5},
        lambda: {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}))()


def decoder(rng):
    return rng.choice((
        lambda: {"type": rng.choice(("ByteLevel", "ByteFallback", "Fuse"))},
        lambda: {"type": "Strip", "content": rng.choice(CHARACTERS),
                 "start": rng.choice((0, 1, 5, 2**31, 2**63 - 1)), "stop": rng.choice((0, 1, 2**40))},
        lambda: replacement(rng),
        lambda: {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always",
                 "split": True},
        lambda: {"type": "WordPiece", "prefix": word(rng), "cleanup": rng.random() < 0.5},
        lambda: {"type": "BPEDecoder", "suffix": word(rng)}))()


STAGES = {"normalizer": ("Sequence", "normalizers", normalizer),
          "pre_tokenizer": ("Sequence", "pretokenizers", pre_tokenizer),
          "post_processor": ("Sequence", "processors", processor),
          "decoder": ("Sequence", "decoders", decoder)}


def change_stage(root, rng):
    key = rng.choice(sorted(STAGES))
    kind, members, make = STAGES[key]
    if key == "post_processor":
        tokens = token_names(root)[:5] or ["a"]
        stage = lambda: tree(make(rng, tokens))
    else:
        stage = lambda: tree(make(rng))
    now = root.get(key)
    steps = list(now.get(members)) if (
        isinstance(now, Object) and is_array(now.get(members))) else [now] if now else []
    choice = rng.randrange(6)
    if choice <= 1:
        steps.insert(rng.randrange(len(steps) + 1), stage())
    elif choice == 2:
        steps = steps or [stage()]
        most = 1 + 200000 // len(text_of(steps))
        steps = steps * min(most, rng.choice((2, 3, 10, 40, 500)))
    elif choice == 3:
        steps = [stage() for _ in range(rng.choice((1, 2, 3, 5)))]
    elif choice == 4:
        rng.shuffle(steps)
        steps.append(stage())
    else:  # Sequences in sequences.
        depth = rng.choice((1, 2, 20, 300, 5000))
        opening = '{"type":"%s","%s":[' % (kind, members)
        steps = [Raw(opening * depth + text_of(steps)[1:-1] + "]}" * depth)]
    if len(steps) == 1 and rng.random() < 0.5:
        root.set(key, steps[0])
    else:
        root.set(key, Object([["type", kind], [members, steps]]))


def token_names(root):
    model = root.get("model")
    vocab = model.get("vocab") if isinstance(model, Object) else None
    if isinstance(vocab, Object):
        return [key for key, _ in vocab]
    if is_array(vocab):
        return [str(entry[0]) for entry in vocab if is_array(entry) and entry]
    return []


def change_vocabulary(root, rng):
    model = root.get("model")
    names = token_names(root)
    if not isinstance(model, Object) or not names:
        return
    vocab, merges = model.get("vocab"), model.get("merges")
    choice = rng.randrange(8)
    if choice == 0 and is_array(merges):
        merges.insert(0, rng.choice((" ".join(rng.choices(names, k=2)), "a", "", " ", "a b c",
                                     list(rng.choices(names, k=2)), [], ["", ""])))
    elif choice == 1 and is_array(merges):
        rng.shuffle(merges)
    elif choice == 2:
        at = rng.randrange(len(vocab))
        number = rng.choice(json_mutator.NUMBERS)
        if isinstance(vocab, Object) or is_array(vocab[at]):
            vocab[at][:] = vocab[at][:1] + [number]
    elif choice == 3:
        name = rng.choice((rng.choice(names), "", "a" * 5000, rng.choice(CHARACTERS)))
        vocab.append([name, Raw(rng.choice((0, len(names), len(names) + 1, 2**31 - 1)))])
    elif choice == 4:
        del vocab[rng.randrange(len(vocab)):]
    elif choice == 5:
        model.set(rng.choice(("unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
                  rng.choice((None, "", "zz", *rng.choices(names, k=2))))
    elif choice == 6:
        model.set(rng.choice(("byte_fallback", "ignore_merges", "fuse_unk")), rng.random() < 0.5)
    else:
        model.set("type", rng.choice(("BPE", "Unigram", "WordPiece", "WordLevel", "bpe")))


def change_added_tokens(root, rng):
    added = root.get("added_tokens")
    if not is_array(added):
        added = []
        root.set("added_tokens", added)
    names = token_names(root) or ["a"]
    for _ in range(rng.choice((1, 1, 2, 200))):
        flags = {name: rng.random() < 0.4 for name in
                 ("single_word", "lstrip", "rstrip", "normalized", "special")}
        content = rng.choice((rng.choice(names), rng.choice(CHARACTERS), word(rng),
                              rng.choice(CHARACTERS) + rng.choice(CHARACTERS)))
        number = rng.choice((0, len(names), len(names) + 1, len(names) + 300, 2**31 - 1, -1))
        added.append(tree({"id": number, "content": content, **flags}))


@by_bytes_where_too_deep
def mutate(data, rng):
    try:
        root = parse(data.decode())
    except ValueError:
        return change_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        roll = rng.random()
        if not isinstance(root, Object):
            break
        if roll < 0.5:
            change_stage(root, rng)
        elif roll < 0.65:
            change_added_tokens(root, rng)
        elif roll < 0.8:
            change_vocabulary(root, rng)
        elif roll < 0.97:
            root = change(root, rng)
        else:
            return change_bytes(text_of(root).encode("utf-8", "surrogatepass"), rng)
    return text_of(root).encode("utf-8", "surrogatepass")
