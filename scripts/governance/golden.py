"""What users and their programs rely on: every help page, and the keys of every JSON answer.

The files of tests/governance/golden/ are the promise; `scripts/governance/golden` compares a program
with them, or writes them anew.
"""
import difflib
import json
import os
import pathlib
import re
import subprocess
import tempfile

from tree import Finding

RULES = {
    "golden.help": "The help page of every command is the one in tests/governance/golden/help.",
    "golden.json": "The keys of every command's JSON are those in tests/governance/golden/json.txt.",
}
FOLDER = "tests/governance/golden"


def _run(program, *words, folder=None):
    # Neither this machine's settings nor its tuning table belong to the promise.
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("VOLTA_")}
    environment |= {"VOLTA_TUNING": "off", "VOLTA_CACHE_DIR": str(folder or "/nonexistent"),
                    "NO_COLOR": "1"}
    result = subprocess.run([program, *words], capture_output=True, text=True, cwd=folder,
                            stdin=subprocess.DEVNULL, env=environment, timeout=120, check=False)
    if result.returncode:
        raise RuntimeError(f"volta {' '.join(words)}: exit code {result.returncode}: "
                           f"{result.stderr.strip()[-400:]}")
    return result.stdout


def help_of(program):
    """{command: help page} of the program, of its commands and of theirs."""
    pages, waiting = {}, [()]
    while waiting:
        words = waiting.pop()
        page = _run(program, *words, "--help")
        # What the machine or the terminal decides has no place in a promise.
        pages[" ".join(words)] = "\n".join(line.rstrip() for line in page.splitlines()).strip() + "\n"
        listed = re.split(r"^Subcommands:$", page, flags=re.MULTILINE)[1:]
        waiting += [(*words, name) for part in listed
                    for name in re.findall(r"^  ([a-z][\w-]*)", part, flags=re.MULTILINE)]
    return pages


def file_of(command):
    return f"{FOLDER}/help/{'-'.join(['volta', *command.split()])}.txt"


def key_paths(value, prefix=""):
    """The paths to every scalar of a JSON value, with its type: `lengths[].prompt number`."""
    if isinstance(value, dict):
        found = set() if value else {f"{prefix} object"}
        for key, item in value.items():
            key = re.sub(r"[A-Z]\w*", "OP", key)  # The names of ops are data, not keys.
            found |= key_paths(item, f"{prefix}.{key}" if prefix else key)
        return found
    if isinstance(value, list):
        return set().union({f"{prefix}[] list"} if not value else set(),
                           *(key_paths(item, prefix + "[]") for item in value))
    kinds = {str: "text", bool: "boolean", type(None): "null"}
    return {f"{prefix} {kinds.get(type(value), 'number')}"}


# The commands whose answers are kept, run in this order in one folder: later ones need the model
# that the first one trains.
COMMANDS = [
    "train --data text.txt --out run --steps 4 --dim 32 --layers 1 --heads 2 --context 16 --batch 2",
    "version",
    "devices",
    "generate run -p ab -n 4",
    "generate run -p ab -n 4 --logprobs 2",
    "eval run --data text.txt",
    "inspect run",
    "inspect run --tensors",
    "verify run",
    "tokenize run ab",
    "graph run",
    "logits run --ids ids.safetensors --out logits.safetensors",
    "quantize run --weights q8 --out q8",
    "train --init run --data text.txt --out lora --lora-rank 2 --steps 4 --batch 2",
    "merge run --adapter lora --out merged",
    "chat run --template template.jinja --messages messages.json --render",
    "chat run --template template.jinja -p ab -n 4",
    "bench infer run --runs 1 --warmup 0 --tokens 2",
    "bench model run --runs 1 --warmup 0 --prompt 4 --tokens 4",
    "bench gaps run --runs 1 --requests 2 --prompt 9",
    "bench history history.jsonl",
    "tune matmul --dim 64 --runs 1 --budget 0.05",
    "tune show",
]
# Not here: convert, tokenizer train and the other commands of tune write text only; demo runs for a
# minute, and its JSON is that of bench infer.


def _ids_file(path):
    """A safetensors file of a few token ids, which `logits` reads."""
    header = b'{"input_ids":{"dtype":"I32","shape":[1,4],"data_offsets":[0,16]}}'
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header +
                     b"".join(value.to_bytes(4, "little") for value in (1, 2, 3, 1)))


def json_of(program):
    """The text of json.txt: each command and the keys of its answer."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "text.txt").write_text("to be or not to be, that is the question\n" * 40)
        pathlib.Path(folder, "history.jsonl").write_text(json.dumps(
            {"date": "2026-01-02T03:04:05Z", "commit": "0", "machine": "cpu", "isa": "avx2",
             "figures": {"train": 1.5}}) + "\n")
        pathlib.Path(folder, "template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        pathlib.Path(folder, "messages.json").write_text('[{"role": "user", "content": "ab"}]')
        _ids_file(pathlib.Path(folder, "ids.safetensors"))
        for command in COMMANDS:
            words = command.split()
            answer = _run(program, *words, "--output", "json", "--threads", "1", folder=folder)
            found = set()
            for document in _documents(answer):
                found |= key_paths(document)
            if command == "devices":  # What is absent on a machine is null there.
                found = {path.split()[0] for path in found}
            lines += [f"volta {command}", *("  " + path for path in sorted(found)), ""]
    return "\n".join(lines)


def _documents(text):
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        yield value


def files_of(program):
    """{path: text} of every golden file, as this program would have them."""
    files = {file_of(command): page for command, page in help_of(program).items()}
    files[f"{FOLDER}/json.txt"] = json_of(program)
    return files


def compare(wanted, found):
    """The findings between the files of the tree and those of a program."""
    for path in sorted(set(wanted) | set(found)):
        rule = "golden.json" if path.endswith("json.txt") else "golden.help"
        if path not in wanted:
            yield Finding(path, rule, "the program has this page, and the tree does not")
        elif path not in found:
            yield Finding(path, rule, "the tree has this page, and the program does not")
        else:
            yield from _differences(path, rule, wanted[path], found[path])


def _with_commands(path, text):
    """(command, line) of each line. In json.txt the lines of keys stand below that of their command;
    many commands have the same key, so a line alone does not say whose it is."""
    command = ""
    for line in text.splitlines():
        if path.endswith("json.txt") and line and not line.startswith(" "):
            command = line
        yield command, line


def _told(item):
    command, line = item
    return f"`{line.strip()}`" + (f" for `{command}`" if command and line != command else "")


def _differences(path, rule, wanted, found):
    old, new = list(_with_commands(path, wanted)), list(_with_commands(path, found))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for _, first, last, first_new, last_new in (code for code in matcher.get_opcodes()
                                                if code[0] != "equal"):
        for number in range(first, last):
            yield Finding(f"{path}:{number + 1}", rule, f"the program no longer says {_told(old[number])}")
        for item in new[first_new:last_new]:
            yield Finding(path, rule, f"the program says {_told(item)}, which is not here")
