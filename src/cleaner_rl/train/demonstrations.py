"""verl's data set for supervised training, for demonstrations whose tools are JSON text.

Parquet gives every row of a list of tools the keys of all others, filled with nulls that the template would print. As
text each row keeps its own; verl's data set reads lists alone.
"""

from __future__ import annotations

import json
from typing import Any

from cleaner_rl.train.masked_sft import MaskedSFTDataset


class Demonstrations(MaskedSFTDataset):
    """Rows with `messages` and `tools`, the latter as a list or as JSON text; `loss_mask` is heeded where it is."""

    tools: list[Any] | None

    def _read_files_and_process(self) -> None:
        super()._read_files_and_process()
        if self.tools is not None:
            self.tools = [json.loads(tools) if isinstance(tools, str) else tools for tools in self.tools]
