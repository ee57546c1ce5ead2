"""Runs the commands of docs/guide, README.md and docs/training.md with tiny models, and compares the
lists of the guide with the sources.

    guide_test.py VOLTA SHARED_MODELS

Every ```sh block of a page runs in a shell of its own folder, where the names that the pages use
(SmolLM2-135M, text.txt, ...) are tiny models and short texts. `volta` there is a wrapper that
shortens training and measuring. Without the tiny models of SHARED_MODELS, the one of the source tree
takes the place of each.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
# Commands that build or install: CI runs those in stages of their own.
ELSEWHERE = ("make ", "cmake ")
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# The last value of an option counts, so what is added here wins. A run that goes on has more steps.
WRAPPER = """#!/bin/sh
case " $* " in
  " train "*" --resume "*) exec "$VOLTA" "$@" --steps 4 ;;
  " train "*" --epochs "*) exec "$VOLTA" "$@" --batch 1 ;;
  " train "*) exec "$VOLTA" "$@" --steps 2 --batch 1 --eval-batches 1 ;;
  " tune matmul "*) exec "$VOLTA" "$@" --budget 0.02 --runs 1 ;;
  " bench infer "*) exec "$VOLTA" "$@" --runs 1 --warmup 0 --tokens 2 ;;
  " bench model "*) exec "$VOLTA" "$@" --runs 1 --warmup 0 --prompt 8 --tokens 2 ;;
esac
exec "$VOLTA" "$@"
"""
VOLTA, MODELS = None, None


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def page(name):
    return (GUIDE / name).read_text()


def copy_model(name, folder):
    """Copies a tiny model into a folder that can be written."""
    shared = MODELS / name
    source = shared if shared.is_dir() else ROOT / "tests" / "train" / "data" / "chat_llama"
    shutil.copytree(source, folder, copy_function=shutil.copyfile,
                    ignore=shutil.ignore_patterns("chats.jsonl", "golden.json"))
    folder.chmod(0o755)


class Place:
    """A folder with what the pages take for granted."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="volta-guide-"))
        (self.folder / "bin").mkdir()
        wrapper = self.folder / "bin" / "volta"
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)
        self.work = self.folder / "work"
        self.work.mkdir()
        copy_model("llama-tiny", self.work / "SmolLM2-135M")
        chat = self.work / "Qwen2.5-0.5B-Instruct"
        copy_model("qwen2-tiny", chat)
        (chat / "chat_template.jinja").write_text(TEMPLATE)
        hub = self.folder / "hub" / "models--Qwen--Qwen2.5-0.5B"
        copy_model("qwen2-tiny", hub / "snapshots" / "abc")
        (hub / "refs").mkdir()
        (hub / "refs" / "main").write_text("abc")
        self.add_documents_names()
        words = "The sea is wide and the ships are old and the wind is cold. "
        (self.work / "text.txt").write_text(words * 240)
        (self.work / "more.txt").write_text("rain falls on the sea. " * 60)
        (self.work / "held-out.txt").write_text("the wind is wide. " * 20)
        (self.work / "prompt.txt").write_text("The sea")
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("VOLTA_", "HF_"))}
        self.environment |= {"PATH": f"{self.folder / 'bin'}:{self.environment['PATH']}",
                             "VOLTA": str(VOLTA), "VOLTA_CACHE_DIR": str(self.folder / "cache"),
                             "HF_HUB_CACHE": str(self.folder / "hub"), "VOLTA_NUM_THREADS": "2"}
        self.run("volta convert SmolLM2-135M model.gguf")

    def add_documents_names(self):
        """The names that README.md and docs/training.md use, and the guide does not."""
        for name, model in {"TinyLlama-1.1B-Chat-v1.0": "llama-tiny", "MODEL": "qwen2-tiny",
                            "Qwen2.5-0.5B": "qwen2-tiny"}.items():
            folder = self.work / name
            copy_model(model, folder)
            (folder / "chat_template.jinja").write_text(TEMPLATE)
            # Rotary positions have any number of places, and the real models have more.
            config = json.loads((folder / "config.json").read_text())
            config["max_position_embeddings"] = 512
            (folder / "config.json").write_text(json.dumps(config))
        verse = "ROMEO: what light?\nJULIET: It is the east, and the sun is up.\n"
        (self.work / "tinyshakespeare.txt").write_text(verse * 60)
        # A tenth of my.txt must hold a whole context, and long.txt must fit into one.
        for name, times in (("my.txt", 400), ("long.txt", 20)):
            (self.work / name).write_text("the wind is wide and the sea is cold. " * times)
        chat = {"messages": [{"role": "user", "content": "Is the sea wide?"},
                             {"role": "assistant", "content": "It is."}]}
        for name in ("chats.jsonl", "a.jsonl", "b.jsonl", "val.jsonl"):
            (self.work / name).write_text((json.dumps(chat) + "\n") * 8)
        self.write_ids("ids.safetensors", "I32", 4, [[1, 2, 3, 1]])
        # What the program in Python of train.md writes; it needs packages.
        rows = [[(31 * row + 7 * place) % 256 for place in range(33)] for row in range(64)]
        self.write_ids("rows.safetensors", "I64", 8, rows)

    def write_ids(self, name, dtype, size, rows):
        ids = b"".join(value.to_bytes(size, "little") for row in rows for value in row)
        tensor = {"dtype": dtype, "shape": [len(rows), len(rows[0])], "data_offsets": [0, len(ids)]}
        header = json.dumps({"input_ids": tensor}).encode()
        header += b" " * (-len(header) % 8)
        (self.work / name).write_bytes(len(header).to_bytes(8, "little") + header + ids)

    def run(self, script):
        return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], cwd=self.work,
                              env=self.environment, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=600, check=False)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Commands(unittest.TestCase):
    def check_page(self, name, least):
        self.check_text(name, page(name), least)

    def check_text(self, name, text, least):
        scripts = [block for block in blocks(text, "sh") if not block.startswith(ELSEWHERE)]
        self.assertGreaterEqual(len(scripts), least, f"{name}: too few examples")
        place = Place()
        try:
            for script in scripts:
                with self.subTest(script=script):
                    done = place.run(script)
                    self.assertEqual(done.returncode, 0, f"{name}:\n{script}\n{done.stderr[-2000:]}")
        finally:
            place.remove()

    def test_run(self):
        self.check_page("run.md", 3)

    def test_chat(self):
        self.check_page("chat.md", 3)

    def test_train(self):
        self.check_page("train.md", 3)

    def test_fine_tune(self):
        self.check_page("fine-tune.md", 3)

    def test_quantise(self):
        self.check_page("quantise.md", 3)

    def test_measure(self):
        self.check_page("measure.md", 3)

    def test_troubleshoot(self):
        self.check_page("troubleshoot.md", 3)

    def test_peers(self):
        self.check_page("peers.md", 3)

    def test_the_readme(self):
        self.check_text("README.md", (ROOT / "README.md").read_text(), 2)

    def test_the_reference_of_training(self):
        self.check_text("docs/training.md", (ROOT / "docs" / "training.md").read_text(), 4)

    def test_every_page_is_run_and_listed(self):
        names = {path.name for path in GUIDE.glob("*.md")} - {"README.md"}
        self.assertEqual(names, set(re.findall(r"\]\(([\w-]+\.md)\)", page("README.md"))))
        methods = {name for name in dir(self) if name.startswith("test_")}
        for name in names - {"embed.md"}:
            self.assertIn("test_" + name[:-3].replace("-", "_"), methods)


