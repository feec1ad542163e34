"""What the lab's engine does between two matrix products, in C (`fused.c`): torch takes a dozen operations for each.

The C compiler (`cc`) builds it for this CPU at the first use, and the result is kept in the cache. Tensors are
contiguous and float32.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.toy.folder import cache_folder

SOURCE = Path(__file__).with_name("fused.c")
FLAGS = ("-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512", "-fPIC")
_POINTER, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float


class NoCompilerError(RuntimeError):
    """There is no C compiler on the path."""


@cache
def _library() -> ctypes.CDLL:
    kind = hashlib.sha256(SOURCE.read_bytes() + _processor()).hexdigest()[:16]
    built = cache_folder().parent / "fused" / f"{kind}.so"
    if not built.exists():
        _build(built)
    library = ctypes.CDLL(str(built))
    library.normed.argtypes = [_POINTER, _POINTER, _FLOAT, _LONG, _LONG, _POINTER]
    library.gated.argtypes = [_POINTER, _LONG, _LONG, _POINTER]
    library.attended.argtypes = [*[_POINTER] * 3, _FLOAT, *[_POINTER] * 3, *[_LONG] * 6, *[_POINTER] * 3]
    library.drawn.argtypes = [_POINTER, _POINTER, _LONG, _LONG, _POINTER, _POINTER]
    for each in (library.normed, library.gated, library.attended, library.drawn):
        each.restype = None
    return library


def _processor() -> bytes:
    """What `-march=native` depends on."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else [platform.processor()]
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags"))} or lines)).encode()


def _build(library: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompilerError(
            "the lab's engine is built by a C compiler, and there is no `cc` on the path: install gcc or clang"
        )
    library.parent.mkdir(parents=True, exist_ok=True)
    part = library.with_suffix(f".part{os.getpid()}")
    compiled = part.with_suffix(f".o{os.getpid()}")
    subprocess.run([compiler, *FLAGS, "-c", str(SOURCE), "-o", str(compiled)], check=True, timeout=120)
    # Linked without -ffast-math, which would change how the whole process rounds numbers near 0.
    subprocess.run([compiler, "-shared", str(compiled), "-o", str(part), "-lm"], check=True, timeout=120)
    compiled.unlink()
    part.rename(library)


def normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Return RMSNorm of each row."""
    out = torch.empty_like(x)
    size = x.shape[-1]
    _library().normed(x.data_ptr(), weight.data_ptr(), epsilon, x.numel() // size, size, out.data_ptr())
    return out


def gated(x: Tensor) -> Tensor:
    """Return `silu(gate) * up` of rows that have gate and up one after the other."""
    size = x.shape[-1] // 2
    out = x.new_empty(*x.shape[:-1], size)
    _library().gated(x.data_ptr(), out.numel() // size, size, out.data_ptr())
    return out


def attended(
    parts_BTD: Tensor,  # noqa: N803 - the shape is part of the name
    norms: tuple[Tensor, Tensor] | None,
    epsilon: float,
    cos_BTD: Tensor,  # noqa: N803
    sin_BTD: Tensor,  # noqa: N803
    starts_B: Tensor,  # noqa: N803
    keys_BHTD: Tensor,  # noqa: N803
    values_BHTD: Tensor,  # noqa: N803
) -> Tensor:
    """Return the attention of new tokens to what their row's cache holds, and take them into the cache.

    `parts_BTD` has a token's queries, keys and values one after the other; `norms` are those of queries and keys.
    The new tokens of a row begin at its start.
    """
    rows, tokens, width = parts_BTD.shape
    groups, room, size = keys_BHTD.shape[1:]
    heads = width // size - 2 * groups
    out = parts_BTD.new_empty(rows, tokens, heads * size)
    query_norm, key_norm = (None, None) if norms is None else (each.data_ptr() for each in norms)
    _library().attended(
        *(parts_BTD.data_ptr(), query_norm, key_norm, epsilon, cos_BTD.data_ptr(), sin_BTD.data_ptr()),
        *(starts_B.data_ptr(), rows, tokens, heads, groups, size, room),
        *(keys_BHTD.data_ptr(), values_BHTD.data_ptr(), out.data_ptr()),
    )
    return out


def drawn(logits_BV: Tensor, draws_B: Tensor) -> tuple[Tensor, Tensor]:  # noqa: N803
    """Draw a token for each row by a uniform number; return them with their log-probs."""
    rows, size = logits_BV.shape
    ids_B, logprobs_B = draws_B.new_empty(rows, dtype=torch.long), draws_B.new_empty(rows)  # noqa: N806
    _library().drawn(logits_BV.data_ptr(), draws_B.data_ptr(), rows, size, ids_B.data_ptr(), logprobs_B.data_ptr())
    return ids_B, logprobs_B
