"""verl's multi-turn SFT data set, with the loss mask that `cleaner purify --sft parquet` writes beside the messages.

verl trains on every assistant message. These rows say which ones to learn from: not from a call that failed and stayed.

    data.custom_cls.path=pkg://cleaner_rl.train.masked_sft data.custom_cls.name=MaskedSFTDataset

Limits: rows without the column are trained on as verl does.
"""

from __future__ import annotations

from typing import Any

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

COLUMN = "loss_mask"


class MaskedSFTDataset(MultiTurnSFTDataset):  # type: ignore[misc]
    """Rows with `messages`, `tools` and `loss_mask`, one entry a message."""

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
