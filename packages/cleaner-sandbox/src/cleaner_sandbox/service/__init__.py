"""A node behind an HTTP address.

- `supervisor`: binds the address, keeps the server alive · `server`: the process that serves.
- `admission`: connections, their number and time, before a token is known · `http`: one exchange over raw ASGI.
- `app`: routes, tokens, problems.
- `fair_queue`: the bounded queue, deadlines, callers that leave · `tenants`: tokens and quotas.
- `runs`, `sessions`, `about`: our endpoints · `code_judge`, `fusion`: those of others · `observe`: log and metrics.

Limits: no TLS (put a proxy in front); one server process per node, so about ten cores of short runs each: use more
nodes on larger machines. A JSON body is decoded in one go, so a caller with a token can hold up the others for up to
about 0.1 s with a body of 16 MB.
"""

from cleaner_sandbox.service.supervisor import ServiceConfig, Supervisor, UnsafeBindError, bind

__all__ = ["ServiceConfig", "Supervisor", "UnsafeBindError", "bind"]
