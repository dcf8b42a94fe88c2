"""PATE++ (Zhang et al. 2021) on Fashion-MNIST: four students on the same noisy answers of 250 teachers.

    python benchmarks/pate_plus_plus.py --data FOLDER --work FOLDER [--seeds 3] [--sweeps] [--rate R] [--device cpu]

FOLDER holds the official idx files. 250 teachers learn 240 training pictures each; of the first 9,000 test pictures,
asked in random order, Confident-GNMax answers 2,200, the others stay unlabelled, and the last 1,000 test the students.
The noise is such that the paper's own formula gives its two epsilons; what our accounting gives for the same noise
stands beside. A seed is a draw of the noise, an order of the questions and the start of the networks; all students of a
seed hear the same answers. `--sweeps` adds the paper's tables II and III.

Students differ in nothing but their method. On the CPU their network is small. Its rate was chosen on labels of which
a third was made wrong at random, its dropout on the answers of seed 100, by the mean of PATE, PATE+ and PATE++: without
it all were worse there, PATE by eleven points, PATE++ by less than one. The paper varies no pictures, and neither do
we; 20 epochs are what time allowed. The network for `--device cuda` is that of the PATE papers; nothing was tuned on
it, its rate is the small one's but where `--rate` gives another.

Votes are kept in the work folder (as secret as labels, were these not public); the kept figures rest on those in
artifacts/fashion-votes.npy, which can be put there as votes.npy. Cells are kept in benchmarks/results, and a run goes
on where the last one stopped; `--limit SECONDS` begins no cell after that. On a GPU several trainings at once
(`--jobs 4`) hide how long a small step takes to begin. True labels score, and do nothing else.
"""

import argparse
import hashlib
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from results import HERE, save
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy.stats import t as student_t
from torch import nn

import labeldp as ldp
from labeldp.core.guarantee import Guarantee
from labeldp.data import Images, augment
from labeldp.data.loaders import load
from labeldp.learn import SemiGAN, Supervised, Training
from labeldp.learn.backbones import Network
from labeldp.learn.semigan import select_trusted_rows
from labeldp.privacy.mechanisms.vote_aggregators import ConfidentGNMax
from labeldp.releases.derived import PseudoLabels

DELTA, LEVELS = 1e-5, (4.05, 5.04)
TEACHERS, PUBLIC, ANSWERS, QUERIES = 250, 9_000, 2_200, 4_400
THRESHOLD, SIGMA1 = 200, 150.0  # of the first Confident-GNMax (Papernot et al. 2018), for as many teachers
BETA, TAU, FADE = 0.2, 0.318, 0.9  # the paper's
RATE = 3e-3
BETAS, TAUS = (0.1, 0.2, 0.3, 0.4), (0.091, 0.182, 0.227, 0.273, 0.318, 0.364)
STUDENTS = ("PATE", "co-teaching", "PATE+", "PATE++")
SPACE = ldp.LabelSpace(list(range(10)))


@dataclass(frozen=True, order=True)
class Cell:
    student: str
    epsilon: float
    seed: int
    beta: float = BETA
    tau: float = 0.0
    epochs: int = 0
    rate: float = RATE


