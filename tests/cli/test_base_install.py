"""The base install has no torch: what needs it says so before any charge, and the rest works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import labeldp as ldp

# The imports of what only the extra installs fail.
ABSENT = """
import contextlib, io, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "safetensors", "PIL", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
# Runs commands and prints how each ended.
COMMANDS = """
from labeldp.cli import main

ended = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["labeldp", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as output:
        try:
            main()
        except SystemExit as stop:
            ended.append([stop.code or 0, output.getvalue()])
        except BaseException as problem:
            ended.append([1, repr(problem)])
print(json.dumps(ended))
"""
# Fits estimators on numbers and prints how well each predicts, and which model it is.
ESTIMATORS = """
import warnings
import numpy as np
import labeldp as ldp
from labeldp.data import Embeddings, Table

warnings.simplefilter("ignore")
x = np.random.default_rng(0).normal(size=(1500, 4)).astype(np.float32)
found = []
for kind, settings in json.loads(sys.argv[1]):
    if kind == "classifier":
        y = np.where(x[:, 0] > 0, "yes", "no")
        model = ldp.LabelPrivateClassifier(8.0, ["no", "yes"], **settings)
    else:
        y = np.clip(np.round(50 + 10 * x[:, 0]), 0, 100)
        model = ldp.LabelPrivateRegressor(8.0, (0, 100, 1), **settings)
    model.fit(x, y)
    found.append([model.score(x, y), type(model._model).__name__])
one = ldp.LabelPrivateClassifier(8.0, [False, True], "randres")
search = ldp.LabelPrivateSearchCV(one, {"model": ["trees", "logistic"]})
found.append([float((search.fit(x, x[:, 0] > 0).predict(x) == (x[:, 0] > 0)).mean()), "search"])
print(json.dumps(found))
"""
LABELS = ["--label", "income", "--classes", "low,high"]
TRAIN = ["train", "people.csv", *LABELS, "--epsilon", "1", "--out"]
IMAGES = ["train", "pictures.parquet", *LABELS, "--epsilon", "1", "--features", "images", "--out", "o"]
PAIRS = ["train", "pairs.csv", *LABELS, "--epsilon", "1", "--features", "pairs", "--out", "o"]
NEED_TORCH = [
    [*TRAIN, "o", "--recipe", "randres", "--model", "mlp"],
    [*TRAIN, "o", "--recipe", "randres-mixup"],
    [*TRAIN, "o", "--model", "linear"],
    [*TRAIN, "o", "--device", "cuda"],
    [*TRAIN, "o", "--recipe", "randres-ssl"],
    [*TRAIN, "o", "--recipe", "lp-mst"],
    [*TRAIN, "o", "--recipe", "pate-fm", "--delta", "1e-6"],
    IMAGES,
    [*IMAGES, "--recipe", "refine", "--encoder", "encoder"],
    PAIRS,
    ["predict", "network", "people.csv"],
    ["predict", "pairs", "pairs.csv"],
    ["encode", "people.parquet", "--out", "encoder"],
    ["compare", "people.csv", *LABELS, "--out", "o", "--budget", "100"],
    ["audit", "run", "people.csv"],
    ["reproduce", "ghazi-table-1", "--data", "."],
]
AGAIN = ["--budget", "100"]
RANGE = ["--label", "amount", "--range", "0,100,1"]
NUMBERS = ["train", "amounts.csv", *RANGE, "--epsilon", "4", *AGAIN, "--out"]
TRAININGS = {
    "auto": [*TRAIN, "auto", *AGAIN],
    "auto8": [*TRAIN, "auto8", "--epsilon", "8", *AGAIN],
    "moments": [*TRAIN, "moments", "--recipe", "moments"],
    "randres": [*TRAIN, "randres", "--recipe", "randres"],
    "trees": [*TRAIN, "trees", "--recipe", "randres", "--model", "trees", *AGAIN],
    "logistic": [*TRAIN, "logistic", "--recipe", "randres", "--model", "logistic"],
    "dense": [*NUMBERS, "dense", "--features", "embeddings"],
    "numbers": [*NUMBERS, "numbers"],
    "sums": [*NUMBERS, "sums", "--recipe", "sums"],
    "bins": [*NUMBERS, "bins", "--recipe", "bins"],
    "bins-trees": [*NUMBERS, "bins-trees", "--recipe", "bins", "--model", "trees"],
}
NEED_NONE = [
    ["--help"],
    ["privatize", "people.csv", *LABELS, "--epsilon", "1", "--out", "noisy.csv", *AGAIN],
    ["ledger", "show", "people.csv"],
    ["plan", "--rows", "1000", "--classes", "2", "--epsilon", "1"],
    ["plan", "--rows", "1000", "--range", "0,10,1", "--epsilon", "1"],
    ["account", "votes.npy", "--mechanism", "gnmax", "--sigma", "4"],
    ["audit", "--mechanism", "rr", "--epsilon", "1", "--draws", "1000"],
    ["reproduce", "list"],
    ["card", "run", "--no-open"],
]


