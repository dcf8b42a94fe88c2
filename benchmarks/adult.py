"""Every recipe on UCI Adult: accuracy on the test file by epsilon, over seeds.

    python benchmarks/adult.py --data FOLDER [--epsilons 0.25,0.5,1,2,4] [--seeds 5] [--recipes auto,...] [--jobs 2]

FOLDER holds train.parquet and test.parquet with the label column `income`, as UCI publishes it (the labels of UCI's
test file end with a dot, which is removed). The labels are public; each training protects them as if they were not, at
delta 1e-5, in a vault of its own. True labels score, on the test file alone. Finished cells are kept in
benchmarks/results/adult-cells.jsonl, so that the script can be stopped and started again; the table goes to
benchmarks/results/adult.json.
"""

import numpy as np
import polars as pl
from recipe_table import RECIPES, Problem, arguments, fill
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from labeldp.data import Table

CLASSES = ["<=50K", ">50K"]


def read(path):
    frame = pl.read_parquet(path)
    labels = frame["income"].str.strip_chars().str.strip_chars_end(".")
    return frame.drop("income"), labels.replace_strict(CLASSES, [0, 1]).to_numpy().astype(np.int64)


def clean(train, test):
    """The models that `auto` chooses from, on clean labels."""
    (features, labels), (new, truth) = train, test
    mean, deviation = features.moments()
    x, z = ((matrix(part) - mean) / deviation for part in (features, new))
    models = {"logistic": LogisticRegression(C=0.1, max_iter=300)}
    models["trees"] = HistGradientBoostingClassifier(max_iter=100, min_samples_leaf=50, random_state=0)
    return {name: float(model.fit(x, labels).score(z, truth)) for name, model in models.items()}


def matrix(features):
    return features.matrix(np.arange(len(features)))


def main():
    parser = arguments(epsilons="0.25,0.5,1,2,4", seeds=5)
    parser.set_defaults(recipes=f"additive,{RECIPES}")
    chosen = parser.parse_args()
    frame, labels = read(chosen.data / "train.parquet")
    other, truth = read(chosen.data / "test.parquet")
    features = Table.fit(frame)
    train, test = (features, labels), (features.apply(other), truth)
    problem = Problem("adult", train, test, classes=2, delta=1e-5, epochs=10)
    fill(problem, chosen, clean=clean(train, test))


if __name__ == "__main__":
    main()
