"""The attack suite that ships with the sandbox, and how a node is judged by it.

- `attack`, `attacks/`: hostile programs as data, each with the verdict that is right for it.
- `honeypots`: secrets to find, listeners to reach and a process to harm, planted around the node.
- `runner`: runs attacks and judges them · `targets`: nodes to attack · `report`: what was found.
- `worker`, `proof`, `naive`: the proof that the attacks succeed where nothing stops them.
- `suite`: all of it put together.

A node passes if nothing escaped, nothing leaked, and no verdict was wrong. That says that these attacks fail here, not
that every attack does: bugs of the kernel and side channels aren't among them.
"""

from cleaner_sandbox.check.attack import Attack, AttackClass
from cleaner_sandbox.check.attacks import ATTACKS
from cleaner_sandbox.check.report import Report
from cleaner_sandbox.check.runner import AttackVerdict
from cleaner_sandbox.check.suite import Done, check, check_node, check_target

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackClass",
    "AttackVerdict",
    "Done",
    "Report",
    "check",
    "check_node",
    "check_target",
]
