"""The near-zero-cost paper's tables 1 and 2 on MNIST, with what each row really guarantees.

    python benchmarks/near_zero_cost.py --data FOLDER --work FOLDER [--seeds 3] [--workers N]

FOLDER of data holds the four idx files. 250 teachers, or 5, are small convolutional networks on disjoint parts of the
60,000 training pictures; they vote on the first 9,000 test pictures, and a student of the same kind learns the answers,
supervised as in the paper, and is tested on the last 1,000. The immutable noisy maximum has scale 1e10 and a constant
so large that noise never matters, as published. "Claimed" is what its authors would state, at delta 1e-5; "proved" is
ours: for noisy maxima whatever the votes are, for immutable ones nothing. `StableVote` is the private way to the same
end; with 5 teachers it would never answer. Teachers vote once for all rows of a table: votes and cells
are kept in the work folder, and the script goes on where it stopped. Writes benchmarks/results/near_zero_cost.json.
"""

import argparse
import json
import math
from functools import partial
from pathlib import Path

import numpy as np
from results import save
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import labeldp as ldp
from labeldp.core.guarantee import Guarantee
from labeldp.data.loaders import load
from labeldp.learn import Supervised, Training
from labeldp.learn.backbones import build
from labeldp.privacy.mechanisms.stable import ImmutableArgmax, StableVote, distances_to_instability
from labeldp.privacy.mechanisms.vote_aggregators import GNMax, LNMax
from labeldp.privacy.teachers import engines
from labeldp.privacy.teachers.networks import Networks
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.teacher_data import TeacherData
from labeldp.releases.derived import PseudoLabels

DELTA, ASKED, MANY, FEW = 1e-5, 9_000, 250, 5
SPACE = ldp.LabelSpace(list(range(10)))
PAPER = {  # the paper's MNIST rows: student accuracy
    ("LNMax, scale 20", MANY, 100): 63.5,
    ("LNMax, scale 20", MANY, 1_000): 89.8,
    ("LNMax, scale 20", MANY, 5_000): 94.1,
    ("LNMax, scale 20", MANY, 9_000): 93.4,
    ("immutable, Laplace", MANY, ASKED): 95.1,
    ("immutable, Laplace", FEW, ASKED): 97.8,
    ("votes without noise", MANY, ASKED): 94.5,
    ("true labels", 0, ASKED): 98.1,
}


def network(device, epochs, batch, seed=0):
    """A convolutional network that two cores can train by the hundred."""
    training = Training(epochs, batch, "adamw", 2e-3, weight_decay=1e-2, device=device, seed=seed)
    return Supervised(partial(build, "cnn", width=8), training)


def votes_of(teachers, pictures, labels, asked, chosen):
    """Train teachers and count their votes, or read what was counted before."""
    path = chosen.work / f"mnist-votes-{teachers}.npy"
    if not path.is_file():
        epochs = 30 if teachers > 100 else 5
        checkpoints = chosen.work / f"teachers-{teachers}"
        how = Networks(
            network(chosen.device, epochs, 32), workers=chosen.workers, checkpoint_folder=checkpoints, progress=True
        )
        dealt = assign_teachers(np.ones(len(labels), bool), teachers, 0)
        np.save(path, how.count_votes(TeacherData(pictures, labels, dealt, asked, SPACE)))
    return np.load(path)


def rows(many, few):
    """What to tell the student: (name, teachers, queries, mechanism, votes)."""
    never = {"scale": 1e10, "max_queries": ASKED, "constant": 1e18}
    for queries in (100, 1_000, 5_000, 9_000):
        yield "LNMax, scale 20", MANY, queries, LNMax(20.0, queries), many
    for queries in (100, 1_000, 5_000, 9_000):
        yield "GNMax, sigma 40", MANY, queries, GNMax(40.0, queries), many
    yield "StableVote, epsilon 8", MANY, ASKED, StableVote(8.0, DELTA, ASKED, 5), many
    for teachers, votes in ((MANY, many), (FEW, few)):
        yield "immutable, Laplace", teachers, ASKED, ImmutableArgmax(**never), votes
        yield "immutable, Gaussian", teachers, ASKED, ImmutableArgmax(**never, noise="gaussian"), votes
        yield "votes without noise", teachers, ASKED, None, votes
    yield "true labels", 0, ASKED, None, None


def released_codes(mechanism, queries, votes, truth):
    """Return the label of each picture, -1 for none."""
    if votes is None:
        return truth.copy()
    codes = np.full(len(truth), -1)
    codes[:queries] = (votes.argmax(axis=1) if mechanism is None else mechanism.draw(votes[:queries]).codes)[:queries]
    return codes


