"""A review: a person judges a sample of what was decided about calls, and gets the rates of errors that follow.

The sample has as many verdicts of success as of failure, edits, and failures that were left alone. Which ones is chosen
by their content, so the same store gives the same sample, and a review goes on where it stopped.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from cleaner_rl.trajectory import Said, Trajectory, Turn, edit_id, read_reviews, result_id
from cleaner_rl.view.titles import source_of, title_of

SIZE = 60
"""Decisions in a sample, unless another number is asked for."""
LONGEST = 20_000
"""Characters of a text that are shown, half of them of its end."""


class What(StrEnum):
    """A kind of decision."""

    FAILED = "judged failed"
    OK = "judged ok"
    EDIT = "edited"
    LEFT = "left alone"


QUESTIONS: Mapping[What, str] = {
    What.FAILED: "This call was judged failed. Is that right?",
    What.OK: "This call was judged to have worked. Is that right?",
    What.EDIT: "The upper call was replaced by the lower one. Does that do what it was for, with nothing lost?",
    What.LEFT: "This failed call was not repaired, and is masked. Is that right?",
}


@dataclass(frozen=True, slots=True)
class Item:
    """A decision, and what somebody needs to judge it."""

    id: str
    what: What
    place: str
    task: str
    why: str
    """Why a failure was left alone."""
    texts: tuple[tuple[str, str], ...]
    """What is shown, each text with its name."""


def sample(trajectories: Iterable[Trajectory[Any]], size: int = SIZE) -> list[Item]:
    """Return so many decisions, evenly of each kind as far as there are any, edits first."""
    share = math.ceil(size / len(What))
    chosen: dict[What, list[tuple[int, str, Item]]] = {what: [] for what in What}
    known: set[str] = set()
    for trajectory in trajectories:
        for what, name, index, place in _decisions(trajectory):
            rank, heap = -int(name, 16), chosen[what]
            if name in known or (len(heap) == share and rank <= heap[0][0]):
                continue
            known.add(name)
            entry = (rank, name, _item(trajectory, what, name, index, place))
            heapq.heapreplace(heap, entry) if len(heap) == share else heapq.heappush(heap, entry)
    order = (What.EDIT, What.FAILED, What.LEFT, What.OK)
    return [item for what in order for _, _, item in sorted(chosen[what], reverse=True)]


def _decisions(trajectory: Trajectory[Any]) -> Iterator[tuple[What, str, int, int]]:
    left = {each["turn"] for each in (trajectory.info.log or {}).get("left_alone", ())}
    for index, turn in enumerate(trajectory.turns):
        if turn.edit is not None:
            yield What.EDIT, edit_id(turn), index, 0
            continue
        if index in left:
            yield What.LEFT, f"{int(result_id(turn, 0), 16) ^ 1:016x}", index, 0
        for place, result in enumerate(turn.results):
            yield What.FAILED if result.failed else What.OK, result_id(turn, place), index, place


def _item(trajectory: Trajectory[Any], what: What, name: str, index: int, place: int) -> Item:
    turn = trajectory.turns[index]
    info = {"messages": trajectory.info.messages, "log": trajectory.info.log}
    reasons = {each["turn"]: each["why"] for each in (trajectory.info.log or {}).get("left_alone", ())}
    texts: list[tuple[str, str]] = []
    if turn.edit is not None:
        for failed in turn.edit.original[:-1]:
            texts += [("what the agent did", _said(failed)), ("what it got", _shown(failed))]
        texts += [("the turn as it is now", _said(turn)), ("what that got", _shown(turn))]
    else:
        calls = len(turn.calls)
        number = f", call {place + 1} of {calls}" if calls > 1 and what is not What.LEFT else ""
        texts += [(f"what the agent did{number}", _said(turn)), ("what it got", _shown(turn))]
        if what is What.LEFT and index + 1 < len(trajectory.turns):
            then = trajectory.turns[index + 1]
            texts += [("what it did next", _said(then)), ("what that got", _shown(then))]
    source = source_of(info) or trajectory.key.task
    shown = tuple((label, _cut(text)) for label, text in texts)
    why = reasons[index] if what is What.LEFT else ""
    task = title_of(trajectory.prompt.text, info)
    return Item(name, what, f"{source}, turn {index + 1}", task, why, shown)


def _said(turn: Turn[Any]) -> str:
    calls = "\n".join(
        f"{call.name}:\n{call.code}" if call.code else f"{call.name} {call.arguments}" for call in turn.calls
    )
    return f"{turn.reasoning.text.strip()}\n\n{calls}".strip()


def _shown(turn: Turn[Any]) -> str:
    return "" if turn.observation is None else turn.observation.text.strip()


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n… {len(text) - LONGEST:,} characters …\n{text[-half:]}"


class Review:
    """A sample with its answers, which are added to a file."""

    def __init__(self, items: list[Item], path: Path) -> None:
        self.items, self._path = items, path
        self.said = dict(read_reviews(path))

    def answer(self, name: str, said: Said) -> None:
        """Keep an answer. Raises `KeyError` if there is no such decision."""
        item = {each.id: each for each in self.items}[name]
        row = {"id": name, "said": said.value, "what": item.what.value, "place": item.place}
        with self._path.open("a", encoding="utf-8") as file:
            _add(file, row)
        self.said[name] = said

    def to_json(self) -> dict[str, Any]:
        """Return all that the page needs."""
        items = [
            {**asdict(each), "question": QUESTIONS[each.what], "said": self.said.get(each.id)} for each in self.items
        ]
        return {"items": items, "rates": self.rates()}

    def rates(self) -> dict[str, dict[str, Any]]:
        """Return for each kind how many answers there are, and the share of wrong ones with an interval of 95 %."""
        found: dict[str, dict[str, Any]] = {}
        for what in What:
            said = [self.said[each.id] for each in self.items if each.what is what and each.id in self.said]
            wrong, told = said.count(Said.WRONG), sum(each is not Said.UNKNOWN for each in said)
            share = {"percent": round(100 * wrong / told, 1), "interval": interval(wrong, told)} if told else {}
            found[what.value] = {
                "sample": sum(each.what is what for each in self.items),
                "judged": told,
                "wrong": wrong,
                "cant_tell": len(said) - told,
                **share,
            }
        return found


def _add(file: TextIO, row: Mapping[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False) + "\n")


def interval(part: int, of: int) -> tuple[float, float]:
    """Return an exact interval of 95 % (Clopper and Pearson) for a share, in percent.

    Examples:
        >>> interval(0, 20)
        (0.0, 16.8)
        >>> interval(1, 20)
        (0.1, 24.9)
    """
    return round(100 * (1 - _upper(of - part, of)), 1), round(100 * _upper(part, of), 1)


def _upper(part: int, of: int) -> float:
    """Return the share with which so few or fewer have a chance of 2.5 %."""
    low, high = part / of, 1.0
    if part == of:
        return 1.0
    for _ in range(50):
        share = (low + high) / 2
        chance = math.fsum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(part + 1))
        low, high = (share, high) if chance > 0.025 else (low, share)
    return high
