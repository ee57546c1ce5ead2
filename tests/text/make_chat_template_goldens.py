#!/usr/bin/env python3
"""Writes data/chat_templates.json: what transformers makes of the templates in data/chat/ with some
conversations, and of the small templates in data/chat/expressions.txt (one a line, \\N for a line
end).

    make_chat_template_goldens.py            # needs transformers 5 and jinja2
"""

import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as chat

DATA = pathlib.Path(__file__).parent / "data"

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
VALUES = {
    "s": "Hello World", "u": "Grüße, 世界 🌍", "e": "", "n": 7, "m": -3, "f": 2.5,
    "l": [3, 1, 2], "ls": ["b", "A", "c"], "d": {"b": 1, "a": "x", "C": [1, None, True]},
    "t": True, "fa": False, "no": None,
    "nested": [{"name": "x", "v": {"k": 2}}, {"name": "Y", "v": {"k": 1}}, {"name": "z"}],
    "long": "line one\nline two\n\n  indented \r\nlast",
    "q": "it's \"q\" \\ \t\x01 \u00e9 \u200b",
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the \"current\" weather of a town, <b>é</b>",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CALL = {"id": "abcdef012", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 1}}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


CONVERSATIONS = [
    {"messages": [say("user", "Hi")]},
    {"messages": [say("user", " Hi \n")], "add_generation_prompt": True},
    {"messages": [say("system", "Be brief. "), say("user", "Grüße 世界")],
     "add_generation_prompt": True},
    {"messages": [say("user", "a"), say("assistant", " b "), say("user", "c")],
     "add_generation_prompt": True},
    {"messages": [say("system", "s"), say("user", "a"), say("assistant", "b")]},
    {"messages": [say("user", "a"), say("assistant", "<think>\nhm\n</think>\n\nb"),
                  say("user", "c"), say("assistant", "<think>\nwhy\n</think>\n\nd")]},
    {"messages": [say("user", "a"), say("assistant", "b", reasoning="because")],
     "variables": {"enable_thinking": False}, "add_generation_prompt": True},
    {"messages": [say("user", "a"), say("user", "b")]},
    {"messages": [say("assistant", "b")]},
    {"messages": [say("critic", "b")]},
    {"messages": [say("user", "Weather?"), say("assistant", None, tool_calls=[CALL]),
                  say("tool", "22", tool_call_id="abcdef012", name="get_weather"),
                  say("assistant", "22 degrees.")],
     "tools": [WEATHER], "add_generation_prompt": True},
    {"messages": [say("user", "Weather?")], "tools": [WEATHER],
     "variables": {"tools_in_user_message": False, "date_string": "1 Jan 2020"},
     "add_generation_prompt": True},
]


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 13, 5, 9)


def render(template, case):
    """The text that transformers makes, or its error."""
    chat.datetime = FixedTime
    messages = [{k: v for k, v in m.items() if v is not None} for m in case["messages"]]
    try:
        texts, _ = chat.render_jinja_template(
            conversations=[messages], tools=case.get("tools"), chat_template=template,
            add_generation_prompt=case.get("add_generation_prompt", False), **TOKENS,
            **case.get("variables", {}))
        return {"text": texts[0]}
    except Exception as error:  # Whatever Python raises.
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    conversations = []
    for path in sorted((DATA / "chat").glob("*.jinja")):
        for case in CONVERSATIONS:
            result = render(path.read_text(), case)
            conversations.append({"template": path.name, **case, **result})
    expressions = []
    for line in (DATA / "chat" / "expressions.txt").read_text().splitlines():
        template = line.replace("\\N", "\n")
        result = render(template, {"messages": [say("user", "hi")], "variables": VALUES})
        expressions.append({"template": template, **result})
    golden = {"tokens": TOKENS, "values": VALUES, "conversations": conversations,
              "expressions": expressions}
    (DATA / "chat_templates.json").write_text(
        json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
