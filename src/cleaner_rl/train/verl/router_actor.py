"""Makes our router the Ray actor that verl starts; a module of its own, because `router` imports without Ray.

By default an actor with coroutines runs 1,000 calls at a time. If as many turns were held back, no call could release a
server any more, and every rollout would hang.
"""

from __future__ import annotations

import ray

from cleaner_rl.train.verl.router import EvenRouter

CALLS = 1_000_000
"""More calls than a step can have open turns."""

RouterActor = ray.remote(max_concurrency=CALLS)(EvenRouter)
