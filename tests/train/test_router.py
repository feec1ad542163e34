from __future__ import annotations

from collections import Counter

import pytest

from cleaner_rl.train.verl.router import EvenRouter

SERVERS = {"a": "handle of a", "b": "handle of b"}


def router() -> EvenRouter:
    return EvenRouter(SERVERS, {"router_class": "…", "longest": 1_000})


def test_new_trajectories_spread_and_following_turns_stay() -> None:
    it = router()
    first = {name: it.acquire_server(name, prompt_ids=[0] * 50)[0] for name in "pqrs"}
    assert Counter(first.values()) == {"a": 2, "b": 2}
    for name, server in first.items():
        it.release_server(server, request_id=name)
    again = {name: it.acquire_server(name, prompt_ids=[0] * 90)[0] for name in "pqrs"}
    assert again == first
    assert it.get_status()["servers"] == {"a": 2, "b": 2}


def test_requests_of_one_trajectory_that_run_side_by_side_go_to_one_server() -> None:
    it = router()
    places = [it.acquire_server("p", prompt_ids=[0] * 50) for _ in range(5)]
    assert len({server for server, _ in places}) == 1
    assert it.get_total_inflight() == 5
    for server, _ in places:
        it.release_server(server, request_id="p")
    assert it.get_total_inflight() == 0
    assert it.acquire_server("p", prompt_ids=[0] * 60) == places[0]


def test_no_turn_is_held_back_however_many_there_are() -> None:
    it = router()
    places = Counter(it.acquire_server(str(number), prompt_ids=[0] * 900)[0] for number in range(1_000))
    assert places == {"a": 500, "b": 500}


def test_a_turn_moves_to_a_server_that_has_less_left_to_do() -> None:
    it = router()
    first = {name: it.acquire_server(name, prompt_ids=[0] * 50)[0] for name in "pqrstu"}
    for name, server in first.items():
        if server == "b" or name == "p":
            it.release_server(server, request_id=name)
    assert first["p"] == "a"
    assert it.acquire_server("p", prompt_ids=[0] * 90) == ("b", SERVERS["b"])
    assert it.get_status()["moves"] == 1


def test_a_server_that_is_gone_gets_no_more_requests() -> None:
    it = router()
    it.remove_servers(["a", "never there"])
    places = [it.acquire_server(name, prompt_ids=[0]) for name in "pqr"]
    assert {server for server, _ in places} == {"b"}
    assert it.get_all_servers() == ["b"]
    it.remove_servers(["b"])
    with pytest.raises(RuntimeError, match="No available servers"):
        it.acquire_server("s", prompt_ids=[0])


def test_a_trajectory_whose_server_went_away_goes_on_at_another() -> None:
    it = EvenRouter({"a": "handle of a"}, {"longest": 1_000})
    it.acquire_server("p", prompt_ids=[0] * 50)
    it.remove_servers(["a"])
    it.add_servers({"b": "handle of b"})
    beside = [it.acquire_server("p", prompt_ids=[0] * 60) for _ in range(2)]
    assert beside == [("b", "handle of b")] * 2
    for server in "abb":
        it.release_server(server, request_id="p")
    assert (it.get_total_inflight(), it.get_status()["servers"]) == (0, {"b": 0})
    assert it.acquire_server("p", prompt_ids=[0] * 70) == ("b", "handle of b")


def test_a_server_that_is_there_again_begins_empty() -> None:
    it = EvenRouter({"a": "handle of a"}, {"longest": 1_000})
    it.acquire_server("p", prompt_ids=[0] * 50)
    it.add_servers({"a": "another handle"})
    it.release_server("a", request_id="p")
    assert it.acquire_server("p", prompt_ids=[0] * 60) == ("a", "another handle")


def test_a_release_that_nobody_asked_for_changes_nothing() -> None:
    it = router()
    it.release_server("a", request_id="never there")
    it.release_server("a")
    assert it.get_total_inflight() == 0
