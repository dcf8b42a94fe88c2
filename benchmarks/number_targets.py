"""A small error is not a good target: a line fitted to numbers as they were released, or by their evidence.

    python benchmarks/number_targets.py [--seeds 10]

People are made up: their labels, from 0 to 100, have variance 266, and 64 is what no line explains. Prints the table of
docs/numbers.md, means and deviations of the mean squared error on new people, and writes
benchmarks/results/number_targets.json.
"""

import argparse

import numpy as np
from results import save

import labeldp as ldp
from labeldp.mechanisms import RROnBins, UnbiasedBins

SPACE, GRID = ldp.LabelSpace.range(0, 100, 1), np.arange(101)


def people(rows, seed):
    generator = np.random.default_rng(seed)
    x = np.column_stack([np.ones(rows), generator.normal(size=(rows, 5))])
    return x, np.clip(np.rint(x @ [50, 12, -6, 4, 3, 0] + generator.normal(0, 8, rows)), 0, 100)


def fitted_to(x, numbers):
    return np.linalg.lstsq(x, numbers, rcond=None)[0]


def fitted_by_evidence(x, release, rounds=100):
    """A linear model with normal errors, by expectation maximisation: posterior of each label, then least squares."""
    likelihood = np.exp(release.log_evidence())
    weights, variance = fitted_to(x, release.values()), 300.0
    for _ in range(rounds):
        posterior = likelihood * np.exp(-((GRID - (x @ weights)[:, None]) ** 2) / (2 * variance))
        posterior /= posterior.sum(axis=1, keepdims=True)
        weights = fitted_to(x, posterior @ GRID)
        variance = (posterior * (GRID - (x @ weights)[:, None]) ** 2).sum(axis=1).mean()
    return weights


def errors(rows, epsilon, seed):
    x, labels = people(rows, seed)
    vault = ldp.Vault(labels, SPACE, ldp.Budget(2 * epsilon))
    prior = np.bincount(people(100_000, 1000)[1].astype(int), minlength=101) / 100_000  # of other people, public
    bins = vault.release(RROnBins(epsilon, prior))
    unbiased = vault.release(UnbiasedBins(epsilon, prior))
    models = {
        "values of bins": fitted_to(x, bins.values()),
        "evidence of bins": fitted_by_evidence(x, bins),
        "unbiased values": fitted_to(x, unbiased.unbiased_values()),
        "true labels": fitted_to(x, labels),
    }
    new, truth = people(20_000, 1001)
    return {name: ((new @ weights - truth) ** 2).mean() for name, weights in models.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds, cells = parser.parse_args().seeds, []
    for epsilon in (1.0, 2.0, 4.0):
        for rows in (1_000, 10_000):
            found = [errors(rows, epsilon, seed) for seed in range(seeds)]
            if not cells:
                print(f"| epsilon | rows | {' | '.join(found[0])} |\n|---|---:|{'---:|' * len(found[0])}")
            of = {name: np.array([each[name] for each in found]) for name in found[0]}
            cells.append({"epsilon": epsilon, "rows": rows})
            cells[-1] |= {name: {"mean": v.mean(), "deviation": v.std(ddof=1)} for name, v in of.items()}
            shown = (f"{v.mean():.1f} ± {v.std(ddof=1):.1f}" for v in of.values())
            print(f"| {epsilon:g} | {rows:,} | {' | '.join(shown)} |", flush=True)
    save("number_targets", {"seeds": seeds, "cells": cells})


if __name__ == "__main__":
    main()
