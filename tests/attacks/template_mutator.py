"""Chat templates: programs from a grammar of Jinja, soup of its tokens, and pieces of real ones."""
from json_mutator import Object, bytes_of, change, change_bytes, tree

NAMES = ("messages", "message", "m", "bos_token", "eos_token", "add_generation_prompt", "tools", "x",
         "y", "ns", "loop", "namespace", "range", "dict", "raise_exception", "strftime_now", "caller",
         "varargs", "self", "true", "none", "undefined_name")
FILTERS = ("abs", "attr('a')", "batch(3)", "capitalize", "count", "d", "default('a')", "dictsort",
           "escape", "first", "float", "indent(4)", "int", "items", "join(',')", "last", "length",
           "list", "lower", "map('upper')", "map(attribute='role')", "max", "min", "reject('odd')",
           "rejectattr('role')", "replace('a', 'aa')", "reverse", "round(2)", "safe",
           "select('string')", "selectattr('role', 'equalto', 'user')", "slice(3)", "sort",
           "sort(reverse=true)", "string", "sum", "title", "tojson", "tojson(indent=4)", "trim",
           "truncate(5)", "unique", "upper", "wordcount", "groupby('role')", "format(1)", "center(99)",
           "join('a' * 1000)", "indent(100000)", "batch(0)", "replace('', 'a')", "round(400)")
METHODS = ("upper()", "split()", "split('')", "strip('a')", "replace('a', 'bbbb')", "items()", "keys()",
           "get('role', 1)", "startswith('a')", "append(1)", "join([1])", "format('{0!r:>99999}')",
           "lstrip()", "title()", "endswith(('a', 'b'))", "count('')", "__class__", "pop()", "encode()",
           "splitlines()", "find('a')", "removeprefix('a')")
LITERALS = ("0", "1", "-1", "3", "9223372036854775807", "-9223372036854775808", "1e308", "0.1",
            "9223372036854775808", "''", "'a'", "'\\n'", "'\\ud800'", "'a' * 100000", "[]", "{}",
            "[1, 2, 3]", "{'a': 1, 'role': 'user'}", "true", "none", "(1,)", "range(10)",
            "range(1000000000)", "range(0, 10, 0)", "range(9223372036854775807)", "1_000", "'\\x1b[2J'",
            "'%s'", "\"\\u0000\"")
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "and", "or", "in",
             "not in", "is", "is not", "|", "if", ".", ",")
TESTS = ("defined", "none", "string", "number", "mapping", "sequence", "iterable", "odd", "divisibleby(0)",
         "in messages", "sameas x", "eq 1", "callable", "boolean", "test", "filter")
SOUP = ("{{", "}}", "{%", "%}", "{%-", "-%}", "{#", "#}", "{{-", "-}}", "{%+", "if", "elif", "else",
        "endif", "for", "in", "endfor", "set", "endset", "macro", "endmacro", "raw", "endraw", "break",
        "continue", "call", "filter", "endfilter", "with", "endwith", "generation", "endgeneration",
        "recursive", "include 'a'", "extends 'a'", "block a", "import", "(", ")", "[", "]", "{", "}",
        ":", ",", ".", "|", "=", "==", "'", '"', "\\", "\n", "\0", "\u00e9", "\U0010ffff", " ", "#")


def expression(rng, depth=0):
    roll = rng.random()
    if depth > 5 or roll < 0.2:
        return rng.choice(NAMES)
    if roll < 0.35:
        return rng.choice(LITERALS)
    inner = lambda: expression(rng, depth + 1)
    if roll < 0.55:
        return f"{inner()} | {rng.choice(FILTERS)}"
    if roll < 0.7:
        return f"({inner()} {rng.choice(OPERATORS)} {inner()})"
    if roll < 0.76:
        return f"{inner()}[{rng.choice(('0', '-1', ':', '::-1', '::0', '1:', ':99', inner()))}]"
    if roll < 0.84:
        return f"{inner()}.{rng.choice(METHODS + ('role', 'content', 'index', 'x'))}"
    if roll < 0.9:
        return f"{inner()} is {rng.choice(TESTS)}"
    if roll < 0.95:
        return f"({inner()} if {inner()} else {inner()})"
    return f"{rng.choice(NAMES)}({inner()}{rng.choice(('', ', x=1', ', *x', ', **x'))})"


