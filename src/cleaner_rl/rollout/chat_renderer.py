"""A model's own chat template as ids: the first prompt, and the glue between a turn and the next.

The template is rendered once, with marks where the model's and the tools' words go, and cut at the marks. What lies
between them is the glue. From then on a history only grows: sampled ids stay as they were sampled, and the glue is put
behind them. Nothing is rendered twice, so nothing can drift.

Tool output is plain text, whatever it says. Text that looks like an added token of the tokenizer (`<|im_end|>`, but
also `</tool_response>` where that is one) is split before it is encoded: no program can end its turn or open another.

At the start the shapes that a rollout can have are rendered, and a template that doesn't fit is refused with what to
change: one whose glue depends on what the model wrote, one that changes the tools' words, one that ends a turn without
an end-of-turn token.

Limits: byte-level vocabularies only (Qwen, Llama 3, SmolLM, DeepSeek, GPT-2). The words of a task are trusted: they are
rendered as the template does it, control tokens included. Where the frame around results is plain text in the
template's own form (Qwen2.5's `<tool_response>`), a program can print text that looks like it; it stays one turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Protocol

from cleaner_rl.tasks import Message
from cleaner_rl.tools import ToolSet
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


class ChatError(ValueError):
    """A template or tokenizer that can't be used as it is; the message says what to change."""


