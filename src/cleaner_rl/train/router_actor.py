"""Our router as the Ray actor that verl starts.

An actor with coroutines runs 1,000 calls at a time if nothing else is said. So many turns that are held back would
leave no call by which a server could be given back, and every rollout would wait for ever.
"""

from __future__ import annotations

import ray

from cleaner_rl.train.router import EvenRouter

CALLS = 1_000_000
"""More than a step has turns under way."""

RouterActor = ray.remote(max_concurrency=CALLS)(EvenRouter)
