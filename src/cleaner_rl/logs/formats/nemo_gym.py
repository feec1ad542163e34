"""`nemo-gym`: rollouts of NeMo Gym, a line of JSONL each.

A line is `{responses_create_params: {input, tools, …}, response: {output, …}, reward, …}`: a request to the Responses
API and its response, whose items are read as those of the format `responses`."""

from __future__ import annotations

from typing import Any, ClassVar

from cleaner_rl.logs.formats.base import Record, inside
from cleaner_rl.logs.formats.responses import ResponsesFormat
from cleaner_rl.logs.frames import Message

REQUEST, RESPONSE = "responses_create_params", "response"


class NemoGymFormat(ResponsesFormat):
    """Reads and writes rollouts of NeMo Gym."""

    name = "nemo-gym"
    fields: ClassVar[tuple[str, ...]] = ("output",)

    def detects(self, record: object) -> bool:
        """Return whether a record has a request and the items of its response."""
        named = isinstance(record, dict) and isinstance(record.get(REQUEST), dict)
        return named and isinstance(inside(record, RESPONSE).get("output"), list)

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:
        """Return the items of the request before those of the response."""
        asked, answered = inside(record, REQUEST), inside(record, RESPONSE)
        items, rest = super().taken({"input": asked.get("input"), "output": answered.get("output")}, field)
        return items, {**record, REQUEST: {**asked, "input": rest["input"]}, RESPONSE: {**answered, "output": None}}

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:
        """Return the record with its items, each where it was."""
        asked, answered = record[REQUEST], record[RESPONSE]
        given = super().given_back({"input": asked["input"], "output": None}, field, messages)
        return {
            **record,
            REQUEST: {**asked, "input": given["input"]},
            RESPONSE: {**answered, "output": given["output"]},
        }

    def system(self, record: Record) -> Any:
        """Return the instructions of the request."""
        return record[REQUEST].get("instructions")

    def tools(self, record: Record) -> Any:
        """Return the functions among the tools of the request."""
        return super().tools(record[REQUEST])
