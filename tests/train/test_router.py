from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from cleaner_rl.train.verl.router import EvenRouter

SERVERS = {"a": "handle of a", "b": "handle of b"}


def router(room: int = 0) -> EvenRouter:
    return EvenRouter(SERVERS, {"router_class": "…", "longest": 1_000, "room": room})


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


def test_new_trajectories_spread_and_following_turns_stay() -> None:
    async def story() -> None:
        it = router()
        first = {name: (await it.acquire_server(name, prompt_ids=[0] * 50))[0] for name in "pqrs"}
        assert Counter(first.values()) == {"a": 2, "b": 2}
        for name, server in first.items():
            it.release_server(server, request_id=name)
        again = {name: (await it.acquire_server(name, prompt_ids=[0] * 90))[0] for name in "pqrs"}
        assert again == first
        assert it.get_status()["servers"] == {"a": 2, "b": 2}

    run(story())


def test_requests_of_one_trajectory_that_run_side_by_side_go_to_one_server() -> None:
    async def story() -> None:
        it = router()
        places = await asyncio.gather(*[it.acquire_server("p", prompt_ids=[0] * 50) for _ in range(5)])
        assert len({server for server, _ in places}) == 1
        assert it.get_total_inflight() == 5
        for server, _ in places:
            it.release_server(server, request_id="p")
        assert it.get_total_inflight() == 0
        await it.acquire_server("p", prompt_ids=[0] * 60)

    run(story())


def test_what_doesnt_fit_waits_until_something_ended() -> None:
    async def story() -> None:
        it = router(room=1_000)
        running = [await it.acquire_server(name, prompt_ids=[0] * 900) for name in "pq"]
        waiting = asyncio.create_task(it.acquire_server("r", prompt_ids=[0] * 900))
        await asyncio.sleep(0)
        assert it.get_status()["waiting"] == 1
        it.release_server(running[0][0], request_id="p")
        assert (await waiting)[1] == SERVERS[running[0][0]]

    run(story())


def test_a_server_that_is_gone_gets_no_more_requests() -> None:
    async def story() -> None:
        it = router()
        it.remove_servers(["a", "never there"])
        places = [await it.acquire_server(name, prompt_ids=[0]) for name in "pqr"]
        assert {server for server, _ in places} == {"b"}
        assert it.get_all_servers() == ["b"]
        it.remove_servers(["b"])
        with pytest.raises(RuntimeError, match="No available servers"):
            await it.acquire_server("s", prompt_ids=[0])

    run(story())


def test_a_trajectory_whose_server_went_away_goes_on_at_another() -> None:
    async def story() -> None:
        it = EvenRouter({"a": "handle of a"}, {"longest": 1_000})
        await it.acquire_server("p", prompt_ids=[0] * 50)
        it.remove_servers(["a"])
        it.add_servers({"b": "handle of b"})
        beside = await asyncio.gather(*[it.acquire_server("p", prompt_ids=[0] * 60) for _ in range(2)])
        assert beside == [("b", "handle of b")] * 2
        for server in "abb":
            it.release_server(server, request_id="p")
        assert (it.get_total_inflight(), it.get_status()["servers"]) == (0, {"b": 0})
        assert await it.acquire_server("p", prompt_ids=[0] * 70) == ("b", "handle of b")

    run(story())


def test_a_server_that_goes_away_while_a_request_learns_of_it_isnt_given_out() -> None:
    async def story() -> None:
        it = router(room=1_000)
        for name in "pq":
            await it.acquire_server(name, prompt_ids=[0] * 900)
        waiting = asyncio.create_task(it.acquire_server("r", prompt_ids=[0] * 900))
        await asyncio.sleep(0)
        it.release_server("a", request_id="p")  # there is room now …
        it.remove_servers(["a"])  # … and at once no more
        it.release_server("b", request_id="q")
        assert await waiting == ("b", SERVERS["b"])

    run(story())


def test_a_server_that_is_there_again_begins_empty() -> None:
    async def story() -> None:
        it = EvenRouter({"a": "handle of a"}, {"longest": 1_000})
        await it.acquire_server("p", prompt_ids=[0] * 50)
        it.add_servers({"a": "another handle"})
        it.release_server("a", request_id="p")
        assert await it.acquire_server("p", prompt_ids=[0] * 60) == ("a", "another handle")

    run(story())


def test_a_release_that_nobody_asked_for_changes_nothing() -> None:
    async def story() -> None:
        it = router()
        it.release_server("a", request_id="never there")
        it.release_server("a")
        assert it.get_total_inflight() == 0

    run(story())
