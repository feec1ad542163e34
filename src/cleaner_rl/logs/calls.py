"""Reads calls of tools that nobody described, in fields or in text, and results in text.

A log rarely says what its tools do. `call_kind` knows it by names and arguments; which further tools run Python, the
user can say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache

from cleaner_rl.tools import (
    CallFormat,
    CallKind,
    ToolCall,
    ToolSet,
    ToolSpec,
    call_code,
    call_format,
    call_kind,
    read_json,
)

TEXT_FORMATS = ("hermes", "xml")
"""Call formats that are looked for in text unless one is named. Fenced Python is talk as often as not."""
RESULT_OPENING, RESULT_END = "<tool_response>", "</tool_response>"


class LoggedTools(ToolSet):
    """Every tool that a log may name."""

    __slots__ = ("_python",)

    def __init__(self, python: Collection[str] = ()) -> None:
        # A program without a name, as in a fence, is for the first of them: the user's own, or the one named `python`.
        self._python = {name.lower() for name in python}
        super().__init__(*(ToolSpec(name, code_argument="code") for name in dict.fromkeys((*python, "python"))))

    def __getitem__(self, name: str) -> ToolSpec:
        return self._by_name.get(name) or ToolSpec(name)

    def read(self, name: str, arguments: Mapping[str, object], start: int, end: int) -> ToolCall:
        """Return the call as it is: a log doesn't say what its tools need."""
        kind = self.kind(name, arguments)
        return ToolCall(name, arguments, call_code(kind, arguments), start, end, kind=kind)

    def kind(self, name: str, arguments: Mapping[str, object]) -> CallKind:
        """Return what a call does."""
        return CallKind.PYTHON if name.lower() in self._python else call_kind(name, arguments)

    def call(self, name: str, arguments: object, start: int, end: int) -> ToolCall:
        """Return a call in a field. Its arguments are an object or JSON text; anything else is a problem."""
        problem = None
        if isinstance(arguments, str):
            try:
                arguments = read_json(arguments or "{}")
            except ValueError as error:
                problem = f"The call's arguments are not valid JSON: {error}."
        if problem is None and not isinstance(arguments, Mapping):
            problem = "The call's arguments are not a JSON object."
        if problem is not None or not isinstance(arguments, Mapping):
            code = arguments if isinstance(arguments, str) else ""
            return ToolCall(name, {}, code, start, end, problem, self.kind(name, {}))
        return self.read(name, arguments, start, end)

    def text_calls(self, text: str, form: str) -> tuple[ToolCall, ...]:
        """Return the calls in a text of this call format."""
        return _call_format(form).parse(text, self).calls

    def text_form(self, texts: Sequence[str], named: str | None) -> str | None:
        """Return the format of the calls in these texts: the named one, or the one of `TEXT_FORMATS` that reads one.

        Hermes and XML open alike, so each sees a broken call where the other reads one. Where neither reads any, it is
        the first that sees one; None if there is nothing to see.
        """
        seen = None
        for form in TEXT_FORMATS if named is None else (named,):
            for call in (call for text in texts for call in self.text_calls(text, form)):
                if call.problem is None:
                    return form
                seen = seen or form
        return seen


def text_results(text: str) -> Iterator[str]:
    """Yield the results in a text, as ChatML templates write them."""
    for start, end in _results(text):
        yield text[start:end].removeprefix("\n").removesuffix("\n")


def beside_results(text: str) -> str:
    """Return what a text says beside its results."""
    said, position = "", 0
    for start, end in _results(text):
        said += text[position : start - len(RESULT_OPENING)]
        position = end + len(RESULT_END)
    return said + text[position:]


def _results(text: str) -> Iterator[tuple[int, int]]:
    """Yield where results begin and end between their tags.

    Not by a regular expression: one would look for the end from every opening anew, and programs print what they like.
    """
    position = 0
    while (opening := text.find(RESULT_OPENING, position)) >= 0:
        start = opening + len(RESULT_OPENING)
        end = text.find(RESULT_END, start)
        if end < 0:
            return
        yield start, end
        position = end + len(RESULT_END)


@cache
def _call_format(name: str) -> CallFormat:
    """Return a call format. It is kept, because looking for a plug-in takes longer than reading a turn."""
    return call_format(name)
