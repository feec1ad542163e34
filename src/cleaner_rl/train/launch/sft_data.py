"""The data set that verl's SFT trainer reads demonstrations with.

verl loads it by name, in its own processes:

    data.custom_cls.path=pkg://cleaner_rl.train.launch.sft_data data.custom_cls.name=MaskedSFTDataset

Limits: rows without the column `loss_mask` are trained on as verl does, on every assistant message.
"""

from __future__ import annotations

import json
from typing import Any

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

COLUMN = "loss_mask"


class MaskedSFTDataset(MultiTurnSFTDataset):  # type: ignore[misc]
    """verl's multi-turn data set that obeys a loss mask per message, as `cleaner purify --sft-for verl` writes it.

    verl trains on every assistant message. The mask excludes a failed call that stayed in the conversation. Tools and
    arguments may be JSON text: as such each row keeps its own keys, and verl's own data set reads only lists.
    """

    tools: list[Any] | None
    _mask: list[int] | None = None

    def _read_files_and_process(self) -> None:
        super()._read_files_and_process()
        if self.tools is not None:
            opened = (json.loads(tools) if isinstance(tools, str) else tools for tools in self.tools)
            self.tools = [tools if isinstance(tools, list) else None for tools in opened]  # pandas has NA for none

    def _build_messages(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return [_opened(message) for message in super()._build_messages(example)]

    def __getitem__(self, item: int) -> Any:
        row = self.dataframe.iloc[item]
        self._mask = list(row[COLUMN]) if COLUMN in row else None
        return super().__getitem__(item)

    def _process_single_message(self, index: int, *arguments: Any, **options: Any) -> Any:
        input_ids, loss_mask, *rest = super()._process_single_message(index, *arguments, **options)
        if self._mask is not None and not self._mask[index]:
            loss_mask = loss_mask * 0
        return input_ids, loss_mask, *rest


def _opened(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the fields that it lacks, and with the arguments of its calls as objects.

    Parquet gives each message the fields of all others, as nulls that a template would print, and JSON as text.
    """
    there = {name: value for name, value in message.items() if value is not None}
    for call in there.get("tool_calls", ()):
        if isinstance(call["function"]["arguments"], str):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return there
