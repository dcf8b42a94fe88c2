"""The data sets of the grid, by name: public features, labels, and the declared space of the labels.

A folder holds the files: adult, flights, clinc150, diamonds and cifar10-simclr, each a folder of its own. The others
come with scikit-learn and are split once, by a fixed seed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import labeldp as ldp

RARE_DELAY = 120  # minutes of delay from which a flight belongs to the rare class
_SPLIT_SEED = 0  # of the rows that test what comes with scikit-learn


@dataclass(frozen=True)
class Problem:
    """Rows are a data frame, or an array of embeddings; labels are codes of `space`, or numbers within its range."""

    train: Any
    labels: np.ndarray
    test: Any
    truth: np.ndarray
    space: ldp.LabelSpace

    @property
    def numbers(self) -> bool:
        return self.space.step is not None

    def some(self, rows: np.ndarray) -> "Problem":
        """Return the problem with only these training rows."""
        return Problem(self.train[rows], self.labels[rows], self.test, self.truth, self.space)

    def features(self) -> Any:
        """Return the training rows as the library reads them."""
        from labeldp.data import Embeddings, Table

        return Table.fit(self.train) if isinstance(self.train, pl.DataFrame) else Embeddings(self.train)

    def test_features(self, features: Any) -> Any:
        """Return the test rows, encoded as the training rows were."""
        from labeldp.data import Embeddings

        return features.apply(self.test) if isinstance(self.test, pl.DataFrame) else Embeddings(self.test)


@dataclass(frozen=True)
class Entry:
    """How a problem is read, and what is public about it before that."""

    read: Callable[[Path], Problem]
    form: str  # "table", "embeddings" or "numbers"
    classes: int = 2  # 1 for numbers
    delta: float = 1e-6
    epsilons: tuple[float, ...] = (0.25, 1.0, 4.0)


def _frames(folder):
    return [pl.read_parquet(folder / f"{part}.parquet") for part in ("train", "test")]


def _table(frames, dropped, codes, classes):
    """Return a problem of two frames without the dropped columns, where `codes` gives the labels of a frame."""
    train, test = frames
    labels, truth = (codes(frame).cast(pl.Int64).to_numpy() for frame in frames)
    return Problem(train.drop(dropped), labels, test.drop(dropped), truth, ldp.LabelSpace(list(range(classes))))


def _adult(data):
    def codes(frame):  # the test file as published has a dot after each value
        return frame["income"].str.strip_chars().str.strip_chars_end(".").replace_strict(["<=50K", ">50K"], [0, 1])

    return _table(_frames(data / "adult"), ["income"], codes, 2)


def _flights(codes):
    return lambda data: _table(_frames(data / "flights"), ["arrival", "delay"], codes, 2)


def _number_table(frames, dropped, label, space):
    train, test = frames
    labels, truth = (frame[label].cast(pl.Float64).to_numpy() for frame in frames)
    return Problem(train.drop(dropped), labels, test.drop(dropped), truth, space)


def _flight_delays(data):
    return _number_table(_frames(data / "flights"), ["arrival", "delay"], "delay", ldp.LabelSpace.range(-60, 240, 1))


def _diamonds(data):  # 349 steps of 53 make up the range, so that every recipe takes it
    return _number_table(_frames(data / "diamonds"), ["price"], "price", ldp.LabelSpace.range(326, 18_823, 53))


def _clinc150(data):
    folder = data / "clinc150"
    train, test = (np.load(folder / f"{part}-embeddings.npy") for part in ("train", "test"))
    intents = [frame["intent"] for frame in _frames(folder)]
    names = sorted(intents[0].unique())
    labels, truth = (part.replace_strict(names, range(len(names))).to_numpy().astype(np.int64) for part in intents)
    return Problem(train, labels, test, truth, ldp.LabelSpace(list(range(len(names)))))


def _cifar10(data):
    folder = data / "cifar10-simclr"
    train, test = (np.load(folder / f"{part}-embeddings.npy") for part in ("train", "test"))
    labels, truth = (np.load(folder / f"{part}-labels.npy").astype(np.int64) for part in ("train", "test"))
    return Problem(train, labels, test, truth, ldp.LabelSpace(list(range(10))))


def _from_sklearn(name, space):
    def read(data):
        from sklearn import datasets

        options = {"scaled": False} if name == "diabetes" else {}
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True, **options)
        order = np.random.default_rng(_SPLIT_SEED).permutation(len(y))
        test, train = np.split(order, [len(y) // 4])
        frame = pl.DataFrame(x.astype(np.float64))
        return Problem(frame[train], y[train], frame[test], y[test], space)

    return read


PROBLEMS = {
    "adult": Entry(_adult, "table", delta=1e-5),
    "flights-late": Entry(_flights(lambda frame: frame["arrival"] == "late"), "table"),
    "flights-rare": Entry(_flights(lambda frame: frame["delay"] >= RARE_DELAY), "table"),
    "clinc150": Entry(_clinc150, "embeddings", 150, epsilons=(0.25, 1.0, 4.0, 8.0)),
    "cifar10-embeddings": Entry(_cifar10, "embeddings", 10, delta=1e-5),
    "digits": Entry(_from_sklearn("digits", ldp.LabelSpace(list(range(10)))), "table", 10),
    "breast-cancer": Entry(_from_sklearn("breast_cancer", ldp.LabelSpace([0, 1])), "table"),
    "flights-delay": Entry(_flight_delays, "numbers", 1),
    "diamonds": Entry(_diamonds, "numbers", 1),
    "diabetes": Entry(_from_sklearn("diabetes", ldp.LabelSpace.range(0, 400, 5)), "numbers", 1),
}
