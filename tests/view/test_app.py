"""The server: read-only, on loopback alone, with a policy that lets the page load nothing else."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest

from cleaner_rl.view.app import POLICY
from cleaner_rl.view.library import Library
from tests.view.serving import served


@pytest.fixture(scope="module")
def address(library: Library) -> Iterator[str]:
    with served(library) as url:
        yield url


def ask(
    address: str, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_every_answer_carries_the_policy(address: str) -> None:
    for path in ("/", "/app.js", "/app.css", "/api/overview", "/api/list?edits=graft", "/nothing"):
        answer, body = ask(address, path)
        assert answer.getheader("content-security-policy") == POLICY
        assert answer.getheader("x-content-type-options") == "nosniff"
        assert len(body) == int(answer.getheader("content-length") or 0)
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY


def test_a_list_and_a_trajectory(address: str) -> None:
    page = json.loads(ask(address, "/api/list?edits=graft")[1])
    assert page["total"] == 1
    identity = quote(page["rows"][0]["id"], safe="")
    found = json.loads(ask(address, f"/api/trajectory?id={identity}")[1])
    assert found["turns"][0]["edit"]["kind"] == "graft"
    following = json.loads(ask(address, f"/api/next-edit?id={identity}&run=saar")[1])
    assert following["id"] == json.loads(ask(address, "/api/list?edits=replace")[1])["rows"][0]["id"]
    spans = json.loads(ask(address, f"/api/tokens?id={identity}")[1])["spans"]
    assert [span["owner"] for span in spans[:4]] == ["prompt", "reasoning", "action", "observation"]
    assert [span["learnt"] for span in spans[:4]] == [False, True, True, False]
    assert spans[2]["moved"]


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/api/list?size=x", 400, "size=x isn't a number"),
        ("/api/trajectory?id=..%2F..%2Fetc%2Fpasswd:0", 404, "there is no trajectory at"),
        ("/api/next-edit?id=nothing:0", 404, "there is no trajectory at"),
        ("/api/list?page=inf", 400, "page=inf is out of range"),
        ("/etc/passwd", 404, "there is nothing at"),
        ("/../../etc/passwd", 404, "there is nothing at"),
    ],
)
def test_what_cant_be_is_said(address: str, path: str, status: int, problem: str) -> None:
    answer, body = ask(address, path)
    assert answer.status == status
    assert problem in json.loads(body)["problem"]


@pytest.mark.parametrize("row", ["8", "9" * 18, "9" * 19, pytest.param("9" * 5000, id="9…"), "-1", "1.0", "²"])
@pytest.mark.parametrize("what", ["trajectory", "tokens"])
def test_a_row_that_isnt_there_is_not_found(address: str, library: Library, what: str, row: str) -> None:
    name, _, _ = library.page({})["rows"][0]["id"].rpartition(":")
    answer, body = ask(address, f"/api/{what}?id={quote(f'{name}:{row}', safe='')}")
    assert answer.status == 404
    assert "trajectory" in json.loads(body)["problem"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(address: str, method: str) -> None:
    assert ask(address, "/api/list", method)[0].status == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "192.168.0.7:80", "[::ffff:1.2.3.4]", "[::1", ""]
)
def test_a_name_from_elsewhere_is_not_answered(address: str, host: str) -> None:
    assert ask(address, "/api/list", headers={"Host": host})[0].status == 403


def test_head_says_the_same_without_a_body(address: str) -> None:
    answer, body = ask(address, "/", "HEAD")
    assert (answer.status, body) == (200, b"")


def test_an_export_is_a_file(address: str) -> None:
    answer, body = ask(address, "/export?edits=any")
    assert answer.getheader("content-disposition") == 'attachment; filename="trajectories.html"'
    assert b"<!doctype html>" in body