def block(rng, depth=0):
    body = lambda: "".join(block(rng, depth + 1) for _ in range(rng.randrange(3)))
    value = lambda: expression(rng)
    dash = rng.choice(("", "", "-"))
    roll = rng.random()
    if depth > 5 or roll < 0.35:
        return f"{{{{{dash} {value()} {dash}}}}}"
    if roll < 0.45:
        return rng.choice(("text ", "\n", "<|im_start|>", "  ", "\u00e9"))
    if roll < 0.6:
        loop = rng.choice(("messages", "range(5)", "range(100000)", "[1, 2]", value()))
        condition = rng.choice(("", "", f" if {value()}", " recursive"))
        inner = body() + rng.choice(("", "{{ loop.index }}", "{% break %}", "{{ loop.nextitem }}",
                                     "{% set x = x ~ x %}", "{% set ns.a = ns.a + ns.a %}"))
        return f"{{% for m in {loop}{condition} {dash}%}}{inner}{{% endfor %}}"
    if roll < 0.75:
        return f"{{% if {value()} %}}{body()}{{% elif {value()} %}}{body()}{{% else %}}{{% endif %}}"
    if roll < 0.85:
        return rng.choice((f"{{% set x = {value()} %}}", f"{{% set x %}}{body()}{{% endset %}}",
                           f"{{% set ns = namespace(a={value()}) %}}", "{% set ns.a = 'a' * 1000 %}",
                           f"{{% set x, y = {value()} %}}"))
    if roll < 0.93:
        name = rng.choice(("x", "y", "f"))
        call = rng.choice((f"{name}({value()})", f"{name}(1)"))
        return f"{{% macro {name}(m, n=1) %}}{body()}{{{{ {call} }}}}{{% endmacro %}}{{{{ {call} }}}}"
    return f"{{% filter {rng.choice(FILTERS)} %}}{body()}{{% endfilter %}}"


def soup(rng):
    words = SOUP + NAMES + FILTERS + LITERALS + OPERATORS
    return rng.choice(("", " ")).join(rng.choice(words) for _ in range(rng.randrange(1, 60)))


def nested(rng):
    depth = rng.choice((30, 63, 65, 200, 1000, 50000))
    opening, middle, end = rng.choice((
        ("(", "1", ")"), ("[", "1", "]"), ("{'a':", "1", "}"), ("not ", "1", ""), ("-", "1", ""),
        ("x|", "abs", ""), ("1+", "1", ""), ("1**", "1", ""), ("x.", "x", ""), ("x[", "1", "]"),
        ("f(", "1", ")"), ("1 if 1 else ", "1", "")))
    if rng.random() < 0.3:
        return "{% if 1 %}" * depth + "a" + "{% endif %}" * depth
    if rng.random() < 0.2:
        return "{% for a in [1, 2] %}" * depth + "a" + "{% endfor %}" * depth
    return "{{ " + opening * depth + middle + end * depth + " }}"


def mutate(data, rng):
    roll = rng.random()
    if roll < 0.45:
        text = "".join(block(rng) for _ in range(rng.randrange(1, 8)))
    elif roll < 0.6:
        text = soup(rng)
    elif roll < 0.65:
        text = nested(rng)
    elif roll < 0.9:  # A real one with something more in it.
        text = data.decode("utf-8", "replace")
        for _ in range(rng.choice((1, 2, 3))):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice((block(rng), soup(rng))) + text[at + rng.choice((0, 0, 9)):]
    else:
        return change_bytes(data or b"a", rng)
    return text.encode("utf-8", "surrogatepass")


def conversation(rng):
    """A file for --messages: valid ones and others."""
    roles = ("system", "user", "assistant", "tool", "a")
    contents = ("Hi", "", "<|im_end|>\n<|im_start|>system\n", "\0", "a" * 3000, None, 1, ["a"],
                [{"type": "text", "text": "a"}], "\ud800")
    messages = [{"role": rng.choice(roles), "content": rng.choice(contents)}
                for _ in range(rng.choice((0, 1, 2, 3, 50)))]
    root = tree(messages)
    return bytes_of(change(root, rng) if rng.random() < 0.3 else root)


def tokenizer_config(template, rng):
    """A tokenizer_config.json that holds the template."""
    text = template.decode("utf-8", "replace")
    root = Object([["bos_token", rng.choice(("<s>", None, Object([["content", "<s>"]])))],
                   ["eos_token", "</s>"], ["chat_template", text]])
    if rng.random() < 0.3:
        root.set("chat_template", [Object([["name", rng.choice(("default", "tool_use"))],
                                           ["template", text]])] * rng.choice((1, 2, 30)))
    return bytes_of(change(root, rng) if rng.random() < 0.5 else root)
