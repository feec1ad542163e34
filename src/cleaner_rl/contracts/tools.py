"""What every tool must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from cleaner_rl.rollout import ToolEnv
from cleaner_rl.tools import Status, ToolCall, ToolResult, ToolSet, ToolSpec, feedback
from cleaner_rl.trajectory import Key

Arguments = Mapping[str, object]
LEAVING = 15.0
"""Seconds in which a rollout that is cancelled must be gone."""


class ToolContract:
    """Subclass it, name the subclass `Test…`, and give `make`, `spec`, and the calls below."""

    works: Arguments
    """Of a call that works."""
    fails: Arguments
    """Of a call that the model got wrong."""
    writes: Arguments | None = None
    """Of a tool with state: a call that changes what `reads` gives."""
    reads: Arguments | None = None
    slow: Arguments | None = None
    """Of a call that takes minutes, where there is one."""

    def make(self) -> ToolEnv:
        """The tool."""
        raise NotImplementedError

    def spec(self) -> ToolSpec:
        """What the model reads about it: `load_prompt("your.toml").tool`."""
        raise NotImplementedError

    def running(self) -> AbstractAsyncContextManager[ToolEnv]:
        """The tool with whatever it needs around it, such as a server."""
        return _just(self.make())

    def test_each_call_is_answered_in_its_order(self) -> None:
        """A failure beside a success, and a call that can't be read."""

        async def check(tool: ToolEnv) -> None:
            calls = [self._call(self.works), self._call(self.fails), self._unreadable(), self._call(self.works)]
            async with tool.open(Key()) as tool_session:
                results = await tool_session.run(calls)
                assert len(results) == len(calls), f"{len(calls)} calls got {len(results)} results"
                ok, failed, refused, again = results
                assert ok.status is Status.OK, f"the call that works gave {_told(ok)}"
                assert failed.failed, f"the call that fails gave {_told(failed)}; it is the model's failure, no fault"
                assert refused.observed == calls[2].refusal.observed, (  # type: ignore[union-attr]
                    f"a call that can't be read gets `call.refusal`, not {_told(refused)}"
                )
                assert again.observed == ok.observed, "a call after one that failed still runs, and gives the same"
                assert await tool_session.run([]) == [], "no calls, no results"

        self._check(check)

    def test_a_failure_says_what_is_wrong(self) -> None:
        """A model can only correct what it reads."""

        async def check(tool: ToolEnv) -> None:
            async with tool.open(Key()) as tool_session:
                (failed,) = await tool_session.run([self._call(self.fails)])
            assert feedback(failed).strip(), "the failure has no words for the model"
            assert failed.exception or failed.explanation or failed.stderr or failed.output, (
                "the failure is only a status"
            )

        self._check(check)

    def test_the_same_calls_give_the_same(self) -> None:
        """In two fresh rollouts: replays prove trajectories by it. No durations, ids or addresses in what it says."""

        async def check(tool: ToolEnv) -> None:
            calls = [self._call(each) for each in (self.works, self.fails, self.writes, self.reads) if each is not None]
            first, second = [await _fresh(tool, calls) for _ in range(2)]
            for call, one, other in zip(calls, first, second, strict=True):
                assert one.observed == other.observed, f"{call.code!r} gave {_told(one)}, then {_told(other)}"

        self._check(check)

    def test_it_goes_back_to_before_the_last_turn(self) -> None:
        """A failed turn is undone before its correction runs; so is what worked in it."""

        async def check(tool: ToolEnv) -> None:
            if self.writes is None or self.reads is None:
                assert not tool.stateful, "a tool with state needs `writes` and `reads`, to see whether it goes back"
                return
            write, read, fail = (self._call(each) for each in (self.writes, self.reads, self.fails))
            async with tool.open(Key()) as tool_session:
                (before,) = await tool_session.run([read])
                for turn in ([write], [write, fail], [write, fail, write]):
                    await tool_session.run(turn)
                    await tool_session.rollback()
                    (now,) = await tool_session.run([read])
                    assert now.observed == before.observed, f"after going back, reading gave {_told(now)}"
                (written,) = await tool_session.run([write])
                assert written.status is Status.OK, f"the call that writes gave {_told(written)}"
                (after,) = await tool_session.run([read])
                assert (after.observed != before.observed) == tool.stateful, (
                    f"stateful is {tool.stateful}, and reading after a write gave {_told(after)}"
                )
                await tool_session.run([fail])
                (still,) = await tool_session.run([read])
                assert still.observed == after.observed, f"a call that failed left something behind: {_told(still)}"
                await tool_session.rollback()
                (kept,) = await tool_session.run([read])
                assert kept.observed == after.observed, f"going back went further than one turn: {_told(kept)}"

        self._check(check)

    def test_rollouts_do_not_see_each_other(self) -> None:
        """Many are open at once."""

        async def check(tool: ToolEnv) -> None:
            read = self._call(self.reads or self.works)
            async with tool.open(Key(rollout=0)) as one, tool.open(Key(rollout=1)) as other:
                (before,) = await other.run([read])
                await one.run([self._call(self.writes or self.works)])
                (after,) = await other.run([read])
                assert after.observed == before.observed, f"another rollout's call changed {_told(after)}"
            assert (await _fresh(tool, [read]))[0].observed == before.observed, "a rollout left something for the next"

        self._check(check)

    def test_a_rollout_that_is_cancelled_leaves_at_once(self) -> None:
        """The wall time of a rollout ends it in the middle of a call; the next one works."""

        async def check(tool: ToolEnv) -> None:
            if self.slow is None:
                return
            slow = self._call(self.slow)
            begun = asyncio.Event()

            async def rollout() -> None:
                async with tool.open(Key()) as tool_session:
                    begun.set()
                    await tool_session.run([slow])

            task = asyncio.create_task(rollout())
            await begun.wait()
            await asyncio.sleep(0.2)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=LEAVING)
            assert done, f"a cancelled rollout was still there after {LEAVING:g} s"
            assert task.cancelled(), f"a cancelled rollout ended with {task.exception()!r}"
            (ok,) = await _fresh(tool, [self._call(self.works)])
            assert ok.status is Status.OK, f"after a cancelled rollout, the call that works gave {_told(ok)}"

        self._check(check)

    def _call(self, arguments: Arguments) -> ToolCall:
        spec = self.spec()
        call = ToolSet(spec).read(spec.name, arguments, 0, 0)
        assert call.problem is None, f"the spec refuses the call {dict(arguments)}: {call.problem}"
        return call

    def _unreadable(self) -> ToolCall:
        return ToolSet(self.spec()).read("no_such_tool", {}, 0, 0)

    def _check(self, check: Callable[[ToolEnv], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with self.running() as tool:
                await check(tool)

        asyncio.run(whole())


@asynccontextmanager
async def _just(tool: ToolEnv) -> AsyncIterator[ToolEnv]:
    yield tool


async def _fresh(tool: ToolEnv, calls: Sequence[ToolCall]) -> list[ToolResult]:
    async with tool.open(Key()) as tool_session:
        return [(await tool_session.run([call]))[0] for call in calls]


def _told(result: ToolResult) -> str:
    return f"{result.status} {feedback(result)[:200]!r}"
