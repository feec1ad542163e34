"""What the pages are given: lists, pages, groups, curves, and what happens when files come, change and go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from time import sleep

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cleaner_rl.train.record import figures_of
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import JsonlWriter, StoreError
from cleaner_rl.view import DEMO, evaluations, index, search
from cleaner_rl.view import library as views
from cleaner_rl.view.curves import CURVES
from cleaner_rl.view.library import Library, UnknownTrajectoryError
from cleaner_rl.view.lines import tables_of
from cleaner_rl.view.page import page_of
from cleaner_rl.view.query import SORTS, BadQueryError
from cleaner_rl.view.search import rows_with
from cleaner_rl.view.sources import NothingToShowError, discover
from tests.view import killing
from tests.view.stores import broken, clean, grafted, hostile, moved, replaced, uncorrected, write

FILTERS = {
    "": 8,
    "run=saar": 6,
    "run=nobody": 0,
    "task=OTH": 2,
    "group=sum": 6,
    "outcome=solved": 5,
    "outcome=failed": 3,
    "outcome=ungraded": 0,
    "edits=any": 2,
    "edits=graft": 1,
    "edits=replace": 1,
    "edits=none": 6,
    "edits=uncorrected": 0,
    "status=timeout": 3,
    "status=error": 5,
    "stop_reason=turn_limit": 3,
    "kept=yes": 1,
    "kept=no": 1,
    "kept=unknown": 6,
    "reward_min=1": 5,
    "reward_max=0.5": 3,
    "similarity_min=0.9": 1,
    "step_min=1&step_max=1": 3,
    "failed_min=2": 3,
    "turns_max=1": 0,
    "length_min=1": 8,
    "q=other": 2,
    "q=ANSWER": 5,
    "edits=graft&outcome=solved&run=saar": 1,
}


def parameters(query: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in query.split("&") if part)


@pytest.mark.parametrize(("query", "count"), FILTERS.items())
def test_a_filter_finds_its_trajectories(library: Library, query: str, count: int) -> None:
    page = library.page(parameters(query))
    assert page["total"] == count == len(page["rows"])


@pytest.mark.parametrize("sort", SORTS)
def test_a_sort_puts_in_order_and_what_is_unknown_last(library: Library, sort: str) -> None:
    for sign in ("", "-"):
        rows = library.page({"sort": sign + sort})["rows"]
        column = {"run": "run_id", "task": "title"}.get(sort, sort)
        values = [row["grafts"] + row["replacements"] if sort == "edits" else row[column] for row in rows]
        known = [value for value in values if value is not None]
        assert values == known + [None] * (len(values) - len(known))
        assert all((a >= b) if sign else (a <= b) for a, b in pairwise(known))


def test_a_list_names_the_columns_that_its_store_has(library: Library, log_library: Library) -> None:
    held = {"step", "reward", "outcome", "stop_reason", "edits", "similarity", "kept"}
    assert set(library.page({})["columns"]) == held
    assert set(library.page({"kept": "unknown"})["columns"]) == held
    assert set(log_library.page({})["columns"]) == {"edits", "similarity", "source"}


def test_records_of_a_log_are_in_its_order_and_found_by_their_place(log_library: Library) -> None:
    sources = [row["source"].rpartition("/")[2] for row in log_library.page({})["rows"]]
    assert sources == [f"view_log.jsonl:{line}" for line in range(1, 6)]
    (found,) = log_library.page({"q": "view_log.jsonl:3"})["rows"]
    assert found["title"] == "Which three customers spent most this year?"


def test_the_next_edit_is_that_of_the_list_that_is_looked_at(library: Library, log_library: Library) -> None:
    def following(place: int, **parameters: str) -> str | None:
        found: str | None = log_library.next_edit(rows[place], parameters)["id"]
        return found

    rows = [row["id"] for row in log_library.page({})["rows"]]  # of which the last has no edit
    assert [following(place) for place in range(5)] == [*rows[1:4], None, None]
    longest = [row["id"] for row in log_library.page({"sort": "-length", "edits": "any"})["rows"]]
    asked = {"sort": "-length", "page": "3", "size": "1", "edits": "none"}
    assert following(4, **asked) == longest[0]
    assert log_library.next_edit(longest[1], asked)["id"] == longest[2]
    assert following(2, sort="length", q="numeric-sort", inside="yes") == rows[0]
    assert following(0, sort="length", q="numeric-sort", inside="yes") is None
    graft = library.page({"edits": "graft"})["rows"][0]["id"]
    assert library.next_edit(graft, {"edits": "graft"})["id"] is None
    assert library.next_edit(graft, {})["id"] == library.page({"edits": "replace"})["rows"][0]["id"]
    with pytest.raises(UnknownTrajectoryError):
        library.next_edit("nowhere:0", {})


def test_pages_part_a_list_without_loss(library: Library) -> None:
    everything = [row["id"] for row in library.page({"sort": "-reward"})["rows"]]
    pages = [library.page({"sort": "-reward", "size": "3", "page": str(page)})["rows"] for page in range(4)]
    assert [len(page) for page in pages] == [3, 3, 2, 0]
    assert [row["id"] for page in pages for row in page] == everything


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("color=red", "there is no filter 'color'"),
        ("edits=some", "choose one of any, graft, replace, uncorrected, none"),
        ("reward_min=much", "reward_min=much isn't a number"),
        ("size=100000", "out of range"),
        ("page=nan", "out of range"),
        ("page=inf", "out of range"),
        ("page=1e18", "out of range"),
        ("size=1.5", "size=1.5"),
        ("sort=reward; DROP TABLE files", "choose one of"),
    ],
)
def test_a_filter_that_cant_be_is_refused(library: Library, query: str, message: str) -> None:
    with pytest.raises(BadQueryError, match=message):
        library.page(parameters(query))


@pytest.mark.parametrize("value", ["'", "' OR 1=1 --", "%", "_", "\\", "\x00", "run_id"])
def test_what_a_reader_types_is_never_sql(library: Library, value: str) -> None:
    for name in ("q", "task", "run", "group"):
        assert library.page({name: value})["total"] == 0


def test_a_trajectory_comes_with_its_edit_and_its_group(library: Library) -> None:
    (row,) = library.page({"edits": "graft"})["rows"]
    found = library.trajectory(row["id"])
    edit = found["turns"][0]["edit"]
    assert (edit["mode"], edit["kind"], len(edit["original"])) == ("hindsight", "graft", 2)
    assert edit["original"][0]["calls"][0]["code"] == "print(y)\nprint(3)\n"
    assert found["turns"][0]["moved"] == ["action"]
    assert found["turns"][1]["moved"] == ["reasoning"]
    assert [each["rollout"] for each in found["siblings"]] == [0, 1, 2, 3]
    assert [each["kept"] for each in found["siblings"]] == [True, None, None, False]
    assert found["siblings"][3]["verdict"]["why"] == "a failure, not drawn: 0 of 1 are kept"


def test_a_large_group_is_cut_and_says_so(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = library.page({"edits": "graft"})["rows"]
    assert library.trajectory(row["id"])["rollouts"] == 4
    monkeypatch.setattr(views, "SIBLINGS", 2)
    found = library.trajectory(row["id"])
    assert (len(found["siblings"]), found["rollouts"]) == (2, 4)


@pytest.mark.parametrize("address", ["", "nothing:0", "../../etc/passwd:0", "/etc/passwd:0", "x", "metrics.jsonl:0"])
def test_an_address_leads_to_trajectories_of_the_store_alone(library: Library, address: str) -> None:
    with pytest.raises(UnknownTrajectoryError):
        library.trajectory(address)


def test_curves_come_from_the_store_and_the_log_has_the_last_word(library: Library) -> None:
    runs = {run["id"]: run for run in library.overview()["runs"]}
    assert runs["grpo"]["curves"]["reward"] == {"steps": [0, 1], "values": [1.0, 0.0]}
    assert runs["saar"]["curves"]["reward"] == {"steps": [0, 1, 2, 3], "values": [0.0, 0.25, 0.5, 0.75]}
    assert runs["saar"]["curves"]["errors_per_trajectory"] == {"steps": [0, 1], "values": [0.5, 1.0]}
    assert runs["saar"]["curves"]["repaired"] == {"steps": [0, 1], "values": [0.5, 0.0]}
    assert runs["saar"]["curves"]["grafts"]["values"] == [0.25, 0.0]
    assert runs["saar"]["logged"] == ["actor/entropy", "reward"]


def found_inside(library: Library, **wanted: str) -> int:
    page = library.page({"inside": "yes", **wanted})
    while page["searching"] is not None:
        page = library.page({"inside": "yes", **wanted})
    return int(page["total"])


def test_a_curve_of_the_store_is_what_a_trainer_logs(tmp_path: Path) -> None:
    rows = [
        grafted(),
        replaced(),
        uncorrected(2),
        uncorrected(3),
        broken(4),
        clean(5),
        moved(0.25, 0.75),
        moved(1.0, rollout=7),
    ]
    logged = figures_of(rows)
    with Library(write(tmp_path / "store", rows), tmp_path / "cache") as library:
        library.update()
        (run,) = library.overview()["runs"]
    assert logged["repaired"] == 5 / 9
    assert logged["logprob_gap"] == 0.75
    drawn = {name: curve["values"] for name, curve in run["curves"].items()}
    assert drawn == {name: [pytest.approx(logged[name])] for name in drawn}
    assert drawn.keys() == CURVES.keys()


def test_text_inside_of_turns_is_found_with_all_other_filters(library: Library) -> None:
    assert found_inside(library, q="i PRINT y") == 5  # in what edits took away, too
    assert found_inside(library, q="I print y", outcome="solved") == 2
    assert found_inside(library, q="nowhere") == 0
    assert found_inside(library, q="print(2)") == 5
    assert found_inside(library, q="other") == library.page({"q": "other"})["total"] == 2  # a task's name


def test_a_search_that_ends_while_its_page_is_made_is_not_over_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Event()

    def later(path: Path, text: str) -> Iterator[int]:
        held.wait(60)
        return rows_with(path, text)

    def before(scan: search.Scan) -> pa.Table:
        found = hits(scan)
        held.set()
        assert scan.finished.wait(60)
        return found

    hits = views._hits
    monkeypatch.setattr(search, "PATIENCE", 0)
    monkeypatch.setattr(search, "rows_with", later)
    monkeypatch.setattr(views, "_hits", before)
    with Library(write(tmp_path / "store", [grafted()]), tmp_path / "cache") as library:
        library.update()
        assert found_inside(library, q="print(y)") == 1


def test_a_text_is_looked_for_in_files_that_come_later_and_in_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def watched(path: Path, text: str) -> Iterator[int]:
        read.append(path.name)
        return rows_with(path, text)

    monkeypatch.setattr(search, "rows_with", watched)
    store = write(tmp_path / "store", [grafted()])
    with Library(store, tmp_path / "cache") as library:
        for count in (1, 2):
            library.update()
            assert found_inside(library, q="print(y)") == count
            write(store, [broken(count)])
        assert len(read) == len(set(read)) == 2


def test_what_was_found_in_a_file_that_is_gone_shows_no_other(tmp_path: Path) -> None:
    store = write(tmp_path / "store", [grafted()])
    with Library(store, tmp_path / "cache") as library:
        library.update()
        assert found_inside(library, q="print(y)") == 1
        next(store.rglob("part-*")).unlink()
        write(store, [clean()])
        library.update()
        assert library.page({})["total"] == 1
        assert found_inside(library, q="print(y)") == 0


def test_an_export_has_all_that_is_found_whatever_is_looked_for_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(path: Path, text: str) -> Iterator[int]:
        sleep(0.05)
        if text == "print(y)":
            library.page({"q": "something else", "inside": "yes"})
        return rows_with(path, text)

    monkeypatch.setattr(search, "PATIENCE", 0)
    monkeypatch.setattr(search, "rows_with", slowly)
    with Library(write(tmp_path / "store", [grafted(), broken(step=1)]), tmp_path / "cache") as library:
        library.update()
        page = page_of(library, {"q": "print(y)", "inside": "yes"}).page.decode()
    assert len(json.loads(page.split('id="data">')[1].split("</script>")[0])["rows"]) == 2


def test_the_same_text_is_found_in_both_formats(tmp_path: Path) -> None:
    trajectories = [grafted(), clean(), broken()]
    (part,) = write(tmp_path / "store", trajectories).rglob("*.parquet")
    with JsonlWriter(tmp_path / "store.jsonl") as writer:
        for each in trajectories:
            writer.write(each)
    for text, rows in {
        "print(Y)": [0, 2],
        "1+1": [0, 1, 2],
        "NameError": [0, 2],
        "answer is": [0, 1],
        "": [0, 1, 2],
    }.items():
        assert list(rows_with(part, text)) == list(rows_with(tmp_path / "store.jsonl", text)) == rows


def test_files_come_change_and_go(tmp_path: Path) -> None:
    store = write(tmp_path / "store", [grafted()])
    with Library(store, tmp_path / "cache") as library:
        library.update()
        write(store, [clean(5)])
        assert library.page({})["total"] == 1
        read: list[str] = []
        library.update(lambda file: read.append(file.name))
        assert library.page({})["total"] == 2
        assert len(read) == 1
        next(store.rglob("part-00000-*")).unlink()
        library.update()
        assert [row["rollout"] for row in library.page({})["rows"]] == [5]
    with Library(store, tmp_path / "cache") as again:
        assert again.index.stale(again.sources) == []
        assert again.page({})["total"] == 1


def test_a_look_at_one_file_leaves_its_folders_index_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with JsonlWriter(tmp_path / "runs" / f"{name}.jsonl") as writer:
            writer.write(clean(run=name))
    for path, count in ((tmp_path / "runs", 2), (tmp_path / "runs" / "a.jsonl", 1)):
        with Library(path, tmp_path / "cache") as library:
            library.update()
            assert library.page({})["total"] == count
    with Library(tmp_path / "runs", tmp_path / "cache") as again:
        assert again.index.stale(again.sources) == []


def test_a_file_that_cant_be_read_is_told_of_and_harms_no_other(tmp_path: Path) -> None:
    store = write(tmp_path / "store", [grafted()])
    (store / "run=x").mkdir()
    (store / "run=x" / "broken.parquet").write_bytes(b"PAR1 and no more")
    (store / "notes.jsonl").write_text('{"not": "ours"}\n')
    with Library(store, tmp_path / "cache") as library:
        library.update()
        assert library.page({})["total"] == 1
        names = [problem["name"] for problem in library.overview()["problems"]]
        assert names == ["notes.jsonl", "run=x/broken.parquet"]


def test_a_file_that_nobody_could_read_harms_no_other(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "deep.jsonl").write_text("[" * 200_000)
    write(tmp_path / "store", [grafted()])
    with Library(tmp_path / "store", tmp_path / "cache") as library:
        library.update()
        assert library.page({})["total"] == 1
        (problem,) = library.overview()["problems"]
        assert "deep.jsonl can't be read: RecursionError" in problem["problem"]


def test_finding_number_that_no_float_holds_in_a_metrics_file_is_left_out(tmp_path: Path) -> None:
    store = write(tmp_path / "store", [grafted()])
    lines = [f'{{"run": "saar", "step": 1, "metrics": {{"huge": 1{"0" * 400}, "reward": 0.5}}}}', "[" * 100_000]
    (store / "metrics.jsonl").write_text("\n".join(lines))
    with Library(store, tmp_path / "cache") as library:
        library.update()
        (run,) = library.overview()["runs"]
    assert run["logged"] == ["reward"]


def test_finding_replaced_turns_that_are_under_each_other_are_a_problem_of_their_file(tmp_path: Path) -> None:
    store = write(tmp_path / "store", [grafted()])
    (file,) = store.rglob("*.parquet")
    table = pq.read_table(file)
    place = table.schema.get_field_index("replaced")
    rows = table.column(place).to_pylist()
    history = len(table.column("turns").to_pylist()[0])
    rows[0][0]["under"], rows[0][1]["under"] = history + 1, history
    circle = table.set_column(place, table.schema.field(place), pa.array(rows, table.schema.field(place).type))
    pq.write_table(circle, file)
    with Library(store, tmp_path / "cache") as library:
        library.update()
        (problem,) = library.overview()["problems"]
        assert "under" in problem["problem"]


def test_only_the_file_whose_reader_is_killed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SEVERAL", 0)
    monkeypatch.setattr(index, "lines_of", killing.lines_of)
    store = write(tmp_path / "store", [clean(step=step) for step in range(4)])
    with JsonlWriter(store / killing.DEADLY) as writer:
        writer.write(broken())
    with Library(store, tmp_path / "cache") as library:
        library.update()
        assert library.page({})["total"] == 4
        (problem,) = library.overview()["problems"]
        assert problem["name"] == killing.DEADLY
        assert "was killed" in problem["problem"]


def test_an_index_in_the_making_can_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SEVERAL", 0)
    store = write(tmp_path / "store", [clean(step=step) for step in range(12)])
    with Library(store, tmp_path / "cache") as library:
        seen = Event()
        indexing = Thread(target=library.update, args=(lambda _: seen.set(),))
        indexing.start()
        assert seen.wait(60)
        assert library.page({})["rows"]
    indexing.join(60)
    assert not indexing.is_alive()
    with Library(store, tmp_path / "cache") as library:
        library.update()
        assert library.page({})["total"] == 12


def test_the_first_lines_are_seen_before_their_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SEVERAL", 0)
    store = write(tmp_path / "store", [clean(number) for number in range(600)])
    go_on = Event()

    def slowly(path: Path) -> Iterator[pa.Table]:
        for table in tables_of(path):
            yield table
            assert go_on.wait(60)

    monkeypatch.setattr(index, "tables_of", slowly)
    with Library(store, tmp_path / "cache") as library:
        indexing = Thread(target=library.update)
        indexing.start()
        assert library.index.begun.wait(60)
        page = library.page({"size": "1000"})
        assert len(page["rows"]) == page["total"] == 256
        assert page["progress"]["left"] == 1
        assert page["runs"] == ["saar"]
        assert library.trajectory(page["rows"][255]["id"])["key"]["rollout"] == 255
        library.update()  # somebody is at it already: no one waits for that
        go_on.set()
        indexing.join(60)
        assert library.page({})["total"] == 600
        assert library.page({})["progress"]["left"] == 0


def test_a_file_that_was_begun_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = write(tmp_path / "store", [clean(number) for number in range(300)])

    def killed(path: Path) -> Iterator[pa.Table]:
        yield next(tables_of(path))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, Library(store, tmp_path / "cache") as library:
        patched.setattr(index, "tables_of", killed)
        with pytest.raises(KeyboardInterrupt):
            library.update()
        assert library.page({})["total"] == 256
    with Library(store, tmp_path / "cache") as library:
        assert len(library.index.stale(library.sources)) == 1
        library.update()
        assert library.page({})["total"] == 300


def test_what_was_read_of_a_broken_file_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = write(tmp_path / "store", [clean(number) for number in range(300)])

    def broken_off(path: Path) -> Iterator[pa.Table]:
        yield next(tables_of(path))
        raise StoreError("the rest can't be read")

    monkeypatch.setattr(index, "tables_of", broken_off)
    with Library(store, tmp_path / "cache") as library:
        library.update()
        assert library.page({})["total"] == 0
        assert [each["problem"] for each in library.overview()["problems"]] == ["the rest can't be read"]


def test_a_second_viewer_makes_its_own_index(tmp_path: Path) -> None:
    store = write(tmp_path / "store", [grafted(), clean()])
    (tmp_path / "cache").write_text("no folder")  # as little to be written to as a locked one
    with Library(store, tmp_path / "cache") as library:
        library.update()
        assert not library.index.shared
        assert library.page({})["total"] == 2


def test_jsonl_and_runs_of_the_same_name(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a" / "trajectories", [grafted()])
    write(tmp_path / "runs" / "b" / "trajectories", [broken()])
    with JsonlWriter(tmp_path / "runs" / "c.jsonl") as writer:
        writer.write(clean(7))
    with Library(tmp_path / "runs", tmp_path / "cache") as library:
        library.update()
        assert [run["id"] for run in library.overview()["runs"]] == ["a/saar", "b/saar", "saar"]
        (row,) = library.page({"run": "saar"})["rows"]
        assert library.trajectory(row["id"])["key"]["rollout"] == 7
        assert len(library.trajectory(library.page({"run": "a/saar"})["rows"][0]["id"])["siblings"]) == 1


def logged(folder: Path, run: str, reward: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text(json.dumps({"run": run, "step": 0, "metrics": {"reward": reward}}) + "\n")


def rewards(path: Path, cache: Path) -> dict[str, list[float]]:
    with Library(path, cache) as library:
        library.update()
        return {run["id"]: run["curves"]["reward"]["values"] for run in library.overview()["runs"]}


def test_a_log_belongs_to_the_run_in_its_folder(tmp_path: Path) -> None:
    for name, reward in (("a", 0.25), ("b", 0.5)):
        write(tmp_path / "runs" / name / "trajectories", [clean()])
        logged(tmp_path / "runs" / name, "saar", reward)
    assert rewards(tmp_path / "runs", tmp_path / "cache") == {"a/saar": [0.25], "b/saar": [0.5]}
    assert rewards(tmp_path / "runs" / "a" / "trajectories", tmp_path / "cache") == {"saar": [0.25]}


def test_a_log_of_no_run_in_its_folder_belongs_to_the_one_that_lacks_a_log(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "runs" / name / "trajectories", [clean()])
    logged(tmp_path / "runs" / "a", "saar", 0.25)
    logged(tmp_path / "runs" / "logs", "saar", 0.5)
    assert rewards(tmp_path / "runs", tmp_path / "cache") == {"a/saar": [0.25], "b/saar": [0.5]}


def test_no_two_logs_are_poured_into_one_run(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a" / "trajectories", [clean()])
    for place, reward in (("a", 0.25), ("b", 0.5), ("saar", 0.75), ("", 1.0)):
        logged(tmp_path / "runs" / place, "saar", reward)
    assert rewards(tmp_path / "runs", tmp_path / "cache") == {
        "a/saar": [0.25],
        "b/saar": [0.5],
        "saar": [1.0],
        "saar (in saar)": [0.75],
    }


def test_evaluations_of_one_folder_are_told_apart(tmp_path: Path) -> None:
    for fingerprint, made in (("3f2a", clean(run="off")), ("9c1b", broken(run="off"))):
        write(tmp_path / "out" / "trajectories" / fingerprint, [made])
    for path, front in ((tmp_path / "out", ""), (tmp_path, "out/")):
        with Library(path, tmp_path / "cache") as library:
            library.update()
            assert [run["id"] for run in library.overview()["runs"]] == [f"{front}3f2a/off", f"{front}9c1b/off"]


def test_an_evaluation_is_read_again_only_if_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    read_bytes = Path.read_bytes

    def watched(path: Path) -> bytes:
        read.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", watched)
    found = json.loads((DEMO / "grpo.json").read_text())
    (tmp_path / "eval.json").write_text(json.dumps(found))
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with Library(tmp_path, tmp_path / "cache") as library:
        for _ in range(2):
            assert [each["model"] for each in library.overview()["evaluations"]] == ["grpo"]
        assert sorted(read) == ["deep.json", "eval.json"]
        (tmp_path / "eval.json").write_text(json.dumps({**found, "model": "another"}))
        assert [each["model"] for each in library.overview()["evaluations"]] == ["another"]
        monkeypatch.setattr(evaluations, "LARGEST", 100)
        assert library.overview()["evaluations"] == []
        assert len(read) == 3


def test_verls_own_metrics_of_a_run_under_way_are_no_store(tmp_path: Path) -> None:
    (tmp_path / "verl-0.jsonl").write_text('{"step": 1, "data": {"actor/loss": 0.5}}\n')
    assert discover(tmp_path).files == ()


def test_links_to_nothing_are_passed_by(tmp_path: Path) -> None:
    store = write(tmp_path / "run", [clean()])
    for name in ("part.parquet", "log.jsonl", "metrics.jsonl", "tokenizer.json", "results.json"):
        (store / name).symlink_to(tmp_path / "gone")
    with Library(store, tmp_path / "cache") as library:
        library.update()
        overview = library.overview()
        assert [run["id"] for run in overview["runs"]] == ["saar"]
        assert (overview["evaluations"], overview["problems"]) == ([], [])
        assert overview["progress"]["files"] == 1


def test_the_nearest_tokenizer_counts(tmp_path: Path) -> None:
    store = write(tmp_path / "run" / "trajectories", [clean()])
    for folder in (tmp_path / "run" / "checkpoints" / "1", tmp_path / "run"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text("{}")
    for path in (tmp_path / "run", store):
        assert discover(path).tokenizer == tmp_path / "run" / "tokenizer.json"


def test_nothing_to_show_says_so(tmp_path: Path) -> None:
    with pytest.raises(NothingToShowError, match="no such"):
        Library(tmp_path / "nowhere")
    with pytest.raises(NothingToShowError, match="store"):
        Library(tmp_path)


def test_an_exported_page_holds_its_data_and_no_way_out(tmp_path: Path) -> None:
    with Library(write(tmp_path / "store", [hostile(), grafted()]), tmp_path / "cache") as library:
        library.update()
        page = page_of(library, {}).page.decode()
    assert page.count("<script") == 2
    assert "default-src 'none'" in page
    assert "connect-src" not in page
    data = page.split('id="data">')[1].split("</script>")[0]
    assert "<" not in data
    assert len(json.loads(data)["trajectories"]) == 2


def test_an_evaluation_is_a_run_of_its_own_and_old_metrics_have_new_names(tmp_path: Path) -> None:
    held_out = replace(clean(0), key=replace(clean(0).key, phase=Phase.EVALUATION))
    write(tmp_path / "trajectories", [clean(0), held_out])
    line = {"run": clean(0).key.run, "step": 0, "metrics": {"mended": 0.5, "graft_gap": 1.5}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    with Library(tmp_path, tmp_path / "cache") as library:
        library.update()
        runs = {each["id"]: each for each in library.overview()["runs"]}
        assert [row["run_id"] for row in library.page({"phase": "evaluation"})["rows"]] == ["saar (evaluation)"]
    assert {name: each["trajectories"] for name, each in runs.items()} == {"saar": 1, "saar (evaluation)": 1}
    assert runs["saar"]["curves"]["repaired"]["values"] == [0.5]
    assert runs["saar"]["curves"]["logprob_gap"]["values"] == [1.5]
