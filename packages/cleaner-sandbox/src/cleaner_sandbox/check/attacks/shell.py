"""Attacks in the words of bash. What a program can do past the shell, the other modules try from Python.

Each is scaled as theirs are: some dozen processes, some hundred megabytes.
"""

from __future__ import annotations

from dataclasses import replace

from cleaner_sandbox.check.attack import (
    ANY_BUT_FAULT,
    ANY_FAILURE,
    CRASHED,
    ERROR,
    OK,
    OK_OR_ERROR,
    OUT_OF_MEMORY,
    TIMEOUT,
    Attack,
    AttackClass,
)
from cleaner_sandbox.protocol import Language
from cleaner_sandbox.protocol.results import RunStatus

_FLOODED = frozenset({RunStatus.OUTPUT_LIMIT})

_RESOURCES = {
    "fork_bomb": (
        'for i in {1..40}; do sleep 3 & [ $! = "$last" ] || ((n++)); last=$!; done 2>/dev/null; ((n < 30)) || win $n',
        ANY_BUT_FAULT,
    ),
    "fork_tree": (
        "grow() { echo >> alive; (($1)) || { sleep 1; return; }; grow $(($1 - 1)) & grow $(($1 - 1)) & wait; }\n"
        "grow 5 2>/dev/null; mapfile -t alive < alive; ((${#alive[@]} < 60)) || win ${#alive[@]}",
        ANY_BUT_FAULT,
    ),
    "memory_of_a_variable": ("x=xxxxxxxx; for i in {1..25}; do x=$x$x; done; win ${#x}", OUT_OF_MEMORY),
    "memory_of_a_pipeline": (
        "n=$(head -c 250M /dev/zero | tail -c 250M | wc -c); ((n < 250000000)) || win $n",
        ANY_BUT_FAULT,
    ),
    "memory_of_many": (
        "for i in {1..6}; do (x=$(head -c 30M /dev/zero | tr '\\0' x); sleep 1; echo ${#x} >> held) & done\n"
        "wait; mapfile -t held < held; ((${#held[@]} < 6)) || win",
        ANY_BUT_FAULT,
    ),
    "disk_fill": (
        "for f in f /tmp/f /dev/shm/f; do head -c 40M /dev/zero > $f; done 2>/dev/null\n"
        "set -- $(stat -c %s f /tmp/f /dev/shm/f); (($1 + $2 + $3 < 20000000)) || win $*",
        ANY_BUT_FAULT,
    ),
    "inode_fill": ("for i in {1..400}; do : > f$i; done 2>/dev/null; set -- f*; (($# < 200)) || win $#", ANY_BUT_FAULT),
    "descriptors": (
        "for i in {1..200}; do { exec {fd}</dev/null; } && n=$i; done 2>/dev/null; ((n < 100)) || win $n",
        ANY_BUT_FAULT,
    ),
    "raise_limits": (
        "for l in -n -u -t -d -v -f; do ulimit $l unlimited && win $l; done 2>/dev/null; true",
        OK_OR_ERROR,
    ),
    "spin": ("while :; do :; done", TIMEOUT),
    "spin_in_many": ("for i in 1 2 3; do (while :; do :; done) & done; wait", TIMEOUT),
    "spin_in_short_ones": ("while :; do (:); done", TIMEOUT),
    "flood": ("yes", _FLOODED),
    "flood_of_errors": ("yes >&2", _FLOODED),
}
_LIFECYCLE = {
    "sleep": ("sleep 60", TIMEOUT),
    "ignore_signals": ("trap '' TERM INT HUP ALRM XCPU QUIT USR1; while :; do :; done", TIMEOUT),
    "spin_at_exit": ("trap 'while :; do :; done' EXIT; exit 0", TIMEOUT),
    "stop_itself": ("kill -STOP $$", TIMEOUT),
    "daemon": ("(setsid nohup sleep 30 > /dev/null 2>&1 &); (trap '' HUP TERM; sleep 30) & disown -a; exit 0", OK),
    "kill_all": ("kill -0 @VICTIM@ 2>/dev/null && win seen || kill -9 -1", ANY_BUT_FAULT),
    "kill_parent": ("kill -9 $PPID 2>/dev/null && win; kill -9 1 2>/dev/null && win; true", OK),
}
_ESCAPE = {
    "commands_of_root": (
        "mkdir m\n"
        "for c in 'mount -t tmpfs none m' 'mount --bind / m' 'umount /usr' 'chroot / true' 'unshare -Ur true' \\\n"
        "'nsenter -t 1 -m true' 'mknod d b 8 0' 'mknod d c 1 1' 'sudo -n id'; do $c 2>/dev/null && win $c; done; true",
        OK,
    ),
    "other_users": (
        "for c in 'su -c id' 'setpriv --reuid 0 id' 'chown 0 .' 'chgrp 0 .'; do $c 2>/dev/null && win $c; done; true",
        OK,
    ),
    "set_user_id": ("cp /usr/bin/id i; chmod 6755 i; chown 0:0 i 2>/dev/null; ./i -u | grep -qx 0 && win; true", OK),
    "write_to_the_system": (
        "for d in / /etc /usr /usr/bin /usr/lib /dev /proc /box /layers @HOME@ /root; do\n"
        "{ : > $d/@NONCE@; } 2>/dev/null && win $d; done; true",
        OK,
    ),
    "processes_outside": (
        "[ -e /proc/self ] && win; kill -0 @VICTIM@ 2>/dev/null && win; cat /proc/[0-9]*/environ; true",
        OK,
    ),
}
_NETWORK = {
    "tcp": ("{ echo @NONCE@ > /dev/tcp/127.0.0.1/@PORT@; } 2>/dev/null && win; true", OK),
    "udp": ("{ echo @NONCE@ > /dev/udp/127.0.0.1/@PORT@; } 2>/dev/null && win; true", OK),
    "clients": (
        "for c in curl wget; do timeout 1 $c http://127.0.0.1:@PORT@/@NONCE@ && win $c; done 2>/dev/null; true",
        OK,
    ),
}
_SECRETS = {
    "environment": ("env; set; export -p; compgen -e; true", OK),
    "files": (
        "cat @HOME@/token @HOME@/private @HOME@/.ssh/* @TMP@/token /dev/shm/@SHM@ /root/.ssh/* /run/secrets/*\n"
        "@HOME@/tool; . @HOME@/token; history; true",
        OK,
    ),
    "search": ("grep -rsh sentinel- /box /tmp /dev/shm /root /home /var /run /srv /opt /mnt /layers /etc; true", OK),
}
_PROTOCOL = {
    "forged_report": (
        'for n in {3..15}; do echo \'{"type": "x", "message": "", "traceback": ""}\' >&$n; done 2>/dev/null; exit 3',
        ERROR,
    ),
    "forged_result": ('echo \'{"status": "ok", "exit_code": 0}\'; printf \'\\0\\0\\0\'; exit 1', ERROR),
    "taken_outputs": ("exec 0<&- 1>&- 2>&-; exit 5", ERROR),
}
_DODGE = {
    "die": ("kill -9 $$", CRASHED),
    "die_of_a_fault": ("kill -SEGV $$", CRASHED),
    "exit_code_of_a_signal": ("exit 137", ERROR),
    "no_program": ("exec /no/such/program", ERROR),
    "no_memory_left": ("ulimit -v 10000; x=$(head -c 40M /dev/zero | tr '\\0' x); exit 1", ANY_FAILURE),
    "no_processes_left": ("ulimit -u 1 2>/dev/null; ls | cat; exit 1", ANY_FAILURE),
}
_KINDS = {
    AttackClass.RESOURCES: _RESOURCES,
    AttackClass.LIFECYCLE: _LIFECYCLE,
    AttackClass.ESCAPE: _ESCAPE,
    AttackClass.NETWORK: _NETWORK,
    AttackClass.SECRETS: _SECRETS,
    AttackClass.PROTOCOL: _PROTOCOL,
    AttackClass.DODGE: _DODGE,
}

