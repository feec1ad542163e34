"""Is loaded by verl in each of its processes, through the entry-point group `verl.plugins`.

verl logs a plugin that fails to load only at level DEBUG. So a run started by `cleaner train` names this module in
`VERL_USE_EXTERNAL_MODULES` too, where a failure is an error.
"""

from __future__ import annotations

import os

if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    from cleaner_rl.train.verl.cpu import patches, platform

    platform.register()
    patches.apply()
