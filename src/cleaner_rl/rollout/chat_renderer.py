"""A model's own chat template as ids: the first prompt, and the glue between a turn and the next.

The template is rendered once, with marks where the model's and the tools' words go, and cut at the marks. What lies
between them is the glue. From then on a history only grows: sampled ids stay as they were sampled, and the glue is put
behind them. Nothing is rendered twice, so nothing can drift.

Tool output is plain text, whatever it says. Text that looks like an added token of the tokenizer (`<|im_end|>`, but
also `</tool_response>` where that is one) is split before it is encoded: no program can end its turn or open another.

At the start the shapes that a rollout can have are rendered, and a template that doesn't fit is refused with what to
change: one whose glue depends on what the model wrote, one that changes the tools' words in a way that isn't known,
one that ends a turn without an end-of-turn token. Where a template has a form of its own for calls, they are rendered
as structured calls, as a server renders them; the form must then be the prompt's call format (`for_prompt`).

The template is the tokenizer's. `family` names one of the package `renderers` instead, for a model without a template.

Limits: byte-level vocabularies only (Qwen, Llama 3, GLM, gpt-oss, SmolLM, DeepSeek, GPT-2). The words of a task are
trusted: they are rendered as the template does it, control tokens included. Where the frame around results is plain
text in the template's own form (Qwen2.5's `<tool_response>`), a program can print text that looks like it; it stays one
turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from os.path import commonprefix
from pathlib import Path

from cleaner_rl.rollout.templates import ChatError, Tokenizer, family_template, own_template
from cleaner_rl.tasks import Message, Prompt
from cleaner_rl.tools import CALL_FORMATS, ToolSet, call_format
from cleaner_rl.trajectory import Ids, TokenSpan, Vocabulary, token_span

PROBE, RESULT = "cleaner7probe", "cleaner7result"
"""What stands for words while the template is rendered: no template looks for it, and none changes it."""
ASKED = ({"role": "user", "content": "Why?"},)
INSTRUCTED = ({"role": "system", "content": "Be brief."}, *ASKED)
WRITTEN = (
    PROBE,
    f"<think>\nHm.\n</think>\n\n{PROBE}",
    f"First this.\n\n<tool_call>\n{PROBE}\n</tool_call>",
    f"```python\nprint(1)\n```\n{PROBE}",
)
"""What a model may have written; the glue behind it must be the same."""
PROGRAM = f"print('a', \"b\")\n# <b> é \\ {PROBE}"
"""An argument that every call format has to carry."""
ENDS = frozenset(
    [
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|call|>",
        "<|return|>",
        "<|observation|>",
        "<|user|>",
        "<end_of_turn>",
        "<turn|>",
    ]
)
"""End-of-turn tokens of models that have several, or another than the tokenizer's end-of-sequence token."""
SHOWN: tuple[Callable[[str], str], ...] = (str, str.strip, lambda text: json.dumps(text, ensure_ascii=False)[1:-1])
"""How templates show the words of a tool: as they are, trimmed (Qwen3.5), or as in a JSON string (Llama 3, gpt-oss),
whose quotes belong to the frame.
"""
FIRST_ROUND_ONLY = "<｜tool▁outputs▁begin｜>"
"""DeepSeek-V3's template opens its frame around results in the first round alone; here every round has the frame."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a turn with calls is given to the template."""

    structured: bool
    """As calls, or else as the words that the model wrote."""
    most: int = 3
    """Results that are tried."""


