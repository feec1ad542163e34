"""What runs inside zygotes, slots and runs; the node itself imports only small parts of it.

- `zygote`: an exec'ed interpreter that preloads modules and forks slots; or one slot alone, to see whether this
  machine lets slots be.
- `slot`: the supervisor of one run at a time. It forks, watches, kills and reports numbers; it never reads a request
  or an output, so no later run can find an earlier one's data in its memory.
- `watch`, `proc`: CPU time, memory and waiting time of a process tree, as the kernel tells them.
- `run`: the run's own process: shuts itself in, reads its request, executes it. `shell`: bash in its place.
- `session`: the supervisor of a session. `kept`, `states`: the interpreters it keeps. `account`: the memory they hold.
  `layers`: their files; removing what a program left. `state`: such an interpreter from inside.
- `cells`: `await` and commands in cells of Python.
- `report`: an exception as a bounded description. `display`: figures and rich values.
- `kernel`: system calls that the standard library lacks. `wire`: the messages.

These modules import little, because every module a zygote has loaded is copied by every fork.
"""
