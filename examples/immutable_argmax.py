"""An audit that breaks a published mechanism, and finds nothing against the sound one on the same votes.

    python examples/immutable_argmax.py

Two sets of votes that differ by one teacher's vote, so by one label. Each mechanism answers them many times, and
whatever answer tells them apart best bounds its epsilon from below (Clopper-Pearson, 99.99 %).
"""

import math

import numpy as np
from scipy.stats import beta

import labeldp as ldp
from labeldp.mechanisms import ImmutableArgmax, LNMax, StableVote

HERE, THERE = [125, 125], [124, 126]
RUNS = 5000
DELTA = 1e-5


def audited(mechanism):
    """Return a lower bound on epsilon for one query, from the answers on both votes."""
    tables = [[mechanism.draw(np.array([votes])).codes[0] for _ in range(RUNS)] for votes in (HERE, THERE)]
    best = 0.0
    for answer in (-1, 0, 1):
        seen = [table.count(answer) for table in tables]
        for hits, others in (seen, seen[::-1]):
            low = beta.ppf(5e-5, hits, RUNS - hits + 1) if hits else 0.0
            high = beta.ppf(1 - 5e-5, others + 1, RUNS - others) if others < RUNS else 1.0
            if low > DELTA:
                best = max(best, math.log((low - DELTA) / high))
    return best


def main():
    """Audit three mechanisms, each for one query."""
    ldp.allow_unproven("immutable")
    immutable, noisy = ImmutableArgmax(20.0, 1), LNMax(20.0, 1)
    stable = StableVote(1.0, DELTA, 1, 1)
    print(f"{'':<18}{'claimed epsilon':>16}{'epsilon at least':>18}")
    for mechanism, claimed in (
        (immutable, immutable.claimed_loss(1).epsilon(DELTA)),
        (noisy, noisy.guarantee(DELTA).epsilon),
        (stable, stable.guarantee(DELTA).epsilon),
    ):
        found = audited(mechanism)
        verdict = "  the claim is false" if found > claimed else ""
        print(f"{type(mechanism).__name__:<18}{claimed:>16.2f}{found:>18.2f}{verdict}")


if __name__ == "__main__":
    main()