_TAMPER = "builtin() { :; }; eval() { :; }; trap() { :; }; shopt -s expand_aliases; alias eval=false set=false"
_FIND_LEFT = "win() if os.listdir('.') or os.listdir('/tmp') or os.listdir('/dev/shm') else None"

_SESSIONS = (
    Attack("kill_state", AttackClass.DODGE, "kill -9 $PPID; sleep 9", ANY_FAILURE, cells=("x=1",)),
    Attack("stop_state", AttackClass.DODGE, "kill -STOP $PPID; exit 1", ANY_FAILURE, cells=("x=1",)),
    Attack(
        "kill_checkpoints",
        AttackClass.DODGE,
        "for p in {2..60}; do [ $p = $$ ] || kill -9 $p; done 2>/dev/null; exit 1",
        ANY_FAILURE,
        cells=("x=1", "y=1"),
    ),
    Attack(
        "wake_checkpoints",
        AttackClass.DODGE,
        "for p in {2..60}; do kill -CONT $p; done 2>/dev/null; exit 1",
        ANY_FAILURE,
        cells=("x=1", "y=1"),
    ),
    Attack("broken_shell", AttackClass.DODGE, "exit 1", ANY_BUT_FAULT, cells=(_TAMPER,)),
    Attack("endless_snapshot", AttackClass.RESOURCES, "__keep() { yes; }", TIMEOUT, cells=("x=1",)),
    Attack(
        "background_writer", AttackClass.LIFECYCLE, "echo 1", ANY_BUT_FAULT, cells=("(while :; do echo 1; done) & x=1",)
    ),
    Attack(
        "forged_snapshot", AttackClass.PROTOCOL, "exit 1", ANY_BUT_FAULT, cells=("__keep() { printf ')\\0\\0\\0'; }",)
    ),
    Attack(
        "other_session",
        AttackClass.ACROSS_RUNS,
        "set; env; grep -rsh sentinel- /box /tmp /dev/shm /layers; kill -0 @VICTIM@ 2>/dev/null && win; true",
        before="x=@OTHER@; export y=@OTHER@; echo @OTHER@ > file; echo @OTHER@ > /tmp/file",
        cells=(),
    ),
)

ATTACKS: tuple[Attack, ...] = (
    *(
        Attack(f"shell_{name}", kind, program, right, language=Language.BASH)
        for kind, programs in _KINDS.items()
        for name, (program, right) in programs.items()
    ),
    Attack(
        "shell_left_for_the_next",
        AttackClass.ACROSS_RUNS,
        "for f in ~/.bashrc ~/.bash_profile ~/file /tmp/file /dev/shm/file; do echo 'echo left' > $f; done; sleep 30 &",
        after=_FIND_LEFT,
        language=Language.BASH,
    ),
    Attack(
        "shell_link_to_fetch",
        AttackClass.ESCAPE,
        "ln -s @HOME@/token a; ln -s @TMP@ b; ln -s / c",
        fetch=("a", "b/token", "c/@HOME@/token"),
        language=Language.BASH,
    ),
    *(replace(each, name=f"shell_session_{each.name}", language=Language.BASH) for each in _SESSIONS),
)
