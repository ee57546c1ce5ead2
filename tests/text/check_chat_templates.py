#!/usr/bin/env python3
"""Compares `volta chat --render` with transformers on random expressions and conversations.

    check_chat_templates.py VOLTA [COUNT] [SEED]

Prints each difference, and how often Volta said that it does not support something.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import make_chat_template_goldens as goldens

ATOMS = ["s", "u", "e", "n", "m", "f", "l", "ls", "d", "t", "fa", "no", "nested", "missing", "0",
         "1", "2", "-1", "2.5", "'ab'", "'a b'", "''", "true", "none", "[]", "[1, 2]", "{'k': n}",
         "(1, 'x')", "d.a", "d['C']", "l[0]", "nested[0].name", "s[1:3]", "l[::-1]", "range(3)",
         "messages[0].role", "q", "ls[-1]", "u[2]"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
          "and", "or"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "string", "int", "float",
           "abs", "round", "round(1)", "first", "last", "list", "join", "join('-')", "sort",
           "sort(reverse=true)", "reverse", "unique|list", "min", "max", "sum", "default('z')",
           "default('z', true)", "tojson", "tojson(indent=2)", "replace('l', 'LL')", "items|list",
           "dictsort", "map('string')|list", "map('upper')|join", "select('odd')|list",
           "reject('string')|list", "map(attribute='name')|list", "batch(2)|list", "indent(2)",
           "selectattr('v', 'defined')|list|length", "reverse|list", "select|list", "e", "escape"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean",
         "mapping", "sequence", "iterable", "true", "false", "odd", "even", "lower", "upper",
         "divisibleby(2)", "eq(1)", "in([1, 'ab'])", "gt(1)", "sameas(none)", "callable"]
METHODS = [".strip()", ".upper()", ".lower()", ".split()", ".split(' ', 1)", ".startswith('a')",
           ".endswith('d')", ".replace('a', 'b')", ".find('l')", ".items()|list", ".keys()|list",
           ".values()|list", ".get('a')", ".get('zz', 1)", ".title()", ".rstrip('d')", ".count('l')",
           ".lstrip('H')", ".rsplit('l', 1)", ".capitalize()", ".isupper()", ".splitlines()",
           "[0]", "[-1]", "[1:]", "[:-1]", "[::2]", "[::-1]", ".a", "['a']", ".nosuch"]


def expression(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(ATOMS)
    kind = rng.randrange(9)
    inner = lambda: expression(rng, depth - 1)
    if kind <= 1:
        return f"({inner()} {rng.choice(BINARY)} {inner()})"
    if kind <= 3:
        return f"({inner()})|{rng.choice(FILTERS)}"
    if kind == 4:
        return f"({inner()} is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if kind == 5:
        return f"({inner()}){rng.choice(METHODS)}"
    if kind == 6:
        return f"({inner()} if {inner()} else {inner()})"
    if kind == 7:
        return rng.choice(["not ", "-"]) + f"({inner()})"
    return f"[{inner()}, {inner()}]"


def template(rng):
    value = expression(rng, rng.randint(1, 4))
    kind = rng.randrange(6)
    if kind == 0:
        return f"{{% for x in {value} %}}{{{{ loop.index }}}}{{{{ x }}}};{{% else %}}none{{% endfor %}}"
    if kind == 1:
        return f"{{% set x = {value} %}}\n  {{% if x %}}\n yes {{{{ x }}}}\n  {{%- else %}}no{{% endif %}}\n"
    if kind == 2:
        return f"{{% macro m(a, b={expression(rng, 1)}) %}}<{{{{ a }}}} {{{{ b }}}}>{{% endmacro %}}{{{{ m({value}) }}}}"
    return f"{{{{ {value} }}}}"


class Volta:
    def __init__(self, binary):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name)
        (path / "tokenizer_config.json").write_text(json.dumps(goldens.TOKENS))

    def render(self, source, case):
        path = pathlib.Path(self.folder.name)
        (path / "t.jinja").write_text(source)
        (path / "m.json").write_text(json.dumps(case["messages"]))
        command = [self.binary, "chat", str(path), "--render", "--template", str(path / "t.jinja"),
                   "--messages", str(path / "m.json")]
        for name, value in case.get("variables", {}).items():
            command += ["--var", f"{name}={json.dumps(value)}"]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 0:
            return {"text": done.stdout.decode()}
        if done.returncode not in (2, 3):
            raise SystemExit(f"volta ended with {done.returncode} on {source!r}")
        return {"error": done.stderr.decode().strip()}


def main():
    volta = Volta(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    case = {"messages": [goldens.say("user", "hi")], "variables": goldens.VALUES,
            "add_generation_prompt": True}
    same = unsupported = different = 0
    for _ in range(count):
        source = template(rng)
        theirs, ours = goldens.render(source, case), volta.render(source, case)
        if theirs.get("text") == ours.get("text"):
            same += 1
        elif "not supported" in ours.get("error", "") or "64 bits" in ours.get("error", ""):
            unsupported += 1
        else:
            different += 1
            print(f"{source}\n  transformers: {theirs}\n  volta: {ours}")
    print(f"{same} alike, {unsupported} not supported, {different} different")


if __name__ == "__main__":
    main()
