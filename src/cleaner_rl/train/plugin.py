"""What verl loads in each of its processes, through the entry-point group `verl.plugins`.

verl says nothing above DEBUG when a plugin fails to load, so a run started by `cleaner train` names this module in
`VERL_USE_EXTERNAL_MODULES` too, where a failure is an error.
"""

from __future__ import annotations

import os

if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    from cleaner_rl.train.cpu import bridges, platform

    platform.register()
    bridges.lay()
