"""One run of PATE on CIFAR-10 embeddings, drawn: votes, answers and what they cost, and how many teachers are best.

    python benchmarks/pate_walk.py --data FOLDER [--epsilon 2]

FOLDER holds train-embeddings.npy, train-labels.npy, test-embeddings.npy and test-labels.npy. Teachers are linear heads;
they vote on test rows, whose true labels score. The votes are shown as they are, which only public data allow. Writes
benchmarks/results/pate_walk.json and docs/images/pate-*.png.
"""

import argparse
from pathlib import Path

import numpy as np
from results import HERE, save

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.privacy.teachers.heads import Heads
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.vote_accounting import account_votes, answer_probabilities
from labeldp.recipes.pipelines.teachers import QueryPlan, choose_confident_votes
from labeldp.recipes.task import Task
from labeldp.report.votes import plot_accuracy_by_teachers, plot_agreement, plot_leads, plot_spending

DELTA, ANSWERS, QUERIES = 1e-5, 200, 600
NUMBERS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500)
IMAGES = HERE.parent / "docs" / "images"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, default=2.0)
    chosen = parser.parse_args()
    train, test = (Embeddings(np.load(chosen.data / f"{part}-embeddings.npy")) for part in ("train", "test"))
    labels, truth = (np.load(chosen.data / f"{part}-labels.npy").astype(np.int64) for part in ("train", "test"))
    normalizer = RowNormalizer.fit(train)
    points, asked = normalizer(train), normalizer(test)
    everything, space = np.ones(len(labels), bool), ldp.LabelSpace(list(range(10)))
    IMAGES.mkdir(exist_ok=True)

    counts, single = {}, {}
    for number in NUMBERS:
        weights = Heads().fit(points, labels, assign_teachers(everything, number, 0), 10)
        counts[number] = Heads.vote(weights, asked)
        few = weights[:50]
        single[number] = float(np.mean([((asked @ head).argmax(axis=1) == truth).mean() for head in few]))
    plurality = {number: float((votes.argmax(axis=1) == truth).mean()) for number, votes in counts.items()}
    plot_accuracy_by_teachers({"plurality": plurality, "a single teacher": single}, IMAGES / "pate-teachers.png")
    plot_leads({f"{number:,} teachers": counts[number] for number in (5, 50, 250, 2_500)}, IMAGES / "pate-leads.png")

    count, votes = choose_confident_votes(
        QueryPlan(Task(train, space, everything, chosen.epsilon, DELTA), None, ANSWERS, QUERIES, 0.5)
    )
    weights = Heads().fit(points, labels, assign_teachers(everything, count, 0), 10)
    cast = Heads.vote(weights, asked)[:QUERIES]
    plot_agreement(cast, IMAGES / "pate-agreement.png", votes.threshold)
    expected_answers = answer_probabilities(cast, votes).cumsum()
    halts = min(QUERIES, int(np.searchsorted(expected_answers, ANSWERS)) + 1)  # in expectation
    steps = [*range(10, halts, 10), halts]
    accounts = [account_votes(cast, votes, DELTA, n_queries=queries) for queries in steps]
    spent = {
        "reserved before the first draw": [votes.loss(QUERIES, ANSWERS).epsilon(DELTA)] * len(steps),
        "whatever the votes are": [
            votes.loss(n, min(ANSWERS, round(expected_answers[n - 1]))).epsilon(DELTA) for n in steps
        ],
        "for these votes: not to be published": [each.epsilon_data_dependent for each in accounts],
    }
    plot_spending(
        steps, [float(expected_answers[queries - 1]) for queries in steps], spent, IMAGES / "pate-spending.png"
    )

    answers = votes.draw(cast)
    known = answers.codes >= 0
    figures = {
        "epsilon": chosen.epsilon,
        "delta": DELTA,
        "teachers": count,
        "votes": repr(votes),
        "asked": answers.n_queries,
        "answered": answers.n_answered,
        "answers right": float((answers.codes[known] == truth[:QUERIES][known]).mean()),
        "plurality of all queries right": float((cast.argmax(axis=1) == truth[:QUERIES]).mean()),
        "plurality by teachers": plurality,
        "single by teachers": single,
        "share of queries that lead by more than 2": {n: float((_lead(v) > 2).mean()) for n, v in counts.items()},
        "spent when it halts, as expected": {"asked": halts} | {name: line[-1] for name, line in spent.items()},
    }
    for name, value in figures.items():
        print(f"{name}: {value}")
    save("pate_walk", figures)


def _lead(votes):
    ranked = np.sort(votes, axis=1)
    return ranked[:, -1] - ranked[:, -2]


if __name__ == "__main__":
    main()
