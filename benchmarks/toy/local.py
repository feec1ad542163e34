"""An engine that serves a small model in this process: for tests, and for machines without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cleaner_rl.rollout.engines import TransformersEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LocalEngine(TransformersEngine):
    """Serves a model, or the model of a folder, in this process."""

    def __init__(self, model: Path | PreTrainedModel) -> None:
        from transformers import AutoModelForCausalLM

        super().__init__(AutoModelForCausalLM.from_pretrained(model).eval() if isinstance(model, Path) else model)
