"""Checks of this machine: what it can do, and how to fix what it can't.

- `diagnosis`: all checks in turn · `check`: the result of one · `machine`: system, memory, disk · `sandbox`: tiers and
  nodes · `stack`: extras, engines, Ray · `model`: a template or a server · `plugins`: what other packages add.

Limits: it looks at what is here now. Versions come from metadata; whether an engine works is for its first run to say.
"""

from cleaner_rl.doctor.check import Check, State
from cleaner_rl.doctor.diagnosis import diagnose
from cleaner_rl.doctor.plugins import PluginCheck, check_plugins

__all__ = ["Check", "PluginCheck", "State", "check_plugins", "diagnose"]
