"""Environments that are built: with packages that are made on the spot (nothing comes from the network), and files."""

from __future__ import annotations

import asyncio
import json
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cleaner_sandbox import (
    BARE,
    SCIENCE,
    Environment,
    Language,
    Limits,
    Node,
    NodeConfig,
    RunRequest,
    RunStatus,
    SessionRequest,
    Tier,
    build_environment,
    built_environments,
    find_environments,
)
from cleaner_sandbox.cli import sandbox
from cleaner_sandbox.client import SandboxClient
from cleaner_sandbox.environments import choose
from tests.conftest import needs
from tests.serving import asynchronous, served

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below /tmp, because runs have their own there."""
    parent = Path.home() / ".cache"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cleaner-sandbox-test-", dir=parent) as name:
        yield Path(name)


def wheel(folder: Path, name: str, module: str, text: str) -> Path:
    """The smallest wheel there is."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{module}/__init__.py", text)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", f"{module}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture
def requirements(folder: Path) -> Path:
    wheel(folder, "tiny_sums", "tinysums", "import time\nloaded = time.monotonic()\ndef double(x): return 2 * x\n")
    path = folder / "requirements.txt"
    path.write_text(f"# ours\n--no-index\n--find-links {folder}\ntiny-sums == 1.0\n")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository, with what repositories have."""
    needs(Tier.T2)
    source = tmp_path / "source"
    (source / "src").mkdir(parents=True)
    (source / "src" / "main.sh").write_text("#!/bin/bash\necho $((6 * 7))\n")
    (source / "src" / "main.sh").chmod(0o755)
    (source / "README").write_text("Read me.\n")
    (source / "README").chmod(0o444)
    (source / "link").symlink_to("src/main.sh")
    os.chown(source / "README", 12_345, 12_345)
    os.utime(source / "src" / "main.sh", (1_000_000_000, 1_000_000_000))
    return source


@pytest.fixture
def repo(source: Path, tmp_path: Path) -> Environment:
    return build_environment("repo", base=source, folder=tmp_path / "built")


def shell(environment: str) -> SessionRequest:
    return SessionRequest(environment, language=Language.BASH)


def command(*words: str) -> Result:
    return CliRunner().invoke(sandbox, words)


def test_one_is_built_by_a_command_and_runs_name_it_or_are_given_it_by_their_imports(
    folder: Path, requirements: Path
) -> None:
    place = folder / "built"
    done = command("env", "build", "sums", str(requirements), "--folder", str(place), "--json")
    assert json.loads(done.stdout) == {"name": "sums", "packages": ["tiny_sums"], "files": False}
    (made,) = find_environments(["sums"], place)
    assert (made.modules, made.packages) == (("tinysums",), ("tiny_sums",))
    environments = (BARE, SCIENCE, made)
    assert [
        choose(code, environments).name for code in ("import os", "import numpy", "from tinysums import double")
    ] == [
        "bare",
        "science",
        "sums",
    ]

    async def check() -> None:
        async with Node(NodeConfig(slots=1, environments=(BARE, made))) as node:
            code = "import time, tinysums\nprint(tinysums.double(21), time.monotonic() - tinysums.loaded > 0.001)"
            for request in (RunRequest(code), RunRequest(code, environment="sums")):
                outcome = await node.run(request)
                assert (outcome.result.output, outcome.environment) == ("42 True\n", "sums")
            assert (await node.run(RunRequest(code, environment="bare"))).result.exception is not None

    asyncio.run(check())


def test_they_are_listed_and_removed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("two", "one"):
        build_environment(name, base=tmp_path / "empty", folder=folder)
    (folder / ".three-unfinished").mkdir()
    listed = command("env", "list", "--folder", str(folder), "--json")
    assert [each["name"] for each in json.loads(listed.stdout)["environments"]] == ["one", "two"]
    assert command("env", "remove", "one", "--folder", str(folder)).exit_code == 0
    assert built_environments(folder) == ["two"]
    for name in ("one", "../one", "*"):
        refused = command("env", "remove", name, "--folder", str(folder))
        assert (refused.exit_code, f"there is no environment '{name}'" in refused.output) == (1, True)
    assert built_environments(folder) == ["two"]


def test_a_build_that_fails_says_what_to_do_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    wrong, place = tmp_path / "wrong.txt", folder / "built"
    wrong.write_text(f"--no-index\n--find-links {folder}\nno-such-package-at-all\n")
    with pytest.raises(ValueError, match=r"(?s)Try it by hand: .*pip install.*no-such-package-at-all"):
        build_environment("wrong", wrong, folder=place)
    with pytest.raises(ValueError, match=r"can't be built: .*absent\.txt"):
        build_environment("absent", tmp_path / "absent.txt", folder=place)
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        tar.add(wrong, "../../README")
    with pytest.raises(ValueError, match="can't be built"):
        build_environment("evil", base=evil, folder=place)
    assert list(place.iterdir()) == []


def test_names_are_refused_that_are_taken_or_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    build_environment("once", base=tmp_path / "empty", folder=tmp_path / "built")
    for name, why in (("once", "there is an environment 'once'"), ("data", "can't be called"), ("../x", "can't be")):
        with pytest.raises(ValueError, match=why):
            build_environment(name, base=tmp_path / "empty", folder=tmp_path / "built")
    with pytest.raises(ValueError, match="needs a requirements file, a base or both"):
        build_environment("nothing", folder=tmp_path / "built")


def test_they_are_found_by_name_pattern_and_path_and_an_unknown_name_gets_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("repo-2", "repo-1", "web"):
        build_environment(name, base=tmp_path / "empty", folder=tmp_path / "built")
    found = find_environments(["data", "repo-*", f"{tmp_path}/built/web", "web"], tmp_path / "built")
    assert [each.name for each in found] == ["data", "repo-1", "repo-2", "web"]
    listed = "bare, science, data, repo-1, repo-2, web"
    with pytest.raises(ValueError, match=f"no environment 'wbe' .*: {listed}[.] .* env build wbe"):
        find_environments(["wbe"], tmp_path / "built")
    refused = command("serve", "--env", "no-such-environment")
    assert (refused.exit_code, "env build no-such-environment" in refused.output) == (2, True)


def test_one_for_another_interpreter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sums" / "packages").mkdir(parents=True)
    (tmp_path / "sums" / "environment.json").write_text('{"requirements": "", "built_for": "cpython-399-x86_64"}')
    with pytest.raises(ValueError, match=r"was built for cpython-399-x86_64, not .*: build it anew"):
        find_environments(["sums"], tmp_path)


def test_a_node_has_no_two_of_a_name_and_one_for_calls_that_name_none(repo: Environment) -> None:
    with pytest.raises(ValueError, match="two environments 'bare'"):
        NodeConfig(environments=(BARE, Environment("bare", packages=("click",))))
    with pytest.raises(ValueError, match="needs an environment without files"):
        NodeConfig(environments=(repo,))


@asynchronous
async def test_a_session_begins_with_its_files_and_owns_them(source: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as tar:
        tar.add(source, ".")
    environments = [
        build_environment(name, base=base, folder=tmp_path / "built")
        for name, base in (("repo", source), ("packed", tmp_path / "packed.tar.gz"))
    ]
    async with Node(NodeConfig(slots=1, environments=(BARE, *environments))) as node:
        for name in ("repo", "packed"):
            session = await node.open_session(shell(name))
            looked = await session.run(
                "ls -A; ./src/main.sh; cat link | tail -n 1; stat -c %U README; stat -c %Y link -L"
            )
            assert looked.result.output == "README\nlink\nsrc\n42\necho $((6 * 7))\nsandbox\n1000000000\n"
            changed = await session.run("echo more >> README; rm -r src; mkdir src; ls src; cat README")
            assert changed.result.output == "Read me.\nmore\n"
            assert changed.run.environment == name
            await session.close()


@asynchronous
async def test_a_run_begins_with_them_too_and_changes_them_for_itself_alone(repo: Environment) -> None:
    async with Node(NodeConfig(slots=2, environments=(BARE, repo))) as node:
        code = "with open('README', 'r+') as it: print(it.read()), it.seek(0), it.truncate(), it.write('mine')"
        asked = RunRequest(code, environment="repo", fetch=("README",), limits=Limits(disk_mb=4))
        for outcome in await asyncio.gather(*(node.run(asked) for _ in range(6))):
            assert (outcome.result.output, outcome.environment) == ("Read me.\n\n", "repo")
            assert dict(outcome.files) == {"README": b"mine"}
        ran = await node.run(RunRequest("./src/main.sh; ls /base", environment="repo", language=Language.BASH))
        assert ran.result.output == "42\nwork\n"
        large = RunRequest("open('a', 'wb').write(bytes(6 << 20))", environment="repo", limits=Limits(disk_mb=4))
        assert (await node.run(large)).result.status is RunStatus.ERROR
        absent = await node.run(RunRequest("1", environment="rpo"))
        assert absent.result.explanation == "There is no environment 'rpo'. Available: bare, repo."
        assert (await node.run(RunRequest("import os\nprint(os.listdir())"))).result.output == "[]\n"
        assert node.status.slot_deaths == 0


@asynchronous
async def test_a_run_that_is_given_up_leaves_no_slot(repo: Environment) -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE, repo))) as node:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await node.run(RunRequest("while True: pass", environment="repo"))
        assert (await node.run(RunRequest("print(open('README').read())", environment="repo"))).result.output == (
            "Read me.\n\n"
        )


def test_files_need_tier_2(repo: Environment) -> None:
    async def refused() -> str:
        async with Node(NodeConfig(slots=1, environments=(BARE, repo), tier=Tier.T1)) as node:
            return (await node.run(RunRequest("1", environment="repo"))).result.explanation

    assert asyncio.run(refused()) == "The environment 'repo' has files, which need tier 2, and the node runs at T1."


@pytest.fixture
def both(folder: Path, requirements: Path, source: Path) -> Environment:
    return build_environment("both", requirements, source, folder / "built")


@asynchronous
async def test_one_with_packages_and_files_has_both(both: Environment) -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE, both))) as node:
        code = "import tinysums\n(tinysums.double(21), open('README').read())"
        ran = await node.run(RunRequest(code, environment="both", echo_last_expression=True))
        session = await node.open_session(SessionRequest("both"))
        assert ran.result.output == (await session.run(code)).result.output == "(42, 'Read me.\\n')\n"
        # One that has files is never chosen by what a program imports.
        assert (await node.run(RunRequest(code))).result.status is RunStatus.ERROR


@asynchronous
async def test_going_back_restores_files_and_other_sessions_never_see_a_change(repo: Environment) -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE, repo))) as node:
        first, second = [await node.open_session(shell("repo")) for _ in range(2)]
        begun = first.checkpoint
        await first.run("rm -r src README; echo mine > own")
        assert (await first.run("ls -A")).result.output == "link\nown\n"
        assert (await second.run("ls -A; cat README")).result.output == "README\nlink\nsrc\nRead me.\n"
        await first.rollback(begun)
        assert (await first.run("ls -A src; cat README")).result.output == "main.sh\nRead me.\n"
    work = Path(repo.files or "") / "work"
    assert (work / "README").read_text() == "Read me.\n"
    assert sorted(each.name for each in work.iterdir()) == ["README", "link", "src"]


@asynchronous
async def test_nothing_of_the_shared_files_can_be_written_and_no_other_environment_be_seen(
    repo: Environment, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "answer").write_text("42")
    secret = build_environment("secret", base=tmp_path / "secret", folder=tmp_path / "built")
    async with Node(NodeConfig(slots=1, environments=(BARE, repo, secret))) as node:
        await (await node.open_session(shell("secret"))).run("cat answer")
        session = await node.open_session(shell("repo"))
        tried = await session.run(
            "touch /base/work/new; chmod 777 /base/work/README; ls /base; ls /base/.. | grep -c secret; true"
        )
        assert "Read-only file system" in tried.result.stderr
        assert tried.result.output == "work\n0\n"
        looking = "find / -name answer -not -path '/proc/*' 2>/dev/null; true"
        ran = await node.run(RunRequest(looking, environment="repo", language=Language.BASH))
        assert (await session.run(looking)).result.output == ran.result.output == ""


@asynchronous
async def test_what_it_holds_takes_none_of_the_sessions_space(tmp_path: Path) -> None:
    needs(Tier.T2)
    (tmp_path / "large").mkdir()
    for name in ("one", "two", "three"):
        (tmp_path / "large" / name).write_bytes(bytes(3 << 20))
    large = build_environment("large", base=tmp_path / "large", folder=tmp_path / "built")
    async with Node(NodeConfig(slots=1, environments=(BARE, large), limits=Limits(disk_mb=4))) as node:
        session = await node.open_session(shell("large"))
        assert (await session.run("cat * | wc -c")).result.output == f"{9 << 20}\n"
        copied = await session.run("echo x >> one; echo x >> two")
        assert "No space left on device" in copied.result.stderr


@asynchronous
async def test_the_client_passes_it_on(repo: Environment) -> None:
    config = NodeConfig(slots=1, environments=(BARE, repo))
    async with Node(config) as node, served(node) as (url, _), SandboxClient([url]) as client:
        session = await client.open_session(SessionRequest("repo"))
        assert (await session.run("print(open('README').read())")).result.output == "Read me.\n\n"
        assert (await client.run(RunRequest("print(open('README').read())", environment="repo"))).result.output == (
            "Read me.\n\n"
        )
        with pytest.raises(ValueError, match="there is no environment 'rpo'; available: bare, repo"):
            await client.open_session(shell("rpo"))
