"""The words of a task as a title, and the place in a log that a trajectory was read from.

The title is the first line of what the user said last before the model began: examples, and notes that an agent's
harness puts in front, come before it. A rollout keeps the messages of its prompt. Of any other prompt the text is all
there is, with the marks of a chat template or, in logs, the speaker's name and a colon.

Limits: chat templates in the style of ChatML, Llama 3, Gemma and Mistral. With another one, the title is the first line
of the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

LONGEST = 120
"""Characters of a title."""
LOOKED_AT = 4000
"""Characters of the user's words among which a title is looked for."""
BEGINS = (
    *("<|im_start|>user\n", "<|start_header_id|>user<|end_header_id|>", "<start_of_turn>user\n", "[INST]"),
    *("\nuser: ", "\nhuman: "),
)
ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "[/INST]")
SPEAKER = ("user: ", "human: ")
NOTE = re.compile(r"<([A-Za-z][\w-]*)(?: [^<>]*)?>.*?</\1>", re.DOTALL)
"""What a harness puts between tags beside the task, such as reminders and the environment."""
TAG = re.compile(r"</?[A-Za-z][^<>]*>")
MARKUP = "#*>-_` \t"


def title_of(prompt: str, info: Mapping[str, Any]) -> str:
    """Return the first line of the task, cut; empty if the prompt has no words."""
    said = _last_user_message(info.get("messages"))
    return _title(_last_user_text(prompt) if said is None else said[:LOOKED_AT])


def source_of(info: Mapping[str, Any]) -> str | None:
    """Return the file and the line that a log's record was read from; None if it isn't known."""
    log = info.get("log")
    source = log.get("source") if isinstance(log, Mapping) else None
    if not isinstance(source, Mapping) or not isinstance(source.get("file"), str):
        return None
    line = source.get("line")
    return f"{source['file']}:{line}" if isinstance(line, int) else str(source["file"])


@lru_cache(64)
def _title(words: str) -> str:
    """The title of these words. Rollouts of a group have the same, one after the other."""
    if "<" in words:
        return _first_line(NOTE.sub("\n", words)) or _first_line(TAG.sub("\n", words))
    return _first_line(words)


def _first_line(text: str) -> str:
    for line in text.splitlines():
        title = " ".join(line.strip(MARKUP).split())
        if any(map(str.isalnum, title)):
            return title if len(title) <= LONGEST else f"{title[: LONGEST - 1].rstrip()}…"
    return ""


def _last_user_message(messages: object) -> str | None:
    for message in reversed(messages) if isinstance(messages, list | tuple) else ():
        if isinstance(message, Mapping) and message.get("role") == "user":
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
            return "\n".join(text for text in texts if isinstance(text, str))
    return None


def _last_user_text(prompt: str) -> str:
    # Plain searches: an index has millions of prompts to look at.
    starts = ((prompt.rfind(mark), len(mark)) for mark in BEGINS)
    start = max((place + length for place, length in starts if place >= 0), default=0)
    words = prompt[start : start + LOOKED_AT]
    if start == 0:
        words = next((words.removeprefix(name) for name in SPEAKER if words.startswith(name)), words)
    return words[: min((place for mark in ENDS if (place := words.find(mark)) >= 0), default=LOOKED_AT)]