def one_student(shared, job):
    """Draw the answers, train a student on them, and keep what it reached."""
    (asked, known, new, wanted, device, cells_file), ((name, teachers, queries, mechanism, votes), seed) = shared, job
    codes = released_codes(mechanism, queries, votes, known)
    answered = codes >= 0
    release = PseudoLabels(
        space=SPACE,
        guarantee=Guarantee(losses(mechanism, queries)[1], DELTA),
        mechanism=name,
        n_rows=ASKED,
        row_mask=answered,
        codes=codes.astype(np.int32),
        confidence=1 - 1e-6,
    )
    epochs = min(400, max(8, 60_000 // max(1, int(answered.sum()))))
    student = network(device, epochs, 64, seed).fit(asked, release)
    right = float((codes[answered] == known[answered]).mean())
    accuracy = float((student.predict(new) == wanted).mean())
    cell = {"key": (name, teachers, queries, seed), "answers": int(answered.sum())}
    cell |= {"labels right": right, "student": accuracy}
    with cells_file.open("a") as lines:
        lines.write(json.dumps(cell) + "\n")
    return cell


def losses(mechanism, queries):
    """Return the epsilon that is claimed in the paper's way, and the one that is proved."""
    if mechanism is None:
        return math.inf, math.inf
    proved = mechanism.loss(*mechanism.caps).epsilon(DELTA)
    return (
        (mechanism.claimed_loss(queries).epsilon(DELTA), proved)
        if hasattr(mechanism, "claimed_loss")
        else (proved, proved)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, help="processes; by default one for each core")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    ldp.allow_unproven("immutable")
    (pictures, labels), (public, truth) = (load("mnist", chosen.data, split) for split in ("train", "test"))
    asked, new = public.select(np.arange(ASKED)), public.select(np.arange(ASKED, len(public)))
    labels, known, wanted = labels.astype(np.int32), truth[:ASKED].astype(np.int64), truth[ASKED:]
    many, few = (votes_of(count, pictures, labels, asked, chosen) for count in (MANY, FEW))
    cells_file = chosen.work / "near-zero-cost-cells.jsonl"
    lines = cells_file.read_text().splitlines() if cells_file.is_file() else []
    cells = {tuple(cell["key"]): cell for cell in map(json.loads, lines)}
    wanted_rows = list(rows(many, few))
    jobs = [
        (row, seed) for row in wanted_rows for seed in range(chosen.seeds) if (*row[:3], seed) not in cells
    ]  # a job draws its own noise
    shared = (asked, known, new, wanted, chosen.device, cells_file)
    for cell in engines.run(one_student, shared, jobs, workers=chosen.workers):
        cells[tuple(cell["key"])] = cell

    table = []
    for name, teachers, queries, mechanism, _ in wanted_rows:
        claimed, proved = losses(mechanism, queries)
        found = [cells[(name, teachers, queries, seed)] for seed in range(chosen.seeds)]
        students = [cell["student"] for cell in found]
        table.append(
            {
                "aggregation": name,
                "teachers": teachers,
                "queries": queries,
                "answers": float(np.mean([cell["answers"] for cell in found])),
                "epsilon claimed": str(claimed) if math.isinf(claimed) else round(claimed, 10),
                "epsilon proved": str(proved) if math.isinf(proved) else round(proved, 3),
                "labels right": float(np.mean([cell["labels right"] for cell in found])),
                "student": float(np.mean(students)),
                "deviation": float(np.std(students, ddof=1)) if len(students) > 1 else 0.0,
                "student in the paper": PAPER.get((name, teachers, queries)),
            }
        )
    gaps = {str(count): shares(votes) for count, votes in ((MANY, many), (FEW, few))}
    show(table)
    save("near_zero_cost", {"delta": DELTA, "seeds": chosen.seeds, "rows": table, "share of queries by distance": gaps})


def shares(votes):
    """The share of queries for which at least so many votes must move to change the winner."""
    away = distances_to_instability(votes)
    return {str(n): float((away >= n).mean()) for n in (1, 2, 3, 5, 10, 20, 50, 100) if n <= votes[0].sum() / 2 + 1}


def show(table):
    shown = Table(box=SIMPLE_HEAD, title="MNIST students, mean over seeds", title_justify="left")
    for name in ("aggregation", "teachers", "answers", "claimed", "proved", "labels right", "student", "paper"):
        shown.add_column(name, justify="left" if name == "aggregation" else "right")
    for row in table:
        claimed, proved = (f"{float(row[f'epsilon {kind}']):.3g}" for kind in ("claimed", "proved"))
        student = f"{row['student']:.1%} ± {row['deviation']:.1%}"
        paper = f"{row['student in the paper']} %" if row["student in the paper"] else ""
        counts = str(row["teachers"] or ""), f"{row['answers']:,.0f}"
        shown.add_row(row["aggregation"], *counts, claimed, proved, f"{row['labels right']:.2%}", student, paper)
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
