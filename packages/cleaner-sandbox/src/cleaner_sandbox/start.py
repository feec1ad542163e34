"""Starts sandboxes: `open_sandbox` for a program's own use, `serve` and `serve_mcp` for others to call.

The client and the service are imported by the calls that need them: this module is part of the package's face, which
loads no HTTP library.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner_sandbox.environments import DATA
from cleaner_sandbox.isolation.tiers import TierError
from cleaner_sandbox.node.config import NodeConfig
from cleaner_sandbox.node.node import Node
from cleaner_sandbox.node.zygotes import ZygoteError
from cleaner_sandbox.protocol.requests import SandboxUnavailableError

if TYPE_CHECKING:
    from cleaner_sandbox.client import SandboxClient

SERVICE_NEEDS = ("aiohttp", "httptools", "msgspec", "prometheus_client", "uvicorn", "uvloop")
DATA_NEEDS = ("matplotlib", "pandas")
MCP_NEEDS = ("aiohttp", "mcp", "msgspec", "uvicorn")


@asynccontextmanager
async def open_sandbox(
    urls: Sequence[str] = (),
    *,
    token: str | None = None,
    patience: float = 300.0,
    slots: int | None = None,
    sessions: int = 0,
) -> AsyncIterator[Node | SandboxClient]:
    """Open the nodes behind these addresses, or start one here if there are none.

    Both have `run` and `open_session`, so that the caller need not know which it got.

    Args:
        urls: Addresses of nodes: `http://host:8089`, `dns://name:port` or `ray:`. Empty: a node is started here, and
            ended with the block.
        token: What the nodes behind the addresses ask for, if they do.
        patience: Seconds that a call waits for nodes that are full or away.
        slots: Programs that a node started here runs at the same time; None: two per core.
        sessions: How many sessions a node started here must be able to hold open at once.

    Raises:
        SandboxUnavailableError: No node starts on this machine; the message says why and what to do.

    Examples:
        >>> import asyncio
        >>> from cleaner_sandbox import RunRequest, open_sandbox
        >>> async def main() -> str:
        ...     async with open_sandbox(slots=1) as sandbox:
        ...         return (await sandbox.run(RunRequest("print(6 * 7)"))).result.output
        >>> asyncio.run(main())
        '42\\n'
    """
    if urls:
        try:
            from cleaner_sandbox.client import SandboxClient
        except ModuleNotFoundError as error:
            raise ImportError(
                f"calling a node needs {error.name}, which isn't here: pip install 'cleaner-sandbox[http]'"
            ) from None
        async with SandboxClient(urls, token=token, patience=patience) as client:
            yield client
        return
    usual = NodeConfig()
    config = replace(usual, slots=slots or usual.slots, sessions=max(usual.sessions, sessions))
    async with AsyncExitStack() as stack:
        try:
            node = await stack.enter_async_context(Node(config))
        except (TierError, ZygoteError) as error:
            raise SandboxUnavailableError(
                f"no sandbox starts here: {error}. Or give the address of a node elsewhere"
            ) from error
        yield node


def serve(
    node: NodeConfig | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8089,
    token_file: Path | None = None,
    most_waiting: int = 65_536,
    log_code: bool = False,
    drain_seconds: int = 30,
) -> int:
    """Serve one node over HTTP until SIGTERM or SIGINT comes, and return the exit code.

    A supervisor (this process) keeps a server alive, which owns the node. Both write to stdout: the first line says
    what the node can hold, then comes one JSON line per call. Call it from the main thread: it handles signals.

    Args:
        node: How the node is set up; None: the defaults.
        host: Address to bind to. One that other machines reach needs a `token_file`.
        port: Port to bind to; 0 is a free one.
        token_file: TOML file of tokens and their quotas (docs/sandbox-http.md); None: everybody may call.
        most_waiting: Calls that may wait; more are answered 429.
        log_code: Whether the programs themselves are logged.
        drain_seconds: How long runs may go on after the signal.

    Raises:
        ValueError: The address needs a token file.
        OSError: The address can't be bound to.
        ImportError: The extra `cleaner-sandbox[http]` is not installed.

    Examples:
        >>> from cleaner_sandbox import NodeConfig, serve
        >>> raise SystemExit(serve(NodeConfig(slots=8), port=8089))  # doctest: +SKIP
    """
    _require_extra("serving a node", SERVICE_NEEDS, "http")
    from cleaner_sandbox.service.supervisor import ServiceConfig, Supervisor, bind

    node = node or NodeConfig()
    if DATA in node.environments:
        _require_extra(f"the set '{DATA.name}'", DATA_NEEDS, "data")
    config = ServiceConfig(
        node,
        most_waiting=most_waiting,
        token_file=None if token_file is None else str(token_file.resolve()),
        host=host,
        log_code=log_code,
        drain_seconds=drain_seconds,
    )
    return Supervisor(bind(host, port, tokens=token_file is not None), config).run()


def serve_mcp(
    urls: Sequence[str] = (),
    *,
    token: str | None = None,
    http: tuple[str, int] | None = None,
    token_file: Path | None = None,
    ready: Callable[[str], None] = lambda _address: None,
) -> None:
    """Serve the sandbox to clients of the Model Context Protocol, until they are done or a signal comes.

    Call it from the main thread: it handles signals.

    Args:
        urls: Addresses of nodes, as for `open_sandbox`. Empty: a node is started here.
        token: What the nodes behind the addresses ask for, if they do.
        http: Address and port to serve streamable HTTP at (port 0: a free one). None: serve one client at stdin and
            stdout.
        token_file: TOML file of tokens and their quotas, as for `serve`; needed for an address that other machines
            reach.
        ready: Is called with the URL of the server when it answers; only over HTTP.

    Raises:
        SandboxUnavailableError: No node starts on this machine, or none answers at the addresses.
        ValueError: The address needs a token file, or the token file can't be used.
        OSError: The address can't be bound to.
        ImportError: The extra `cleaner-sandbox[mcp]` is not installed.

    Examples:
        >>> from cleaner_sandbox import serve_mcp
        >>> serve_mcp(http=("127.0.0.1", 8090), ready=print)  # doctest: +SKIP
        http://127.0.0.1:8090/mcp
    """
    _require_extra("an MCP server", MCP_NEEDS, "mcp")
    from cleaner_sandbox.mcp.serve import over_http, over_stdio
    from cleaner_sandbox.service.supervisor import bind

    sandbox = open_sandbox(urls, token=token)
    if http is None:
        over_stdio(sandbox)
    else:
        with bind(*http, tokens=token_file is not None) as listening:
            over_http(sandbox, listening, http[0], None if token_file is None else str(token_file), ready)


def _require_extra(what: str, needs: Sequence[str], extra: str) -> None:
    if missing := [name for name in needs if not _is_installed(name)]:
        names = ", ".join(missing)
        raise ImportError(f"{what} needs {names}, which isn't here: pip install 'cleaner-sandbox[{extra}]'")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