class Lists(unittest.TestCase):
    def test_the_programs_are_those_that_are_built(self):
        text = page("embed.md")
        names = re.findall(r"^<!-- examples/(\w+\.cc) -->$", text, flags=re.MULTILINE)
        self.assertGreaterEqual(len(names), 3)
        programs = [(ROOT / "examples" / name).read_text() for name in names]
        self.assertEqual(programs, blocks(text, "cpp"))

    def test_the_headers_are_those_of_volta_h(self):
        headers = re.findall(r'^#include "([^"]+)"', (ROOT / "src" / "volta.h").read_text(),
                             flags=re.MULTILINE)
        listed = re.findall(r"^\| `([\w/]+\.h)` \| \S", page("embed.md"), flags=re.MULTILINE)
        self.assertEqual(listed, headers)

    def test_the_messages_are_in_the_sources(self):
        sources = "".join(path.read_text() for folder in ("src", "apps")
                          for path in sorted((ROOT / folder).rglob("*.cc")))
        # Literals that follow each other are one text; placeholders stand for what differs.
        sources = re.sub(r'"\s*\n\s*"', "", sources)
        messages = re.findall(r"^\| `([^`]+)` \|", page("troubleshoot.md"), flags=re.MULTILINE)
        self.assertGreaterEqual(len(messages), 12)
        for message in messages:
            pattern = re.escape(message)
            pattern = re.sub(r"<[A-Z]+>", r"\\{[^}]*\\}", pattern)
            self.assertTrue(re.search(pattern, sources), f"no source has the message: {message}")

    def test_the_manual_has_the_exit_codes_and_the_environment(self):
        text = (ROOT / "docs" / "cli.md").read_text()
        codes = re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)
        table = text.partition("## Environment")[2]
        variables = re.findall(r"`([A-Z_]+)`", "".join(
            line.split("|")[1] for line in table.splitlines() if line.startswith("| `")))
        self.assertGreaterEqual(len(codes), 9)
        self.assertGreaterEqual(len(variables), 9)
        page = subprocess.run([VOLTA, "man"], capture_output=True, text=True, check=True).stdout
        status = page.partition("EXIT STATUS")[2]
        self.assertEqual([c for c in codes if not re.search(rf"\b{c}\b", status)], [])
        self.assertEqual([v for v in variables if v not in status.replace("\\-", "-")], [])

    def test_every_option_is_in_the_reference(self):
        text = "".join((ROOT / "docs" / name).read_text()
                       for name in ("cli.md", "training.md", "matmul_tuning.md", "performance.md"))
        known = set(re.findall(r"--[a-z][a-z0-9-]*", text))
        waiting, missing = [()], []
        while waiting:
            words = waiting.pop()
            done = subprocess.run([VOLTA, *words, "--help"], capture_output=True, text=True,
                                  check=True)
            options, _, commands = done.stdout.partition("\nSubcommands:")
            waiting += [(*words, name) for name in re.findall(r"^  ([a-z][\w-]*)", commands,
                                                               flags=re.MULTILINE)]
            for line in options.splitlines():
                if not line.startswith("  -"):
                    continue
                names = re.findall(r"--[a-z][a-z0-9-]*", line.strip().split("  ")[0])
                if names and known.isdisjoint(names):
                    missing.append(f"volta {' '.join(words)}: {', '.join(names)}")
        self.assertEqual(missing, [])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    VOLTA, MODELS = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
