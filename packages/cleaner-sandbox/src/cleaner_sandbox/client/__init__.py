"""Runs programs on remote nodes; asynchronous (`SandboxClient`) and not (`SyncSandboxClient`).

- `client`: retries, deadlines, patience · `nodes`: which nodes there are, and who gets the next call.
- `links`: many calls over few connections, which notice a machine that is gone.
- `session`: sessions · `sync`: the same for threads.

Limits: the nodes' addresses are plain HTTP; put a proxy in front where the network isn't yours.
"""

from cleaner_sandbox.client.client import RequestRefusedError, SandboxClient
from cleaner_sandbox.client.links import probing_socket
from cleaner_sandbox.client.session import RemoteSession, SessionBusyError
from cleaner_sandbox.client.sync import SyncSandboxClient, SyncSession

__all__ = [
    "RemoteSession",
    "RequestRefusedError",
    "SandboxClient",
    "SessionBusyError",
    "SyncSandboxClient",
    "SyncSession",
    "probing_socket",
]
