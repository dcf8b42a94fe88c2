"""Ratings of items by people, of low rank: a small data set whose signal is visible in few labels."""

import numpy as np
import polars as pl

import labeldp as ldp
from labeldp.data import Pairs

SPACE = ldp.LabelSpace([1, 2, 3, 4, 5], ordered=True)


def ratings(people=80, items=50, n_rows=5000, seed=0):
    """A frame of user, item and rating; a pair can be rated more than once."""
    random = np.random.default_rng(seed)
    person, item = random.integers(0, people, n_rows), random.integers(0, items, n_rows)
    score = 3.4 + random.normal(0, 0.7, people)[person] + random.normal(0, 0.7, items)[item]
    score += random.normal(0, 0.7, people)[person] * random.normal(0, 0.7, items)[item] + random.normal(0, 0.6, n_rows)
    return pl.DataFrame({"user": person, "item": item, "rating": np.clip(np.rint(score), 1, 5).astype(int)})


class Ratings:
    """4,000 ratings for training and 1,000 for testing."""

    def __init__(self):
        frame = ratings()
        train, new = frame[:4000], frame[4000:]
        self.labels, self.new_labels = train["rating"].to_numpy(), new["rating"].to_numpy()
        self.features = Pairs.fit(train.select("user", "item"))
        self.new = self.features.apply(new.select("user", "item"))

    def error(self, model):
        """Root mean squared error of the expected rating."""
        expected = model.predict_proba(self.new) @ SPACE.class_values
        return float(np.sqrt(((expected - self.new_labels) ** 2).mean()))