@pytest.fixture
def without(folder):
    """Run a script in a process without torch; return what it prints."""

    def run(script, argument):
        words = [sys.executable, "-c", ABSENT + script, json.dumps(argument)]
        environment = os.environ | {"PYTHONPATH": str(Path(ldp.__file__).parents[1])}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def tables(folder):
    labels = ["low", "high", "low"] * 20
    pl.DataFrame({"user": ["a", "b"] * 30, "item": ["x", "y", "z"] * 20, "income": labels}).write_csv("pairs.csv")
    pl.DataFrame({"picture": [b"none"] * 60, "income": labels}).write_parquet("pictures.parquet")
    x = np.random.default_rng(0).normal(size=(800, 2))
    pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "amount": (50 + 10 * x[:, 0]).clip(0, 100)}).write_csv("amounts.csv")


def test_what_needs_torch_names_the_extra(labeldp, tables, without):
    made = (*LABELS, "--epsilon", 1, "--out")
    assert labeldp("train", "people.parquet", *made, "run", "--recipe", "moments")[0] == 0
    network = ("--recipe", "randres", "--model", "linear", "--epochs", 1, "--budget", 9)
    assert labeldp("train", "people.parquet", *made, "network", *network)[0] == 0
    pairs = ("--recipe", "randres", "--features", "pairs", "--epochs", 1, "--ledger", "other.ledger")
    assert labeldp("train", "pairs.csv", *made, "pairs", *pairs)[0] == 0
    for words, (code, output) in zip(NEED_TORCH, without(COMMANDS, NEED_TORCH), strict=True):
        assert (code, output.count("\n")) == (2, 1), (words, output)
        assert output.endswith("needs torch, which is not installed: pip install 'labeldp[learn]'.\n"), (words, output)
    for name in ("people.csv", "pictures.parquet", "pairs.csv"):
        assert not Path(f"{name}.ledger").exists()


def test_the_rest_works_without_torch(labeldp, folder, without):
    np.save("votes.npy", [[30, 12], [40, 2]])
    assert labeldp("train", "people.parquet", *LABELS, "--epsilon", 1, "--out", "run", "--recipe", "moments")[0] == 0
    for words, (code, output) in zip(NEED_NONE, without(COMMANDS, NEED_NONE), strict=True):
        assert code == 0, (words, output)


def test_linear_models_and_trees_train_and_predict_without_torch(labeldp, tables, without):
    commands = list(TRAININGS.values())
    for run, words in TRAININGS.items():
        commands += [["predict", run, words[1], "--out", f"{run}.csv"], ["card", run, "--no-open"]]
    for words, (code, output) in zip(commands, without(COMMANDS, commands), strict=True):
        assert code == 0, (words, output)
        assert "could not be trained" not in output, (words, output)
    for run, words in TRAININGS.items():
        card = (Path(run) / "card.html").read_text()
        assert "<svg" in card
        alone = pl.read_csv(f"{run}.csv")
        assert labeldp("predict", run, words[1], "--out", "with.csv")[0] == 0
        together = pl.read_csv("with.csv")
        Path("with.csv").unlink()
        assert alone.columns == together.columns
        for name in alone.columns:
            if alone[name].dtype.is_float():
                assert np.allclose(alone[name], together[name], rtol=1e-5), (run, name)
            else:
                assert alone[name].equals(together[name]), (run, name)


def test_estimators_work_without_torch(without):
    settings = [
        ["classifier", {}],
        ["classifier", {"recipe": "moments"}],
        ["classifier", {"recipe": "randres", "model": "trees", "n_jobs": 1}],
        ["classifier", {"features": "embeddings", "delta": 1e-6}],
        ["classifier", {"features": "embeddings", "recipe": "smooth-moments", "model": "logistic"}],
        ["regressor", {}],
        ["regressor", {"recipe": "sums"}],
        ["regressor", {"recipe": "bins", "model": "trees"}],
        ["regressor", {"features": "embeddings"}],
    ]
    found = without(ESTIMATORS, settings)
    for (kind, how), (score, model) in zip([*settings, ["search", {}]], found, strict=True):
        assert score > (0.5 if kind == "regressor" else 0.85), (kind, how, score, model)
