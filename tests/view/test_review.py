"""A review: which decisions are shown, what is kept of an answer, and the rates and rows that follow."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.trajectory import Said, read_reviews, reviewed
from cleaner_rl.trajectory.store import read
from cleaner_rl.view import Review, sample
from cleaner_rl.view.review import What, interval
from cleaner_rl.view.review_page import ReviewApplication
from tests.logs.cases import CASES
from tests.logs.rendering import openai


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("review")
    logs = folder / "logs.jsonl"
    logs.write_text("".join(json.dumps(openai(case)) + "\n" for case in CASES))
    arguments = ["purify", str(logs), "--out", str(folder / "clean"), "--no-replay", "--sft", "jsonl"]
    assert CliRunner().invoke(main, arguments, catch_exceptions=False).exit_code == 0
    return folder / "clean"


def items(clean: Path, size: int = 60) -> list[Any]:
    return sample(read(clean / "store"), size)


def test_a_sample_has_each_kind_of_decision_and_is_the_same_again(clean: Path) -> None:
    found = items(clean, 12)
    assert {each.what for each in found} == set(What)
    assert all(sum(each.what is what for each in found) <= 3 for what in What)
    assert len({each.id for each in found}) == len(found)
    assert items(clean, 12) == found


def test_an_edit_is_shown_with_what_it_replaced(clean: Path) -> None:
    edits = [each for each in items(clean) if each.what is What.EDIT]
    texts = [dict(each.texts) for each in edits]
    assert any("print(1 + )" in each["what the agent did"] for each in texts)
    assert any("print(1 + 1)" in each["the turn as it is now"] for each in texts)
    assert all("SyntaxError" in each["what it got"] for each in texts if "print(1 + )" in each["what the agent did"])


def test_answers_are_kept_at_once_the_latest_counts_and_a_review_goes_on(clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "reviews.jsonl"
    found = items(clean, 12)
    review = Review(found, path)
    review.answer(found[0].id, Said.WRONG)
    review.answer(found[1].id, Said.RIGHT)
    review.answer(found[1].id, Said.UNKNOWN)
    with path.open("a") as file:
        file.write('{"id": "half')
    again = Review(found, path)
    assert again.said == {found[0].id: Said.WRONG, found[1].id: Said.UNKNOWN}
    assert [each["said"] for each in again.to_json()["items"]][:3] == ["wrong", "can't tell", None]
    edited = again.rates()["edited"]
    assert (edited["judged"], edited["wrong"], edited["cant_tell"]) == (1, 1, 1)
    with pytest.raises(KeyError):
        review.answer("0" * 16, Said.RIGHT)


@pytest.mark.parametrize(
    ("part", "of", "expected"), [(0, 20, (0.0, 16.8)), (10, 20, (27.2, 72.8)), (5, 5, (47.8, 100.0))]
)
def test_intervals_are_those_of_clopper_and_pearson(part: int, of: int, expected: tuple[float, float]) -> None:
    assert interval(part, of) == expected


def asked(review: Review, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    sent: list[Any] = []
    given = {"host": "127.0.0.1:80", **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(ReviewApplication(review)(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


def test_only_the_page_on_this_machine_can_answer(clean: Path, tmp_path: Path) -> None:
    found = items(clean, 4)
    review = Review(found, tmp_path / "reviews.jsonl")
    said = json.dumps({"id": found[0].id, "said": "wrong"}).encode()
    kind = "application/json"
    assert asked(review, "POST", "/api/answer", said, content_type="text/plain")[0] == 404
    assert asked(review, "POST", "/api/answer", said, content_type=kind, host="evil.example")[0] == 403
    assert asked(review, "POST", "/api/answer", b"{}", content_type=kind)[0] == 400
    assert review.said == {}
    assert asked(review, "POST", "/api/answer", said, content_type=kind)[0] == 200
    assert read_reviews(tmp_path / "reviews.jsonl") == {found[0].id: Said.WRONG}
    status, page = asked(review, "GET", "/")
    assert status == 200
    assert b"script-src 'sha256-" in page


def test_what_was_found_wrong_is_undone_and_masked(clean: Path, tmp_path: Path) -> None:
    wrong = [each for each in items(clean, 400) if each.what in (What.EDIT, What.OK)]
    review = Review(wrong, tmp_path / "reviews.jsonl")
    for each in wrong:
        review.answer(each.id, Said.WRONG)
    names = {each.id for each in wrong}
    stored: list[Any] = list(read(clean / "store"))
    for trajectory in stored:
        after = reviewed(trajectory, names)
        assert not after.edits
        doubted = [turn for turn in trajectory.turns if turn.edit is None and turn.verified and turn.results]
        assert not any(turn in after.turns for turn in doubted)
    arguments = ["purify", str(clean.parent / "logs.jsonl"), "--out", str(tmp_path / "out"), "--no-replay", "--json"]
    ran = CliRunner().invoke(
        main, [*arguments, "--sft", "jsonl", "--reviews", str(tmp_path / "reviews.jsonl")], catch_exceptions=False
    )
    told = json.loads(ran.stdout)
    assert told["edits"] == {}
    assert told["left_alone"]["reviewed"] >= 9
    for line in (tmp_path / "out/sft/part-000000.jsonl").read_text().splitlines():
        row = json.loads(line)
        taught = [each for each, mask in zip(row["messages"], row["loss_mask"], strict=True) if mask]
        assert "print(1 + y)" not in json.dumps(taught), "what the edits had replaced"
        assert row["edits"] == 0


def test_the_command_tells_the_rates(clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "reviews.jsonl"
    found = [each for each in items(clean) if each.what is What.FAILED]
    for each in found:
        Review(found, path).answer(each.id, Said.RIGHT)
    ran = CliRunner().invoke(main, ["review", str(clean), "--rates", "--reviews", str(path)], catch_exceptions=False)
    assert f"judged failed {len(found):>4} of {len(found):>3} judged: 0 wrong, 0.0 % (0.0 to " in ran.stdout
    assert f"--reviews {path}" in ran.stdout
