"""An engine that serves a small model in this process: for tests, and for machines without an engine."""

from __future__ import annotations

from pathlib import Path

from cleaner_rl.train.trl.engine import TransformersEngine


class LocalEngine(TransformersEngine):
    """A model of a folder, in this process."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        super().__init__(AutoModelForCausalLM.from_pretrained(folder).eval())
