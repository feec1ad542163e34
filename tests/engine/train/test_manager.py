"""Whom our manager asks before a run begins; stand-ins play verl's processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cleaner_rl.train import to_recipe
from tests.train.recipes import values

pytestmark = pytest.mark.timeout(300)  # verl's import takes long


class Process:
    """Notes that it was asked."""

    def __init__(self) -> None:
        self.asked = False
        self.__ray_call__ = SimpleNamespace(remote=self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True


def test_servers_apart_from_the_trainer_are_asked_too() -> None:
    from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

    from cleaner_rl.train.verl.manager import CleanerManager
    from cleaner_rl.train.verl.wiring import announce_sampler

    loop, actor, hybrid, standalone, router = (Process() for _ in range(5))
    trainer = object.__new__(PPOTrainerSeparateAsync)
    trainer.actor_rollout_wg = SimpleNamespace(workers=[actor])
    trainer.llm_server_manager = SimpleNamespace(server_handles=[hybrid])
    trainer.standalone_server_manager = SimpleNamespace(server_handles=[standalone])
    announce_sampler(SimpleNamespace(trainer=trainer))
    manager = object.__new__(CleanerManager)
    manager.agent_loop_workers, manager._recipe = [loop], to_recipe(values())
    manager.llm_client = SimpleNamespace(_load_balancer=router)

    list(manager._questions())

    assert all(each.asked for each in (loop, actor, hybrid, standalone, router))
