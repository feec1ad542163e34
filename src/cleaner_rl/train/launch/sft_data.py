"""The data sets that verl's SFT trainer reads demonstrations with.

verl loads them by name, in its own processes:

    data.custom_cls.path=pkg://cleaner_rl.train.launch.sft_data data.custom_cls.name=Demonstrations

Limits: rows without the column `loss_mask` are trained on as verl does, on every assistant message.
"""

from __future__ import annotations

import json
from typing import Any

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

COLUMN = "loss_mask"


class MaskedSFTDataset(MultiTurnSFTDataset):  # type: ignore[misc]
    """verl's multi-turn data set that obeys a loss mask per message, as `cleaner purify --sft parquet` writes it.

    verl trains on every assistant message. The mask excludes a failed call that stayed in the conversation.
    """

    _mask: list[int] | None = None

    def __getitem__(self, item: int) -> Any:
        row = self.dataframe.iloc[item]
        self._mask = list(row[COLUMN]) if COLUMN in row else None
        return super().__getitem__(item)

    def _process_single_message(self, index: int, *arguments: Any, **options: Any) -> Any:
        input_ids, loss_mask, *rest = super()._process_single_message(index, *arguments, **options)
        if self._mask is not None and not self._mask[index]:
            loss_mask = loss_mask * 0
        return input_ids, loss_mask, *rest


class Demonstrations(MaskedSFTDataset):
    """A masked data set whose tools are a list or JSON text.

    Parquet gives every row of a list of tools the keys of all others, filled with nulls that the template would print.
    As text each row keeps its own keys; verl's data set reads only lists.
    """

    tools: list[Any] | None

    def _read_files_and_process(self) -> None:
        super()._read_files_and_process()
        if self.tools is not None:
            self.tools = [json.loads(tools) if isinstance(tools, str) else tools for tools in self.tools]
