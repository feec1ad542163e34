"""Takes the thinking out of a model's text: what is in it is no answer, whatever it holds.

| written as | by |
| --- | --- |
| `<think>`, `<thinking>`, `<thought>`, `<reasoning>` … `</think>` … | DeepSeek-R1, Qwen3 and most others |
| `<seed:think>` … `</seed:think>` | Seed-OSS |
| `[THINK]` … `[/THINK]` | Magistral |
| `<|begin_of_thought|>` … `<|end_of_thought|>` | Sky-T1, OpenThinker |
| `<|START_THINKING|>` … `<|END_THINKING|>` | Command A Reasoning |
| `◁think▷` … `◁/think▷` | Kimi |
| `<|channel|>analysis<|message|>` … `<|end|>` | gpt-oss (harmony); of its channels only `final` is an answer |

A marker that closes what the text didn't open ends thinking that the chat template opened in the prompt: all before it
goes. Markers don't nest. What a tool said, in `<tool_response>` … `</tool_response>`, is not the model's word either.

Limits: thinking without markers can't be told from an answer. A model that thinks in markers of its own making should
be served with a parser that takes them off, as vLLM's and SGLang's reasoning parsers do.
"""

from __future__ import annotations

import re

_NAMES = "think|thinking|thought|thoughts|reasoning|seed:think"
_MARKERS = re.compile(
    rf"<(?P<close>/)?(?P<name>{_NAMES})>"
    r"|\[(?P<close2>/)?(?P<name2>think)\]"
    r"|◁(?P<close3>/)?(?P<name3>think)▷"
    r"|<\|(?:(?P<open4>begin_of|start)|(?P<close4>end_of|end))_(?P<name4>thought|thinking)\|>",
    re.IGNORECASE,
)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)")
_CHANNEL_END = re.compile(r"<\|(?:end|return|call|start)\|>")
_MESSAGE = "<|message|>"
_TOOL_SAYS, _TOOL_SAID = "<tool_response>", "</tool_response>"


def without_thinking(text: str) -> str | None:
    """Return what a model said outside of its thinking; None if the text ended inside it.

    Examples:
        >>> from cleaner_rl.tasks.grading import without_thinking
        >>> without_thinking("<think>Is it 7? No.</think>It is 8.")
        'It is 8.'
        >>> print(without_thinking("<think>Is it 7? Let me"))
        None
    """
    outside = _final_channel(text) if "<|channel|>" in text else text
    return None if outside is None else _outside(_own_words(outside))


def _own_words(text: str) -> str:
    """A text without what a tool said. A response that never ends is the model's own writing, and stays."""
    if _TOOL_SAYS not in text:
        return text
    *parts, rest = text.split(_TOOL_SAID)
    return " ".join([*(part.partition(_TOOL_SAYS)[0] for part in parts), rest])


def _final_channel(text: str) -> str | None:
    """The messages of harmony's `final` channel; None if the text ended in another one, or before a message began."""
    kept: list[str] = []
    for part in re.split(r"(?=<\|channel\|>)", text):
        if not (channel := _CHANNEL.match(part)):
            continue
        _, begun, message = part.partition(_MESSAGE)
        if channel[1].lower() == "final" and begun:
            kept.append(_CHANNEL_END.split(message, maxsplit=1)[0])
    return "\n".join(kept) if kept and channel and channel[1].lower() == "final" else None


def _outside(text: str) -> str | None:
    kept: list[str] = []
    inside: tuple[str, str] | None = None
    end = 0
    for marker in _MARKERS.finditer(text):
        kind, closes = _kind(marker)
        if inside is None and closes:
            kept.clear()
            end = marker.end()
        elif inside is None:
            kept.append(text[end : marker.start()])
            inside = kind
        elif closes and kind == inside:
            inside = None
            end = marker.end()
    if inside is not None:
        return None
    return "".join([*kept, text[end:]])


def _kind(marker: re.Match[str]) -> tuple[tuple[str, str], bool]:
    """Which marker it is, and whether it closes."""
    found = marker.groupdict()
    closes = any(found[group] for group in ("close", "close2", "close3", "close4"))
    name = next(found[group] for group in ("name", "name2", "name3", "name4") if found[group])
    return (marker[0][0], name.lower()), closes
