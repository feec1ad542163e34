"""Sessions that begin with a base: a folder or a tar file that all of them share and none of them changes."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from cleaner_sandbox import BARE, Language, Limits, Node, NodeConfig, SessionRequest, Tier
from cleaner_sandbox.client import SandboxClient
from tests.conftest import needs
from tests.serving import asynchronous, served

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def bases(tmp_path: Path) -> Path:
    """A repository as a folder, with what repositories have, and the same as a tar file."""
    needs(Tier.T2)
    folder = tmp_path / "bases"
    source = folder / "repo" / "src"
    source.mkdir(parents=True)
    (source / "main.sh").write_text("#!/bin/bash\necho $((6 * 7))\n")
    (source / "main.sh").chmod(0o755)
    (folder / "repo" / "README").write_text("Read me.\n")
    (folder / "repo" / "README").chmod(0o444)
    (folder / "repo" / "link").symlink_to("src/main.sh")
    os.chown(folder / "repo" / "README", 12_345, 12_345)
    os.utime(source / "main.sh", (1_000_000_000, 1_000_000_000))
    with tarfile.open(folder / "packed.tar.gz", "w:gz") as tar:
        tar.add(folder / "repo", ".")
    return folder


def config(bases: Path) -> NodeConfig:
    return NodeConfig(slots=1, preload=(BARE,), bases=bases)


def shell(base: str) -> SessionRequest:
    return SessionRequest(preload="bare", language=Language.BASH, base=base)


@asynchronous
async def test_a_session_begins_with_it_and_owns_it(bases: Path) -> None:
    async with Node(config(bases)) as node:
        for base in ("repo", "packed"):
            session = await node.open_session(shell(base))
            looked = await session.run(
                "ls -A; ./src/main.sh; cat link | tail -n 1; stat -c %U README; stat -c %Y link -L"
            )
            assert looked.result.output == "README\nlink\nsrc\n42\necho $((6 * 7))\nsandbox\n1000000000\n"
            changed = await session.run("echo more >> README; rm -r src; mkdir src; ls src; cat README")
            assert changed.result.output == "Read me.\nmore\n"
            await session.close()


@asynchronous
async def test_going_back_restores_it_and_other_sessions_never_see_a_change(bases: Path) -> None:
    async with Node(config(bases)) as node:
        first, second = [await node.open_session(shell("repo")) for _ in range(2)]
        begun = first.checkpoint
        await first.run("rm -r src README; echo mine > own")
        assert (await first.run("ls -A")).result.output == "link\nown\n"
        assert (await second.run("ls -A; cat README")).result.output == "README\nlink\nsrc\nRead me.\n"
        await first.rollback(begun)
        assert (await first.run("ls -A src; cat README")).result.output == "main.sh\nRead me.\n"
    assert (bases / "repo" / "README").read_text() == "Read me.\n"
    assert sorted(each.name for each in (bases / "repo").iterdir()) == ["README", "link", "src"]


@asynchronous
async def test_nothing_of_the_shared_copy_can_be_written_and_no_other_base_be_seen(bases: Path) -> None:
    (bases / "secret").mkdir()
    (bases / "secret" / "answer").write_text("42")
    async with Node(config(bases)) as node:
        await (await node.open_session(shell("secret"))).run("cat answer")
        session = await node.open_session(shell("repo"))
        tried = await session.run(
            "touch /base/work/new; chmod 777 /base/work/README; ls /base; ls /base/.. | grep -c secret; true"
        )
        assert "Read-only file system" in tried.result.stderr
        assert tried.result.output == "work\n0\n"
        found = await session.run("find / -name answer -not -path '/proc/*' 2>/dev/null; true")
        assert found.result.output == ""


@asynchronous
async def test_what_it_holds_takes_none_of_the_sessions_space(bases: Path) -> None:
    (bases / "large").mkdir()
    for name in ("one", "two", "three"):
        (bases / "large" / name).write_bytes(bytes(3 << 20))
    async with Node(NodeConfig(slots=1, preload=(BARE,), bases=bases, limits=Limits(disk_mb=4))) as node:
        session = await node.open_session(shell("large"))
        assert (await session.run("cat * | wc -c")).result.output == f"{9 << 20}\n"
        copied = await session.run("echo x >> one; echo x >> two")
        assert "No space left on device" in copied.result.stderr


@asynchronous
async def test_python_sessions_have_it_too_and_the_client_passes_it_on(bases: Path) -> None:
    async with Node(config(bases)) as node, served(node) as (url, _), SandboxClient([url]) as client:
        session = await client.open_session(SessionRequest(preload="bare", base="repo"))
        assert (await session.run("print(open('README').read())")).result.output == "Read me.\n\n"
        with pytest.raises(ValueError, match="there is no base 'rpo'; available: packed, repo"):
            await client.open_session(shell("rpo"))


@asynchronous
async def test_names_that_lead_elsewhere_are_no_bases(bases: Path) -> None:
    (bases.parent / "outside").mkdir()
    async with Node(config(bases)) as node:
        for name in ("../outside", "/etc", ".", "..", "repo/src"):
            with pytest.raises(ValueError, match="there is no base"):
                await node.open_session(shell(name))


@asynchronous
async def test_a_tar_that_reaches_outside_is_refused_and_can_be_mended(bases: Path) -> None:
    evil = bases / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        tar.add(bases / "repo" / "README", "../../README")
    async with Node(config(bases)) as node:
        with pytest.raises(ValueError, match="the base 'evil' can't be read"):
            await node.open_session(shell("evil"))
        with tarfile.open(evil, "w") as tar:
            tar.add(bases / "repo" / "README", "README")
        session = await node.open_session(shell("evil"))
        assert (await session.run("ls")).result.output == "README\n"


@asynchronous
async def test_a_node_without_bases_says_so() -> None:
    needs(Tier.T2)
    async with Node(NodeConfig(slots=1, preload=(BARE,))) as node:
        with pytest.raises(ValueError, match="this node has no bases"):
            await node.open_session(shell("repo"))
    with pytest.raises(ValueError, match="there is no folder of bases"):
        async with Node(NodeConfig(slots=1, preload=(BARE,), bases=Path("/nowhere"))):
            pass