class Tokenizer(Protocol):
    """What is needed of a tokenizer: a Hugging Face one has it."""

    @property
    def eos_token_id(self) -> Any:
        """The id of the end-of-sequence token, or None."""
        ...

    @property
    def backend_tokenizer(self) -> Any:
        """The fast tokenizer below it."""
        ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Render messages."""
        ...

    def encode(self, text: Any, **options: Any) -> Any:
        """Text to ids."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """All tokens."""
        ...

    def get_added_vocab(self) -> dict[str, int]:
        """The tokens that stand for their own text."""
        ...


class ChatRenderer:
    """Renders chats with the template of one model, for one set of tools."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: ToolSet,
        *,
        in_template: bool = True,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """`options` go to the template, such as `{"enable_thinking": False}`. Raises `ChatError` if it doesn't fit.

        `in_template`: whether the template tells the model of the tools; otherwise the prompt has to.
        """
        self.tools = tools
        self._in_template = in_template
        self._tokenizer, self._options = tokenizer, dict(options or {})
        self.vocabulary = _vocabulary(tokenizer)
        # Runs of blanks can be added tokens too; they are text like any other.
        self._control = {token: number for token, number in tokenizer.get_added_vocab().items() if token.strip()}
        if not self._control:
            raise ChatError("the tokenizer has no added tokens, so no turn can be told from the text in it")
        self._control_ids = frozenset(self._control.values())
        longest_first = "|".join(re.escape(token) for token in sorted(self._control, key=len, reverse=True))
        self._token = re.compile(f"({longest_first})")
        self._token_start = re.compile(f"(?=(?:{longest_first}))")
        head, self._between, self._tail = self._glue()
        ends = self._token.match(head)
        if ends is None:
            raise ChatError(
                f"the template puts {head[:20]!r} behind a turn, where an end-of-turn token must stand; "
                "give a template that ends the assistant's message with an added token such as <|im_end|>"
            )
        self._head = head[ends.end() :]
        self._end = ends[0]
        self.end_id = self._control[ends[0]]
        """The end-of-turn token, which the model itself gives."""
        eos = tokenizer.eos_token_id
        self.stop_ids = (self.end_id,) if eos is None or eos == self.end_id else (self.end_id, int(eos))
        self._check()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what you should know about this template, although it can be used."""
        notes = []
        if self._in_template and not all(name in self._render(INSTRUCTED) for name in self.tools):
            notes.append("the template says nothing of the tools: the prompt must say how to call them")
        thought = {"role": "assistant", "content": f"<think>\n{PROBE}\n</think>\n\nSo."}
        if PROBE not in self._render([*ASKED, thought, {"role": "tool", "content": "1"}]):
            notes.append(
                "the template strips thinking from earlier turns: here the model keeps seeing its own, "
                "behind a chat API that renders each turn again it won't"
            )
        return tuple(notes)

    def keeps(self, text: str) -> bool:
        """Return whether the template renders what a model wrote as it is, but for thinking, of which `notes` tell."""
        words = text.removesuffix(self._end)
        rendered = self._render([*ASKED, *_round(words, "1")])
        _, thought, said = words.rpartition("</think>")
        if thought:
            return said.removeprefix("\n\n") in rendered
        # In its place: a newline that a template trims off would be found in the frame around the turn.
        before, _, behind = self._render([*ASKED, *_round(PROBE, "1")]).partition(PROBE)
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

    def observation(self, turn_T: Ids, results: Sequence[str]) -> TokenSpan:
        """Return the results of a turn's calls, framed by the template, with the opening of the next turn.

        `turn_T` are the ids that the model sampled. Where they lack the end-of-turn token, because the turn was cut off
        or ended with another one, the observation begins with it.
        """
        ids = [] if len(turn_T) and int(turn_T[-1]) == self.end_id else [self.end_id]
        ids += self._encode(self._framed(results))
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

    def _framed(self, results: Sequence[str]) -> Iterator[tuple[str, bool]]:
        """Pieces of text, each with whether it is the template's own."""
        yield self._head, True
        for index, result in enumerate(results):
            if index:
                yield self._between, True
            yield result, False
        yield self._tail, True

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

    def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        schemas = [tool.schema for tool in self.tools.values()]
        rendered: str = self._tokenizer.apply_chat_template(
            list(messages),
            tools=(schemas or None) if self._in_template else None,
            add_generation_prompt=True,
            tokenize=False,
            **self._options,
        )
        return rendered

    def _glue(self) -> tuple[str, str, str]:
        """What stands before the first result, between two, and behind the last one."""
        head, between, tail = self._cut(ASKED, WRITTEN[0], 2)
        later = (*ASKED, *_round(WRITTEN[1], "1"))
        for base, written, count in product((ASKED, INSTRUCTED, later), WRITTEN, (1, 2, 3)):
            if self._cut(base, written, count) != [head, *[between] * (count - 1), tail]:
                raise ChatError(
                    "the template's glue depends on what stands before it, so a history can't grow by it: behind "
                    f"{written!r}, with {count} tool results, it is not what it is behind {WRITTEN[0]!r}. Give a "
                    "template that looks only at roles in what it puts behind an assistant's message"
                )
        return head, between, tail

    def _cut(self, base: Sequence[Mapping[str, str]], written: str, count: int) -> list[str]:
        """The glue behind a turn with so many results, in pieces."""
        marks = [f"{RESULT}{index}" for index in range(count)]
        rendered = self._render([*base, *_round(written, *marks)])
        _, found, glue = rendered.rpartition(written[written.index(PROBE) :])
        pieces = []
        for mark in marks:
            piece, met, glue = glue.partition(mark)
            found = found and met
            pieces.append(piece)
        if not found:
            raise ChatError(
                f"the template doesn't show the words of an assistant's turn {written!r} and of {count} results of the "
                "role 'tool' behind it, each once and in order; give a template that does"
            )
        return [*pieces, glue]

    def _check(self) -> None:
        """Whether the template takes results as they are, and the tokenizer splits the glue as it would in place."""
        for result in ("", "1", "Done.", f' {PROBE}\n"é" \\ <b>\n', "a\n\n\nb"):
            rendered = self._render([*ASKED, *_round(WRITTEN[0], result)])
            glue = "".join(text for text, _ in self._framed([result]))
            if not rendered.endswith(glue):
                raise ChatError(
                    f"the template changes the words of a tool: it doesn't show {result!r} as it is; "
                    "give a template that puts the content of the role 'tool' down without trimming or escaping it"
                )
            ids = self._encode(self._framed([result]))
            if self._ids(rendered)[-len(ids) :] != ids:
                raise ChatError(
                    f"the tokenizer splits {glue!r} in another way when other text stands before it, so ids can't be "
                    "appended; its added tokens must not take blanks beside them (lstrip, rstrip)"
                )


def _round(written: str, *results: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": written}, *({"role": "tool", "content": result} for result in results)]


def _vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    try:
        return Vocabulary.from_byte_level(tokenizer.get_vocab(), tokenizer.get_added_vocab())
    except KeyError as error:
        raise ChatError(
            f"the tokenizer's vocabulary is not byte-level: it holds {error}; models of the Qwen, Llama 3, SmolLM, "
            "DeepSeek and GPT-2 families have one that is"
        ) from None
