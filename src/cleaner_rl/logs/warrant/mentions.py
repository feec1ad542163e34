"""Finds what the agent says or writes later about a failed call: without the call, these words refer to nothing.

Looked at are the texts of the turns after the correction, and prose in the arguments of their calls (a note, a commit
message). A failure is mentioned if one of these holds:

- **An attempt.** The words speak of an attempt that failed ("the first edit missed"). In a turn right after another
  failure they are about that one.
- **A claim.** A sentence has a word of failure ("can't", "fails") and words of the error, and one of them is lost with
  the failed call.
- **A detail.** The words have a number or a name that is lost with the failed call.

Something is lost if it is in the error, and nowhere in what the repaired trajectory holds before it is mentioned: the
prompt, earlier turns, the correction's call, results. Failed turns don't count, because they may be repaired too. Nor
does the correction count for a number that its call has from the error.

Limits: English words. Spans without text say nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cleaner_rl.logs.warrant.words import ATTEMPT, CLAIM, GRAMMAR
from cleaner_rl.tools import CallKind, ToolCall
from cleaner_rl.trajectory import Trajectory, Turn

_TOKEN = re.compile(r"\d+(?:[.,_]\d+)*|[^\W\d]\w*(?:[.-]\w+)*")
_DOT = re.compile(r"[.-]")
_PART = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NAME = re.compile(r"\w*(?:[a-z][A-Z]|[^\W_]_[^\W_]|[^\W\d_]\d)\w*|\w{2,}(?:\.\w{2,})+")
_QUOTED = re.compile(r"""["'`‘“]([^\W\d]\w+)["'`’”]""")
_SENTENCE = re.compile(r"[.!?;]\s|\n")
_PROSE = re.compile(r"(?<!\w)[^\W\d_]+(?:['’][a-z]+)?,? (?:[^\W_]+(?:['’][a-z]+)?,? ){2}[^\W\d_]{2,}")
_FRAME = re.compile(
    r"^(?:Traceback \(.*|[ \t]*(?:File \"|Cell In\b).*|[ \t]+at .*|exit (?:code|status):? \d+)$",
    re.IGNORECASE | re.MULTILINE,
)
"""Lines that say where a program was, or that it failed: their numbers say nothing of the failure."""
_NO_PROSE = {CallKind.SQL}
SHORTEST = 3
"""Characters of a word or a name that says something of where it is repeated."""
DIGITS = 2
"""Digits of a number that does."""
LONGEST = 100_000
"""Characters of one text that are looked at."""


class Lost(NamedTuple):
    """What a repair would take away."""

    told: str
    """What the tool said."""
    call: str
    """The call that failed."""
    start: int
    """The index of the failed turn."""
    correction: int
    """The index of the turn that is to take its place."""


class LaterWords:
    """Answers whether later words of a trajectory mention a failure. It looks at each turn once.

    Args:
        trajectory: The trajectory.
        first: The first turn whose words are looked at: no correction that is asked about comes before it.
    """

    def __init__(self, trajectory: Trajectory[Any], first: int = 0) -> None:
        self.first = first
        self._turns = trajectory.turns
        self._attempt = -1
        """The last turn that speaks of a failed attempt."""
        self._claims: dict[str, list[int]] = defaultdict(list)
        """By word the sentences with a word of failure, by their number."""
        self._claimed: list[int] = []
        """The turn of each such sentence."""
        self._details: dict[str, list[int]] = defaultdict(list)
        """By number or name the turns whose prose has it."""
        for index, turn in enumerate(self._turns[first:], first):
            self._read(index, turn)
        self._prompt: str = trajectory.prompt.text
        self._written: dict[str, int] | None = None
        self._shown: dict[str, list[int]] = {}

    def mention(self, lost: Lost) -> bool:
        """Return whether words after the correction mention what a repair would take away."""
        after = lost.correction + 1
        if self._attempt >= after:
            return True
        if not self._details and not self._claimed:
            return False
        told = _FRAME.sub("", lost.told[:LONGEST])
        return any(self._mentioned_details(told, lost)) or self._is_claimed(told, lost)

    def _read(self, index: int, turn: Turn[Any]) -> None:
        answers = index > 0 and self._turns[index - 1].failed
        for text in _prose(turn):
            if not answers and ATTEMPT.search(text):
                self._attempt = index
            for detail in _details(text):
                if self._details[detail][-1:] != [index]:
                    self._details[detail].append(index)
            for sentence in _SENTENCE.split(text) if CLAIM.search(text) else ():
                if CLAIM.search(sentence):
                    for word in _words(sentence):
                        self._claims[word].append(len(self._claimed))
                    self._claimed.append(index)

    def _mentioned_details(self, told: str, lost: Lost) -> Iterator[bool]:
        for detail in _details(told) if self._details else ():
            place = _first(self._details.get(detail, ()), lost.correction + 1)
            if place is not None:
                yield self._is_lost(detail, place, lost)

    def _is_claimed(self, told: str, lost: Lost) -> bool:
        first = bisect_left(self._claimed, lost.correction + 1)
        shared: dict[int, list[str]] = defaultdict(list)
        if first < len(self._claimed):
            for word in sorted(_words(told)):
                numbers = self._claims.get(word, ())
                for number in numbers[bisect_left(numbers, first) :]:
                    shared[number].append(word)
        quoted = {_stem(each) for each in _QUOTED.findall(told)} if shared else set()
        for number, words in shared.items():
            gone = (word for word in words if len(words) > 1 or word in quoted)
            if any(self._is_lost(word, self._claimed[number], lost) for word in gone):
                return True
        return False

    def _is_lost(self, token: str, place: int, lost: Lost) -> bool:
        """Return whether nothing that stays has a number, a name or a word before a turn mentions it."""
        if self._written is None:
            self._look()
        assert self._written is not None
        if self._written.get(token, lost.start) < lost.start:
            return False
        shown = [index for index in self._shown.get(token, ()) if index < place]
        if token in _tokens(_text_of_calls(self._turns[lost.correction].calls)):
            learnt = token[0].isdigit() and token not in _tokens(lost.call)
            return learnt and not any(index != lost.correction for index in shown)
        return not shown

    def _look(self) -> None:
        """Note where each token is written first by the model, and where a prompt or a result that stays has it."""
        self._written = dict.fromkeys(_tokens(self._prompt), -1)
        for index, turn in enumerate(self._turns):
            if turn.failed:
                continue
            for token in _tokens(f"{turn.reasoning.text}\n{_text_of_calls(turn.calls)}"):
                self._written.setdefault(token, index)
            for token in _tokens(turn.observation.text if turn.observation is not None else ""):
                self._shown.setdefault(token, []).append(index)


def _first(places: list[int] | tuple[()], start: int) -> int | None:
    found = bisect_left(places, start)
    return places[found] if found < len(places) else None


def _prose(turn: Turn[Any]) -> Iterator[str]:
    """Yield what a turn says, and the lines of its calls' arguments that are prose."""
    if turn.reasoning.text:
        yield turn.reasoning.text[:LONGEST]
    for call in turn.calls:
        if call.kind not in _NO_PROSE:
            for text in _leaves(call.arguments):
                if _PROSE.search(text):
                    yield "\n".join(line for line in text[:LONGEST].splitlines() if _PROSE.search(line))


def _text_of_calls(calls: Iterable[ToolCall]) -> str:
    return "\n".join(text for call in calls for text in (call.name, call.code, *_leaves(call.arguments)))


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from _leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield str(value)


def _details(text: str) -> set[str]:
    """Return the numbers and the names of a text: `62`, `KeyError`, `old_str`. A plain word is none."""
    found = set()
    for token in _named(text):
        if token[0].isdigit():
            if sum(map(str.isdigit, token)) >= DIGITS:
                found.add(_number(token))
        elif len(token) > SHORTEST and not _is_plain(token) and _NAME.fullmatch(token):
            found.add(token.lower())
    return found


def _is_plain(token: str) -> bool:
    """Return whether a token is a word in small letters, as nearly all are."""
    return token.islower() and token.isalpha()


def _words(text: str) -> set[str]:
    """Return the words of a text that say something, without their endings."""
    words = {_stem(part) for part in _PART.findall(_HUMP.sub(" ", text)) if len(part) >= SHORTEST}
    return {word for word in words if not word.isdigit() and not GRAMMAR.fullmatch(word)}


def _tokens(text: str) -> set[str]:
    """Return the numbers, names and words of a text in the forms in which they are looked for."""
    named = _named(text)
    found = {_number(token) if token[0].isdigit() else token.lower() for token in named}
    return found | {_stem(part) for part in _PART.findall(_HUMP.sub(" ", " ".join(named)))}


def _named(text: str) -> set[str]:
    """Return the numbers and names of a text; a dotted name also by its parts."""
    whole = set(_TOKEN.findall(text))
    dotted = (each for each in whole if not each[0].isdigit() and ("." in each or "-" in each))
    return whole.union(*(filter(None, _DOT.split(each)) for each in dotted))


def _stem(word: str) -> str:
    word = word.lower()
    return word[:-1] if len(word) > SHORTEST and word.endswith("s") and not word.endswith("ss") else word


def _number(token: str) -> str:
    """Return a number without the signs that set its thousands apart: 48,000 is 48000."""
    return re.sub(r"[,_](?=\d{3}(?!\d))", "", token)