def small(shape, classes, width=8):
    """Two convolutions, each of which halves the picture, and one full layer: seconds an epoch on one core."""
    layers, inside = [], shape[0]
    for outside in (width, 2 * width):
        layers += [nn.Conv2d(inside, outside, 3, 2, 1, bias=False), nn.BatchNorm2d(outside), nn.LeakyReLU(0.1)]
        inside = outside
    size = inside * -(-shape[1] // 4) * -(-shape[2] // 4)
    layers += [nn.Dropout(0.3), nn.Flatten(), nn.Linear(size, 128, bias=False), nn.BatchNorm1d(128), nn.LeakyReLU(0.1)]
    layers += [nn.Dropout(0.3)]
    return Network(nn.Sequential(*layers), 128, {"name": "small", "shape": list(shape), "classes": classes})


def deep(shape, classes, width=96):
    """The deeper network of the PATE papers: seven convolutions and two full layers, here with batch normalisation."""
    layers, inside, wide = [], shape[0], 2 * width
    for outside, size, stride in (
        *((width, 3, step) for step in (1, 1, 2)),
        *((wide, 3, step) for step in (1, 1, 2)),
        (wide, 5, 1),
    ):
        layers += [nn.Conv2d(inside, outside, size, stride, size // 2, bias=False)]
        layers += [nn.BatchNorm2d(outside), nn.LeakyReLU(0.1), *([nn.Dropout(0.5)] if stride == 2 else [])]
        inside = outside
    layers.append(nn.Flatten())
    for before in (wide * -(-shape[1] // 4) * -(-shape[2] // 4), wide):
        layers += [nn.Linear(before, wide, bias=False), nn.BatchNorm1d(wide), nn.LeakyReLU(0.1)]
    return Network(nn.Sequential(*layers), wide, {"name": "deep", "shape": list(shape), "classes": classes})


def teacher(shape, classes, width=16):
    """Three convolutions and a linear layer: 240 pictures bear no more, and what dropout takes no vote gives back."""
    layers, inside = [], shape[0]
    for outside, size, stride in ((width, 5, 2), (2 * width, 3, 1), (2 * width, 3, 1)):
        layers += [nn.Conv2d(inside, outside, size, stride, size // 2, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if inside == width else []
        inside = outside
    layers.append(nn.Flatten())
    size = inside * (shape[1] // 4) * (shape[2] // 4)
    return Network(nn.Sequential(*layers), size, {"name": "teacher", "shape": list(shape), "classes": classes})


class LightlyVaried(Images):
    """Pictures that are never flipped, and shifted by one pixel at most: a teacher has few, and little time."""

    @classmethod
    def of(cls, images):
        pixels = images.batch(torch.arange(len(images))).mul(255).round().to(torch.uint8)
        return cls(pixels, flip=False)

    def weak(self, batch):
        return augment.shift(batch, 1, reflect=False).contiguous(memory_format=torch.channels_last)


SETTINGS = {  # the same for all students
    "cpu": (small, Training(epochs=20, batch_size=100, optimizer="adamw", learning_rate=RATE, device="cpu")),
    "cuda": (deep, Training(epochs=20, batch_size=100, optimizer="adamw", learning_rate=RATE, device="cuda")),
}


def student(name, backbone, training, beta=BETA):
    """Return a student, which differs from the others in nothing but its method."""
    two = {} if name == "PATE" else {"n_discriminators": 2, "noise_rate": beta, "count_decay": FADE}
    plus = {"plus": True} if name.startswith("PATE+") else {}
    return SemiGAN(backbone, training, augment="none", **two, **plus)


def learner(cell, device):
    return student(cell.student, *SETTINGS[device], cell.beta).with_training(
        seed=cell.seed, epochs=cell.epochs, learning_rate=cell.rate
    )


def as_release(codes, loss):
    """Return answers as a release with the guarantee of what they cost."""
    guarantee = Guarantee(loss.epsilon(DELTA), DELTA)
    common = {"space": SPACE, "guarantee": guarantee, "mechanism": "votes", "n_rows": PUBLIC, "row_mask": codes >= 0}
    return PseudoLabels(**common, codes=codes, confidence=1 - 1e-6)


def votes(data, work, workers):
    """Return the teachers' votes on the public pictures, from the work folder where they are there."""
    path = work / "votes.npy"
    if not path.is_file():
        np.save(path, teach(data, workers).astype(np.uint8))
    return np.load(path).astype(np.int64)


def teach(data, workers):
    """Train the teachers and count their votes; a vault would keep the counts, but here they are what is studied."""
    from labeldp.privacy.teachers.networks import Networks
    from labeldp.privacy.teachers.partition import assign_teachers
    from labeldp.privacy.teachers.teacher_data import TeacherData

    (pictures, labels), (asked, _) = (load("fashion-mnist", data, part, flip=False) for part in ("train", "test"))
    pictures = LightlyVaried.of(pictures)
    training = Training(
        epochs=60, batch_size=60, optimizer="adamw", learning_rate=5e-3, weight_decay=1e-2, device="cpu"
    )
    dealt = assign_teachers(np.ones(len(labels), bool), TEACHERS, 0)
    teacher_data = TeacherData(pictures, labels, dealt, asked.select(np.arange(PUBLIC)), SPACE)
    return Networks(Supervised(teacher, training, label_smoothing=0.1), workers=workers, progress=True).count_votes(
        teacher_data
    )


def paper_epsilon(sigma2, queries=QUERIES, answers=ANSWERS):
    """Return the paper's figure: data-independent, with the classic conversion, at the best order."""
    each = queries / (2 * SIGMA1**2) + answers / sigma2**2
    return each + 2 * np.sqrt(each * np.log(1 / DELTA))


def mechanism(epsilon):
    low, high = 1.0, 1e6
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if paper_epsilon(middle) > epsilon else (low, middle)
    return ConfidentGNMax(THRESHOLD, SIGMA1, round(high, 3), QUERIES, ANSWERS)


class Seeded:
    """Bits from a seed, so that a run can go on and be repeated. No privacy hangs on them: these labels are public."""

    def __init__(self, *seed):
        self._generator = np.random.default_rng(seed)

    def uint16(self, count):
        return self._generator.integers(0, 2**16, count, np.uint16)

    def uint64(self, count):
        return self._generator.integers(0, 2**64, count, np.uint64)


def answers(counts, epsilon, seed):
    """Return the answers to the pictures, -1 where there is none, and how many were asked."""
    order = np.random.default_rng(seed).permutation(PUBLIC)
    drawn = mechanism(epsilon).draw(counts[order], Seeded(seed, round(100 * epsilon)))
    codes = np.full(PUBLIC, -1, np.int32)
    codes[order] = drawn.codes
    return codes, drawn.n_queries


class Bench:
    """What a worker keeps: pictures, votes, and the folder for counts of doubted labels."""

    def __init__(self, chosen):
        self.work, self.device = chosen.work, chosen.device
        images, self.labels = load("fashion-mnist", chosen.data, "test", flip=False)
        images = images.to(chosen.device)
        self.images, self.new = images.select(np.arange(PUBLIC)), images.select(np.arange(PUBLIC, len(images)))
        self.counts = votes(chosen.data, chosen.work, chosen.workers)

    def run(self, cell):
        begun = time.perf_counter()
        release = self.release(cell)
        if cell.student == "PATE++":
            release = release.keep(select_trusted_rows(release, self.contradictions(cell, release), cell.tau))
        wrong = release.labels()[release.row_mask] != self.labels[:PUBLIC][release.row_mask]
        model, contradictions = learner(cell, self.device).fit_and_count_contradictions(self.images, release)
        if cell.student == "PATE+":
            np.save(self._contradictions_path(cell), contradictions)
        right = (model.predict(self.new) == self.labels[PUBLIC:]).mean()
        facts = {"accuracy": float(right), "labels": int(release.row_mask.sum()), "wrong": float(wrong.mean())}
        return asdict(cell) | facts | {"seconds": round(time.perf_counter() - begun, 1)}

    def release(self, cell):
        codes, _ = answers(self.counts, cell.epsilon, cell.seed)
        return as_release(codes, mechanism(cell.epsilon).loss(QUERIES, ANSWERS))

    def contradictions(self, cell, release):
        """Return the counts of the first of the two trainings, which is that of PATE+."""
        if not self._contradictions_path(cell).is_file():
            _, counts = learner(cell, self.device).fit_and_count_contradictions(self.images, release)
            np.save(self._contradictions_path(cell), counts)
        return np.load(self._contradictions_path(cell))

    def _contradictions_path(self, cell):
        name = f"doubts-{self.device}-{cell.epochs}-{cell.epsilon}-{cell.seed}-{cell.beta}"
        return self.work / f"{name}{_rate(cell.rate)}.npy"


def cells(seeds, epochs, rate, levels, sweeps):
    """Return what is to be trained, the main table first; what shares a training is one job."""
    cell = partial(Cell, epochs=epochs, rate=rate)
    main = []
    for seed in seeds:
        for epsilon in levels:
            main += [[cell("PATE", epsilon, seed)], [cell("co-teaching", epsilon, seed)]]
            main += [[cell("PATE+", epsilon, seed), cell("PATE++", epsilon, seed, tau=TAU)]]
    if sweeps:
        for seed in seeds:
            main += [[cell("PATE++", LEVELS[0], seed, tau=tau)] for tau in TAUS if tau != TAU]
            for beta in BETAS:
                main += [[cell(name, LEVELS[0], seed, beta)] for name in STUDENTS[1:3] if beta != BETA]
    return main


_BENCH = []


def _begin(chosen, deadline):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _BENCH.extend([Bench(chosen), deadline])


def _job(wanted):
    bench, deadline = _BENCH
    return [bench.run(cell) for cell in wanted if time.time() < deadline]


def fill(chosen, path):
    """Train the cells that are missing, and return all."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    known = {_cell(row) for row in rows}
    jobs = [
        [cell for cell in job if cell not in known]
        for job in cells(chosen.numbers, chosen.epochs, chosen.rate, chosen.levels, chosen.sweeps)
    ]
    deadline = time.time() + chosen.limit
    with ProcessPoolExecutor(
        chosen.jobs, get_context("spawn"), initializer=_begin, initargs=(chosen, deadline)
    ) as pool:
        for future in as_completed([pool.submit(_job, job) for job in jobs if job]):
            for row in future.result():
                rows.append(row)
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return {_cell(row): row for row in rows}


def _rate(rate):
    """Return a mark for file names, of a rate that is not the usual one."""
    return "" if rate == RATE else f"-rate-{rate:g}"


def _cell(row):
    return Cell(*(row.get(field.name, field.default) for field in fields(Cell)))


def spread(values):
    """Return mean and deviation in points, and half the 95 % interval of the mean."""
    values = 100 * np.asarray(values, float)
    if len(values) < 2:
        return {"mean": float(values.mean()) if len(values) else None, "seeds": len(values)}
    deviation = float(values.std(ddof=1))
    half = float(student_t.ppf(0.975, len(values) - 1) * deviation / np.sqrt(len(values)))
    return {"mean": float(values.mean()), "deviation": deviation, "half": half, "seeds": len(values)}


def format_summary(summary, half=False):
    if summary["mean"] is None:
        return "-"
    width = summary.get("half" if half else "deviation")
    return f"{summary['mean']:.1f}" + ("" if width is None else f" ± {width:.1f}") + f" ({summary['seeds']})"


def show(title, columns, lines):
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for name in columns:
        table.add_column(str(name), justify="left" if name == columns[0] else "right")
    for line in lines:
        table.add_row(*map(str, line))
    Console(width=120).print(table)


def report(bench, found, seeds, epochs, rate, levels):
    """Print the tables of the cells that there are, and return their figures."""
    truth = bench.labels[:PUBLIC]
    mark = hashlib.sha256(bench.counts.astype(np.uint8).tobytes()).hexdigest()[:16]  # which votes these cells rest on
    figures = {
        "votes": mark,
        "plurality": float((bench.counts.argmax(axis=1) == truth).mean()),
        "levels": {},
        "sweeps": {},
    }
    cell, lines, noise = partial(Cell, epochs=epochs, rate=rate), [], []
    for epsilon in levels:
        votes, drawn = mechanism(epsilon), [answers(bench.counts, epsilon, seed) for seed in seeds]
        asked, given = np.mean([n for _, n in drawn]), np.mean([(codes >= 0).sum() for codes, _ in drawn])
        wrong = np.mean([(codes != truth)[codes >= 0].mean() for codes, _ in drawn])
        ours = votes.loss(QUERIES, ANSWERS).epsilon(DELTA)
        facts = {"sigma1": votes.sigma1, "sigma2": votes.sigma2, "paper's epsilon": paper_epsilon(votes.sigma2)}
        facts |= {"our epsilon": ours, "asked": asked, "answered": given, "wrong answers": wrong}
        noise.append([f"{value:.4g}" for value in facts.values()])
        scores = {}
        for name in STUDENTS:
            here = [cell(name, epsilon, seed, tau=TAU if name == "PATE++" else 0.0) for seed in seeds]
            scores[name] = {each.seed: found[each]["accuracy"] for each in here if each in found}
        both = sorted(scores["PATE"].keys() & scores["PATE++"].keys())
        gain = spread([scores["PATE++"][seed] - scores["PATE"][seed] for seed in both])
        means = {name: spread(list(by.values())) for name, by in scores.items()}
        lines.append([f"{epsilon}", *map(format_summary, means.values()), format_summary(gain, half=True)])
        figures["levels"][epsilon] = facts | {"students": means, "PATE++ less PATE": gain}
    print(f"The plurality of {TEACHERS} teachers is right for {figures['plurality']:.1%} of {PUBLIC} pictures.")
    show("Noise", ["sigma1", "sigma2", "epsilon, paper's", "ours", "asked", "answered", "wrong"], noise)
    title = "Accuracy in %: mean ± deviation (seeds); last, the gain and its 95 % interval, paired by seed"
    show(title, ["epsilon", *STUDENTS, "PATE++ less PATE"], lines)
    sweeps = {name: [(beta, cell(name, LEVELS[0], 0, beta)) for beta in BETAS] for name in STUDENTS[1:3]}
    sweeps["PATE++"] = [(tau, cell("PATE++", LEVELS[0], 0, tau=tau)) for tau in TAUS]
    for name, line in sweeps.items():
        by = {x: spread(_over_seeds(found, each, seeds)) for x, each in line}
        figures["sweeps"][name] = by
        show(
            f"{name} at epsilon {LEVELS[0]}, by {'tau' if name == 'PATE++' else 'beta'}",
            list(by),
            [map(format_summary, by.values())],
        )
    return figures


def _over_seeds(found, cell, seeds):
    every = (replace(cell, seed=seed) for seed in seeds)
    return [found[each]["accuracy"] for each in every if each in found]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--sweeps", action="store_true")
    parser.add_argument("--rate", type=float, default=RATE, help="of the students' learning")
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS, help="the paper's epsilons")
    parser.add_argument("--epochs", type=int, help="20, if not given")
    parser.add_argument("--device", choices=list(SETTINGS), default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--workers", type=int, help="processes that train teachers; as many as cores, if not given")
    parser.add_argument("--limit", type=float, default=float("inf"))
    chosen = parser.parse_args()
    backbone, training = SETTINGS[chosen.device]
    chosen.epochs = chosen.epochs or training.epochs
    chosen.numbers = range(chosen.first, chosen.first + chosen.seeds)
    chosen.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(chosen)
    name = f"pate_plus_plus-{chosen.device}"
    found = fill(chosen, HERE / "results" / f"{name}-cells.jsonl")
    how = {"network": backbone.__name__, "epochs": chosen.epochs, "batch": training.batch_size, "rate": chosen.rate}
    figures = report(bench, found, chosen.numbers, chosen.epochs, chosen.rate, chosen.levels)
    save(f"{name}-{chosen.epochs}{_rate(chosen.rate)}", how | figures)


if __name__ == "__main__":
    main()
