"""The attacks that the sandbox ships, and what judges a node by them.

- `attack`, `attacks/`: hostile programs as data, each with the verdict that is right for it.
- `plants`: secrets to find, listeners to reach and a process to harm, planted around the node.
- `runner`: runs attacks and judges them · `lanes`: nodes to attack · `report`: what was found.
- `throwaway`, `worker`, `proof`, `naive`: the proof that the attacks succeed where nothing stops them.
- `suite`: all of it put together.

A node passes if nothing escaped, nothing leaked, and no verdict was wrong. That says that these attacks fail here, not
that every attack does: bugs of the kernel and side channels aren't among them.
"""

from cleaner_rl.sandbox.check.attack import Attack, AttackClass
from cleaner_rl.sandbox.check.attacks import ATTACKS
from cleaner_rl.sandbox.check.report import Report
from cleaner_rl.sandbox.check.runner import Verdict
from cleaner_rl.sandbox.check.suite import check_node, check_target, try_layers, try_without

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackClass",
    "Report",
    "Verdict",
    "check_node",
    "check_target",
    "try_layers",
    "try_without",
]
