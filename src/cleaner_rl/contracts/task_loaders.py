"""What every data set's loader must do."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from cleaner_rl.tasks import GRADERS, DatasetError, Row, SkippedRowError, Source, Task


class TaskLoaderContract:
    """Subclass it, name the subclass `Test…`, and give `source` and `rows`."""

    name = "mine"
    """What the data set is called: the name of the entry point."""

    def source(self) -> Source:
        """Where the data set is, and how a row is read."""
        raise NotImplementedError

    def rows(self) -> Sequence[Mapping[str, object]]:
        """Some rows, as the file or the hub has them."""
        raise NotImplementedError

    def graders(self) -> Collection[str]:
        """The graders that a task may name."""
        return GRADERS.names()

    def test_every_row_becomes_a_task(self) -> None:
        """Named after the data set, each by another name, for a grader that there is."""
        tasks = self._tasks()
        assert tasks, "give at least one row"
        for task in tasks:
            assert task.id.startswith(f"{self.name}/"), f"the task '{task.id}' doesn't begin with '{self.name}/'"
            assert task.grader in self.graders(), f"task '{task.id}' needs the grader '{task.grader}', which nobody has"
            assert task.truth.strip(), f"task '{task.id}' has no truth to compare with"
            assert task.source.partition("/")[0] == self.name, (
                f"task '{task.id}' is of '{task.source}', not {self.name}"
            )
        names = [task.id for task in tasks]
        assert len(set(names)) == len(names), f"two rows have one name: {sorted(names)}"

    def test_a_task_depends_on_its_row_and_the_seed_alone(self) -> None:
        """Not on the rows before it, and not on its own position."""
        tasks = self._tasks()
        assert self._tasks() == tasks, "the same rows became other tasks the second time"
        alone = [self._read(row, number) for number, row in enumerate(reversed(self.rows()), 1)]
        assert alone[::-1] == tasks, "the same rows in another order became other tasks"

    def test_a_task_is_plain_data(self) -> None:
        """It goes through JSON, Parquet and processes."""
        for task in self._tasks():
            try:
                text = json.dumps(task.to_json())
            except (TypeError, ValueError) as error:
                raise AssertionError(f"task '{task.id}' holds what is no JSON: {error}") from error
            assert Task.from_json(json.loads(text)) == task, f"task '{task.id}' is another one after JSON"

    def test_a_column_that_is_missing_is_told(self) -> None:
        """By a `DatasetError` of the row (`row.text`, `row.need`), or the row is skipped with a reason."""
        for row in self.rows():
            for column in row:
                for less in ({**row, column: None}, {name: value for name, value in row.items() if name != column}):
                    told = self._refusal(less, column)
                    assert told is None or told, f"without {column!r} the row is skipped, and nobody is told why"

    def _refusal(self, row: Mapping[str, object], column: str) -> str | None:
        """Why a row without this column is refused; None if it isn't."""
        try:
            self._read(row, 1)
        except (DatasetError, SkippedRowError) as refusal:
            return str(refusal)
        except Exception as error:
            raise AssertionError(f"without the column {column!r} it raised {error!r}") from error
        return None

    def _tasks(self) -> list[Task]:
        return [self._read(row, number) for number, row in enumerate(self.rows(), 1)]

    def _read(self, row: Mapping[str, object], number: int) -> Task:
        task = self.source().read(self.name, Row(row, number, "rows.jsonl"), 0)
        assert isinstance(task, Task), f"a row became {task!r}, not a Task"
        return task
