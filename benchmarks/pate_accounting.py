"""What published teachers' votes cost by our accounting, and how long accounting takes, on one core.

    python benchmarks/pate_accounting.py --votes mnist_250_teachers.npy

The file holds the votes of 250 teachers on 9,000 MNIST images, one row an image: it is published at
github.com/npapernot/multiple-teachers.
The published figures are those of Papernot et al. (2017, 2018). Writes benchmarks/results/pate_accounting.json.
"""

import argparse
import time

import numpy as np
from results import save, show, use_one_core

from labeldp.mechanisms import ConfidentGNMax, GNMax, LNMax, StableVote
from labeldp.privacy.teachers.sanitizing import sanitize
from labeldp.privacy.teachers.vote_accounting import ORDERS, account_votes, data_dependent_rdp

DELTA = 1e-5
CONFIDENT = ConfidentGNMax(200, 150, 40, 9000, 286)


def seconds(work, runs=3):
    """The best of a few runs: other load on the machine only ever slows one down."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def row(result):
    names = ("queries", "answers", "epsilon_data_dependent", "epsilon_data_independent", "epsilon_sanitized")
    return {name: value for name in names if (value := getattr(result, name)) is not None}


def published(votes):
    """The settings of the papers, with both conversions."""
    settings = {
        "Confident-GNMax (200, 150, 40), 286 answers": (CONFIDENT, {"n_answers": 286}),
        "LNMax (20), 100 queries": (LNMax(20, 9000), {"n_queries": 100}),
        "LNMax (20), 1,000 queries": (LNMax(20, 9000), {"n_queries": 1000}),
        "GNMax (40), 1,000 queries": (GNMax(40, 9000), {"n_queries": 1000}),
    }
    return {
        f"{name}, {conversion}": row(account_votes(votes, mechanism, DELTA, conversion=conversion, **stop))
        for name, (mechanism, stop) in settings.items()
        for conversion in ("classic", "tight")
    }


def random_orders(votes, runs=100):
    """The first of those settings with the queries in random orders: how much the order of the file matters."""
    generator = np.random.default_rng(0)
    found = [
        account_votes(votes[generator.permutation(len(votes))], CONFIDENT, DELTA, n_answers=286, conversion="classic")
        for _ in range(runs)
    ]
    epsilons = [result.epsilon_data_dependent for result in found]
    return {"runs": runs, "mean": float(np.mean(epsilons)), "deviation": float(np.std(epsilons))}


def figures_to_publish(votes):
    """Sanitized figures for 1,000 queries: 250 teachers as they are, and twenty times as many that vote alike."""
    found = {}
    for times, mechanisms in {
        1: [CONFIDENT, GNMax(40, 1000), LNMax(20, 1000)],
        20: [
            ConfidentGNMax(4000, 1500, 300, 1000, 1000),
            GNMax(300, 1000),
            LNMax(200, 1000),
        ],
    }.items():
        part = times * votes[:1000].astype(np.int64)
        for mechanism in mechanisms:
            result = account_votes(part, mechanism, DELTA)
            start = time.perf_counter()
            result = sanitize(result, part, mechanism)
            name = f"{type(mechanism).__name__}, {250 * times} teachers"
            found[name] = row(result) | {"seconds": round(time.perf_counter() - start, 2)}
    return found


def stable(votes):
    """How many of all queries StableVote answers, as one run draws them."""
    counts = votes.astype(np.int64)
    found = {}
    for times, epsilon, unstable in ((1, 8.0, 5), (20, 1.0, 5), (20, 2.0, 100), (20, 8.0, 500)):
        mechanism = StableVote(epsilon, DELTA, len(votes), unstable)
        answers = mechanism.draw(times * counts)
        found[f"StableVote, epsilon {epsilon:g}, {unstable} unstable, {250 * times} teachers"] = {
            "distance needed": mechanism.threshold,
            "asked": answers.n_queries,
            "answered": answers.n_answered,
        }
    return found


def speed():
    votes = np.random.default_rng(0).multinomial(250, [0.5, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.03, 0.01, 0.01], 26_000)
    return {
        f"{name}, 26,000 queries by {len(ORDERS)} orders, seconds": seconds(
            lambda m=mechanism: data_dependent_rdp(votes, m)
        )
        for name, mechanism in {
            "Confident-GNMax": CONFIDENT,
            "GNMax": GNMax(40, 1),
            "LNMax": LNMax(20, 1),
        }.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--votes", required=True, help="a .npy file of vote counts")
    votes = np.load(parser.parse_args().votes, allow_pickle=False)
    use_one_core()
    parts = {
        "published settings": published(votes),
        "queries in random orders": {"Confident-GNMax (200, 150, 40), 286 answers, classic": random_orders(votes)},
        "sanitized": figures_to_publish(votes),
        "stable": stable(votes),
    }
    for title, rows in parts.items():
        print(title)
        for name, figures in rows.items():
            print(f" {name}")
            show(figures)
    times = speed()
    print("speed")
    for name, value in times.items():
        print(f"  {name}: {value:.3f}")
    save("pate_accounting", {"delta": DELTA, **parts, "speed": times})


if __name__ == "__main__":
    main()
