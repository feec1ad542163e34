"""A node behind an HTTP address.

- `keeper`: binds the address, keeps the front alive · `front`: the process that serves.
- `app`: routes, tokens, problems · `http`: one exchange over raw ASGI.
- `groups`: the bounded, fair queue, deadlines, callers that leave · `owners`: tokens and quotas.
- `runs`, `sessions`, `about`: our endpoints · `code_judge`, `fusion`: those of others · `observe`: log and metrics.

Limits: no TLS (put a proxy in front); one front process per node, so about ten cores of short runs each: use more nodes
on larger machines.
"""

from cleaner_rl.sandbox.service.config import ServiceConfig
from cleaner_rl.sandbox.service.keeper import Keeper, UnsafeBindError, bind

__all__ = ["Keeper", "ServiceConfig", "UnsafeBindError", "bind"]
