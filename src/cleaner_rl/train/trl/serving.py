"""What a `GRPOTrainer` samples from: its own model, a vLLM in its process, or a vLLM server.

TRL itself copies the trainer's weights into vLLM, before it asks for rollouts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from cleaner_rl.rollout import Engine
from cleaner_rl.rollout.engines import Address, TransformersEngine, VllmEngine
from cleaner_rl.train.trl.colocated import ColocatedEngine

T = TypeVar("T")


class Source(Protocol):
    """A model that rollouts of one batch are sampled from."""

    def opened(self) -> AbstractAsyncContextManager[tuple[Engine, int]]:
        """Return the engine, and the longest context that it takes."""
        ...

    def drive(self, work: Future[T]) -> T:
        """Return the result of rollouts, which run in another thread. The trainer's thread calls it."""
        ...


def source_of(trainer: Any, model: Any, version: int) -> Source:
    """Return what this trainer samples from; `model` is its unwrapped model, and `version` numbers the weights."""
    if not trainer.use_vllm:
        return OwnModel(model, version)
    generation = trainer.vllm_generation
    if generation.mode == "server":
        base = generation.server_base_url
        return Server(f"http://{generation.server_host}:{generation.server_port}" if base is None else base)
    return Colocated(generation, version)


class OwnModel:
    """The trainer's own model, by transformers."""

    def __init__(self, model: Any, version: int) -> None:
        self._model, self._version = model, version

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Engine, int]]:
        """Return the engine and the model's positions."""
        yield TransformersEngine(self._model, self._version), int(self._model.config.max_position_embeddings)

    def drive(self, work: Future[T]) -> T:
        """Wait for the rollouts."""
        return work.result()


class Colocated:
    """The vLLM that TRL runs in the trainer's process (`vllm_mode="colocate"`)."""

    def __init__(self, generation: Any, version: int) -> None:
        self._generation = generation
        self._engine = ColocatedEngine(generation.llm, version)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Engine, int]]:
        """Return the engine and its window, less the one token that vLLM samples after a prompt that it only scores."""
        yield self._engine, int(self._generation.llm.llm_engine.model_config.max_model_len) - 1

    def drive(self, work: Future[T]) -> T:
        """Run vLLM in this thread, which made it, while the rollouts ask; with sleep mode, wake it up for that long."""
        generation = self._generation
        if not generation.enable_sleep_mode:
            return self._engine.drive(work)
        if generation._llm_weights_sleeping:  # a second batch at the same step: TRL loads them once
            generation.sync_weights()
        generation.llm.wake_up(tags=["kv_cache"])
        try:
            return self._engine.drive(work)
        finally:
            generation.llm.sleep(level=2)
            generation._llm_weights_sleeping = True


class Server:
    """The server that TRL sends its weights to (`vllm_mode="server"`)."""

    def __init__(self, url: str) -> None:
        self._url = url

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Engine, int]]:
        """Return the engine and the server's window, less the one token, as above."""
        async with Address(self._url) as address:
            engine = VllmEngine(address)
            yield engine, await engine.window() - 1

    def drive(self, work: Future[T]) -> T:
        """Wait for the rollouts."""
        return work.result()
