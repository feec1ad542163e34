"""The filter is entered in two parts; together they allow what the whole list allows, and nothing else."""

from __future__ import annotations

import struct
from itertools import product

import pytest

from cleaner_rl.sandbox import seccomp

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
ARGUMENTS = (0, 1, 2, 3, 4, 15, 16, 17, 22, 23, 38, 0x5401, 0x541B, 0x00010000, 0x10000000, 0x7E020000, 0x3D0F00)
"""Of `prctl`, `ioctl`, `socket`, `clone`, ...: what rules ask for, and their neighbours."""


def answer(program: bytes, number: int, arch: int, first: int, second: int) -> int:
    """What the kernel would answer: a classic BPF machine, as far as libseccomp uses it."""
    data = struct.pack("=iIQ6Q", number, arch, 0, first, second, 0, 0, 0, 0)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x05:
                at += value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x25:
                at += if_true if accumulator > value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x54:
                accumulator &= value
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


@pytest.mark.parametrize("processes", [True, False])
def test_both_parts_together_are_the_whole_list(processes: bool) -> None:
    """For every system call, with all arguments that a rule asks for."""
    whole = seccomp.build(processes)
    parts = seccomp.build(processes, supervisor=True), seccomp.take_back(processes)
    arch = ARCH["x86_64"]
    allowed = 0
    for number in range(470):
        for first, second in product(ARGUMENTS, (0, 0x5401, 0x5413, 0x5412)):
            want = answer(whole, number, arch, first, second)
            # The kernel asks all filters and takes the strictest answer; among errors, that of the last one entered.
            both = [answer(part, number, arch, first, second) for part in reversed(parts)]
            assert (want == ALLOW) == (both == [ALLOW, ALLOW]), number
            if want != ALLOW:
                assert want == next(each for each in both if each != ALLOW)
            allowed += want == ALLOW
    assert allowed


def test_a_foreign_architecture_is_killed() -> None:
    """32-bit calls have other numbers, so no list of numbers holds for them."""
    for program in (seccomp.build(True), seccomp.build(True, supervisor=True), seccomp.take_back(True)):
        assert answer(program, 1, 0x40000003, 0, 0) == KILL
