"""Draws a second: ours, OpenDP's and NumPy's, side by side on one core.

    python benchmarks/noise.py

NumPy's draws are neither exact nor cryptographic; they show what exactness costs. Writes
benchmarks/results/noise.json.
"""

import argparse
import math
import time
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
from results import save, use_one_core

import labeldp as ldp
from labeldp.privacy.noise import samplers

CLASSES = 10
EPSILON = 1.0


def rate(draw, count, seconds=2.0):
    """The best of repeated runs, in draws a second: other load on the machine only ever slows one down."""
    draw(min(count, 1000))
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        draw(count)
        best = max(best, count / (time.perf_counter() - start))
    return best


def opendp_vector(make, metric, scale):
    mechanism = make(dp.vector_domain(dp.atom_domain(T=int)), metric, scale)
    return lambda n: mechanism([0] * n)


def opendp_responses():
    keep = 1 / (1 + (CLASSES - 1) * math.exp(-EPSILON))
    respond = dp.m.make_randomized_response(list(range(CLASSES)), keep)
    return lambda n: [respond(3) for _ in range(n)]


def numpy_gaussian(sigma):
    generator = np.random.default_rng()
    return lambda n: np.rint(generator.normal(0, sigma, n)).astype(np.int64)


def numpy_laplace(scale):
    generator, p = np.random.default_rng(), 1 - math.exp(-1 / scale)
    return lambda n: generator.geometric(p, n) - generator.geometric(p, n)


def numpy_responses():
    generator = np.random.default_rng()
    keep = 1 / (1 + (CLASSES - 1) * math.exp(-EPSILON))

    def draw(n):
        labels = np.full(n, 3, np.int8)
        other = (labels + generator.integers(1, CLASSES, n, np.int8)) % CLASSES
        return np.where(generator.random(n) < keep, labels, other)

    return draw


def our_responses():
    space = ldp.LabelSpace(list(range(CLASSES)))
    labels = np.full(4_000_000, 3, np.int8)
    mechanism = ldp.RandomizedResponse(EPSILON)
    common = dict(space=space, guarantee=None, mechanism="RandomizedResponse", n_rows=len(labels))
    return lambda n: mechanism.draw(labels[:n], common, samplers.SYSTEM)


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    use_one_core()
    dp.enable_features("contrib")
    many, few = 4_000_000, 20_000
    rows = {
        "randomized response, 10 classes": (
            rate(our_responses(), many),
            rate(opendp_responses(), few),
            rate(numpy_responses(), many),
        )
    }
    for scale in (2.0, 20.0, 1000.0):
        rows[f"discrete Laplace, scale {scale:g}"] = (
            rate(lambda n, s=scale: samplers.discrete_laplace(Fraction(s), n), many),
            rate(opendp_vector(dp.m.make_laplace, dp.l1_distance(T=int), scale), few),
            rate(numpy_laplace(scale), many),
        )
    for sigma in (2.0, 20.0, 1000.0):
        rows[f"discrete Gaussian, sigma {sigma:g}"] = (
            rate(lambda n, s=sigma: samplers.discrete_gaussian(Fraction(s), n), many),
            rate(opendp_vector(dp.m.make_gaussian, dp.l2_distance(T=int), sigma), few),
            rate(numpy_gaussian(sigma), many),
        )
    print(f"{'draws a second, one core':<34}{'labeldp':>12}{'OpenDP':>12}{'NumPy':>12}{'labeldp / OpenDP':>18}")
    for name, (ours, theirs, unsafe) in rows.items():
        print(f"{name:<34}{ours:>12,.0f}{theirs:>12,.0f}{unsafe:>12,.0f}{ours / theirs:>17,.0f}x")
    save("noise", {name: dict(zip(("labeldp", "opendp", "numpy"), row, strict=True)) for name, row in rows.items()})


if __name__ == "__main__":
    main()