class ChatRenderer:
    """Renders chats with the template of one model, for one set of tools."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: ToolSet,
        *,
        in_template: bool = True,
        options: Mapping[str, object] | None = None,
        family: str = "",
    ) -> None:
        """`options` go to the template, such as `{"enable_thinking": False}`. Raises `ChatError` if it doesn't fit.

        `in_template`: whether the template tells the model of the tools; otherwise the prompt has to. `family`: the
        name of a template in the package `renderers`, in place of the tokenizer's own.
        """
        self.tools = tools
        self._in_template = in_template
        self._tokenizer = tokenizer
        self.vocabulary = _vocabulary(tokenizer)
        # Runs of blanks can be added tokens too; they are text like any other.
        self._control = {token: number for token, number in tokenizer.get_added_vocab().items() if token.strip()}
        if not self._control:
            raise ChatError("the tokenizer has no added tokens, so no turn can be told from the text in it")
        self._control_ids = frozenset(self._control.values())
        longest_first = "|".join(re.escape(token) for token in sorted(self._control, key=len, reverse=True))
        self._token = re.compile(f"({longest_first})")
        self._token_start = re.compile(f"(?=(?:{longest_first}))")
        self.template = (
            family_template(family, tokenizer, options or {}, self.vocabulary)
            if family
            else own_template(tokenizer, options or {})
        )
        self.json_arguments = False
        """Whether the template takes the arguments of a call as JSON text only."""
        self.template_call = self._call()
        """A call as the template has the model write it; None if it has no form for calls."""
        self._frames: dict[tuple[str, ...], list[str]] = {}
        self._shape, self._end = self._fit()
        self.end_id = self._control[self._end]
        """The end-of-turn token, which the model itself gives."""
        eos = tokenizer.eos_token_id
        others = [] if eos is None else [int(eos)]
        others += sorted(self._control[token] for token in ENDS & self._control.keys())
        self.stop_ids = tuple(dict.fromkeys((self.end_id, *others)))
        """The ids that end a turn, the end-of-turn token first."""
        self._shown = self._check()

    @classmethod
    def for_prompt(
        cls,
        tokenizer: Tokenizer,
        prompt: Prompt,
        *,
        options: Mapping[str, object] | None = None,
        family: str = "",
    ) -> ChatRenderer:
        """Return the renderer for a prompt.

        Raises `ChatError` too if the template has the model write its calls in another format than the prompt's.
        """
        chat = cls(tokenizer, prompt.tools, in_template=prompt.in_template, options=options, family=family)
        if chat.template_call is not None and not chat._reads(prompt.call_format):
            advice = "take a prompt that describes the tool itself, such as fenced"
            if chat.template_format:
                advice = f"write a prompt file with base = {prompt.name!r} and call_format = {chat.template_format!r}"
            raise ChatError(
                f"the template has the model write calls as {chat.template_call!r}, and the prompt {prompt.name!r} "
                f"reads them in the format {prompt.call_format!r}, which finds none there: {advice}"
            )
        return chat

    @property
    def template_format(self) -> str | None:
        """Return our call format that reads what the template has the model write, if there is one."""
        return next(filter(self._reads, CALL_FORMATS.ours), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what you should know about this template, although it can be used."""
        notes = []
        if self._in_template and not all(name in self._render(INSTRUCTED) for name in self.tools):
            notes.append("the template says nothing of the tools: the prompt must say how to call them")
        thought = self._round(f"<think>\n{PROBE}\n</think>\n\nSo.", ("1",))
        if not self._shape.structured and PROBE not in self._render([*ASKED, *thought]):
            notes.append(
                "the template strips thinking from earlier turns: here the model keeps seeing its own, "
                "behind a chat API that renders each turn again it won't"
            )
        if self.template_call is not None and (forgotten := self._forgotten()):
            notes.append(
                f"the template leaves {forgotten!r}, with which it opens a turn, out of earlier turns: here they "
                "keep it, behind a chat API that renders each turn again they won't"
            )
        if FIRST_ROUND_ONLY in self._frame([next(iter(self.tools), "")])[0]:
            notes.append(
                "the template frames the first round of results alone: here every round has the frame, "
                "behind a chat API that renders each turn again it won't"
            )
        return tuple(notes)

    def keeps(self, text: str) -> bool:
        """Return whether the template renders what a model wrote as it is, but for thinking, of which `notes` tell."""
        words = text.removesuffix(self._end)
        try:
            rendered = self._render([*ASKED, *_said(words, "1")])
        except ChatError:
            return False  # it takes calls in its own structure alone, and writes them anew
        _, thought, said = words.rpartition("</think>")
        if thought:
            return said.removeprefix("\n\n") in rendered
        # In its place: a newline that a template trims off would be found in the frame around the turn.
        before, _, behind = self._render([*ASKED, *_said(PROBE, "1")]).partition(PROBE)
        return rendered == f"{before}{words}{behind}"

    def prompt(self, messages: Sequence[Message]) -> TokenSpan:
        """Return the first prompt, with the opening of the model's first turn."""
        text = self._render([{"role": each.role, "content": each.content} for each in messages])
        return token_span(text, self._tokenizer.encode(text, add_special_tokens=False))

    def written(self, text: str) -> TokenSpan:
        """Return a turn that the model did not sample, as ids that it could have sampled: calls in its own tokens, then
        its end.
        """
        ids = [*self._ids(text), self.end_id]
        return token_span(self.vocabulary.decode(token_span("", ids).ids).text, ids)

    def observation(self, turn_T: Ids, results: Sequence[str], names: Sequence[str] = ()) -> TokenSpan:
        """Return the results of a turn's calls, framed by the template, with the opening of the next turn.

        `turn_T` are the ids that the model sampled. Where they lack the end-of-turn token, because the turn was cut off
        or ended with another one, the observation begins with it. `names` are the tools that were called, which some
        templates repeat; what is no tool's name is left out of it.
        """
        ids = [] if len(turn_T) and int(turn_T[-1]) == self.end_id else [self.end_id]
        ids += self._encode(self._framed([self._shown(result) for result in results], names))
        span = token_span("", ids)
        return token_span(self.vocabulary.decode(span.ids).text, ids)

    def words(self, turn_T: Ids) -> str:
        """Return the text of a turn without its end-of-turn token."""
        length = len(turn_T)
        while length and int(turn_T[length - 1]) in self.stop_ids:
            length -= 1
        return self.vocabulary.decode(turn_T[:length]).text

    def save_tokenizer(self, folder: Path) -> None:
        """Save a copy of the tokenizer beside a run's trajectories, for tools that show their tokens."""
        self._tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))

    def _framed(self, results: Sequence[str], names: Sequence[str] = ()) -> Iterator[tuple[str, bool]]:
        """Pieces of text, each with whether it is the template's own."""
        ours = next(iter(self.tools), "")
        names = names or [ours] * len(results)
        *before, tail = self._frame([name if name in self.tools else ours for name in names])
        for piece, result in zip(before, results, strict=True):
            yield piece, True
            yield result, False
        yield tail, True

    def _frame(self, names: Sequence[str]) -> list[str]:
        """What stands before each result of these tools, and behind the last one, without the end of the turn."""
        key = tuple(names)
        if key not in self._frames:
            head, *others = self._cut(ASKED, WRITTEN[0], key)
            self._frames[key] = [head.removeprefix(self._end), *others]
        return self._frames[key]

    def _encode(self, pieces: Iterator[tuple[str, bool]]) -> list[int]:
        """Control tokens from the template's pieces alone; the text between two of them is encoded as one."""
        ids: list[int] = []
        plain = ""
        for text, trusted in pieces:
            for part in self._token.split(text) if trusted else (text,):
                if trusted and part in self._control:
                    ids += [*self._plain(plain), self._control[part]]
                    plain = ""
                else:
                    plain += part
        return ids + self._plain(plain)

    def _plain(self, text: str) -> list[int]:
        """Ids of a text in which no token means more than its letters."""
        cuts = [0, *(found.start() + 1 for found in self._token_start.finditer(text)), len(text)]
        ids = [number for start, end in pairwise(cuts) for number in self._ids(text[start:end])]
        if self._control_ids.isdisjoint(ids):
            return ids
        # A tokenizer that normalises its text can make a control token of letters that don't look like one.
        return [number for letter in text for number in self._ids(letter) if number not in self._control_ids]

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _render(self, messages: Sequence[Mapping[str, object]], opened: bool = True) -> str:
        schemas = [tool.schema for tool in self.tools.values()]
        return self.template(messages, (schemas or None) if self._in_template else None, opened)

    def _call(self) -> str | None:
        """A call as the template renders it."""
        if not self.tools or not self._in_template:
            return None
        for self.json_arguments in (False, True):
            try:
                opened, rendered = self._render(ASKED), self._called()
            except ChatError:
                continue
            if PROBE in rendered:
                return rendered[len(_shared(opened, rendered)) :].strip()
        return None

    def _called(self, **thought: str) -> str:
        """A conversation that ends with a call."""
        call = self._structured(next(iter(self.tools)), PROGRAM)
        turn: dict[str, object] = {"role": "assistant", "content": "", "tool_calls": [call], **thought}
        return self._render([*ASKED, turn], opened=False)

    def _forgotten(self) -> str:
        """What the template opens a turn with and leaves out of a turn with a call, thought or not."""
        opened = self._render(ASKED)
        calls = (self._called(), self._called(reasoning_content="Hm."))
        return min((opened.removeprefix(_shared(opened, each)) for each in calls), key=len)

    def _reads(self, name: str) -> bool:
        """Whether this call format finds the template's call, with all that it holds."""
        if self.template_call is None:
            return False
        calls, tool = call_format(name).parse(self.template_call, self.tools).calls, next(iter(self.tools))
        return [(each.name, each.arguments) for each in calls] == [(tool, {self._argument(tool): PROGRAM})]

    def _argument(self, name: str) -> str:
        """The argument of a tool that takes text."""
        tool = self.tools[name]
        named = tool.parameters.get("properties")
        texts = [each for each in named if tool.type_of(each) == "string"] if isinstance(named, Mapping) else []
        return tool.code_argument or next(iter(texts), "text")

    def _structured(self, name: str, text: str) -> dict[str, object]:
        arguments: object = {self._argument(name): text}
        if self.json_arguments:
            arguments = json.dumps(arguments, ensure_ascii=False)
        return {"type": "function", "id": "call_0", "function": {"name": name, "arguments": arguments}}

    def _round(self, written: str, results: Sequence[str], names: Sequence[str] = ()) -> list[dict[str, object]]:
        """A turn with calls, and their results."""
        if not self._shape.structured:
            return _said(written, *results)
        names = names or [next(iter(self.tools))] * len(results)
        content = written.partition(PROBE)[0].removesuffix("<tool_call>\n")
        calls = [self._structured(name, PROBE) for name in names]
        messages: list[dict[str, object]] = [{"role": "assistant", "content": content, "tool_calls": calls}]
        for name, result in zip(names, results, strict=True):
            messages.append({"role": "tool", "name": name, "tool_call_id": "call_0", "content": result})
        return messages

    def _fit(self) -> tuple[_Shape, str]:
        """The first shape of turns that the template takes, and the token that ends a turn."""
        structured = self.template_call is not None and self.template_format is not None
        shapes = [*[_Shape(structured=True)] * structured, _Shape(structured=False)]
        if structured and "<|call|>" in self._control:
            shapes.append(_Shape(structured=True, most=1))  # it ends the turn, so there is never another call
        refusal = None
        for self._shape in shapes:
            try:
                return self._shape, self._glue()
            except ChatError as error:
                refusal = refusal or error
        assert refusal is not None  # there is at least one shape
        raise refusal

    def _glue(self) -> str:
        """The token that ends a turn, after it was seen that the glue is the same behind whatever was written."""
        name = (next(iter(self.tools), ""),)
        head, *_ = alone = self._cut(ASKED, WRITTEN[0], name)
        ends = self._token.match(head)
        if ends is None:
            raise ChatError(
                f"the template puts {head[:20]!r} behind a turn, where an end-of-turn token must stand; "
                "give a template that ends the assistant's message with an added token such as <|im_end|>"
            )
        between = self._cut(ASKED, WRITTEN[0], name * 2)[1] if self._shape.most > 1 else ""
        later: Sequence[Mapping[str, object]] = [*ASKED, *self._round(WRITTEN[1], ("1",))]
        bases: list[Sequence[Mapping[str, object]]] = [ASKED, INSTRUCTED]
        bases += [] if FIRST_ROUND_ONLY in head else [later]
        for base, written, count in product(bases, WRITTEN, range(1, self._shape.most + 1)):
            if self._cut(base, written, name * count) != [head, *[between] * (count - 1), alone[-1]]:
                raise ChatError(
                    "the template's glue depends on what stands before it, so a history can't grow by it: behind "
                    f"{written!r}, with {count} tool results, it is not what it is behind {WRITTEN[0]!r}. Give a "
                    "template that looks only at roles in what it puts behind an assistant's message"
                )
        return ends[0]

    def _cut(self, base: Sequence[Mapping[str, object]], written: str, names: Sequence[str]) -> list[str]:
        """The glue behind a turn with calls of these tools, in pieces, from the end of the turn."""
        marks = [f"{RESULT}{index}" for index in range(len(names))]
        rendered = self._render([*base, *self._round(written, marks, names)])
        _, found, glue = rendered.rpartition(PROBE if self._shape.structured else written[written.index(PROBE) :])
        pieces = []
        for mark in marks:
            piece, met, glue = glue.partition(mark)
            found = found and met
            pieces.append(piece)
        if not found:
            raise ChatError(
                f"the template doesn't show the words of an assistant's turn {written!r} and of {len(names)} results "
                "of the role 'tool' behind it, each once and in order; give a template that does"
            )
        if self._shape.structured:
            # The model closes its call itself. The rest begins with the first token that can end a turn.
            eos = {token for token, number in self._control.items() if number == self._tokenizer.eos_token_id}
            ends = (each.start() for each in self._token.finditer(pieces[0]) if each[0] in ENDS | eos)
            pieces[0] = pieces[0][next(ends, len(pieces[0])) :]
        return [*pieces, glue]

    def _check(self) -> Callable[[str], str]:
        """How the template shows results, after it was seen that the tokenizer splits the glue as it would in place."""
        results = ("", "1", "Done.", f' {PROBE}\n"é" \\ <b>\n', "a\n\n\nb")
        ends = {result: self._render([*ASKED, *self._round(WRITTEN[0], (result,))]) for result in results}
        for shown in SHOWN:
            pieces = {result: [*self._framed([shown(result)])] for result in results}
            if all(ends[result].endswith("".join(text for text, _ in pieces[result])) for result in results):
                break
        else:
            raise ChatError(
                f"the template changes the words of a tool: it doesn't show {results[3]!r} as it is, trimmed or as a "
                "JSON string; give a template that puts the content of the role 'tool' down without changing it"
            )
        for result in results:
            ids = self._encode(iter(pieces[result]))
            if self._ids(ends[result])[-len(ids) :] != ids:
                glue = "".join(text for text, _ in pieces[result])
                raise ChatError(
                    f"the tokenizer splits {glue!r} in another way when other text stands before it, so ids can't be "
                    "appended; its added tokens must not take blanks beside them (lstrip, rstrip)"
                )
        return shown


def _said(written: str, *results: str) -> list[dict[str, object]]:
    said = (("assistant", written), *(("tool", result) for result in results))
    return [{"role": role, "content": content} for role, content in said]


def _shared(one: str, other: str) -> str:
    """What both texts begin with, up to a token."""
    return commonprefix([one, other]).removesuffix("<")  # noqa: RUF071 - of letters, not of paths


def _vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    try:
        return Vocabulary.from_byte_level(tokenizer.get_vocab(), tokenizer.get_added_vocab())
    except KeyError as error:
        raise ChatError(
            f"the tokenizer's vocabulary is not byte-level: it holds {error}; models of the Qwen, Llama 3, SmolLM, "
            "DeepSeek and GPT-2 families have one that is"
        ) from None
