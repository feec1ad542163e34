"""pass@k: how often at least one of k samples is right, without the bias of trying it once with k of them."""

from __future__ import annotations

from math import comb


def pass_at_k(right: int, samples: int, k: int) -> float:
    """The unbiased estimate of Chen et al. (2021) for one problem: 1 - C(n-c, k) / C(n, k).

    In whole numbers up to one correctly rounded division: nothing overflows and nothing cancels.
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(
            f"pass@{k} of {right} right among {samples}: it needs 0 <= right <= samples and 1 <= k <= samples"
        )
    ways = comb(samples, k)
    return (ways - comb(samples - right, k)) / ways


def ks(samples: int) -> tuple[int, ...]:
    """The k to report for a number of samples: powers of two, and the number itself."""
    return (*(1 << power for power in range(samples.bit_length()) if 1 << power < samples), samples)
