import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from scripted import Seeded
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import nn

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import FixMatch, Supervised, Training
from labeldp.learn.backbones import build
from labeldp.learn.sklearn_learner import SklearnLearner
from labeldp.privacy.mechanisms.vote_aggregators import GNMax
from labeldp.privacy.teachers.networks import Networks
from labeldp.privacy.teachers.trainer_description import describe

ONCE = Training(epochs=1, batch_size=8, device="cpu")


def plain(shape, classes, width=4):
    return build("mlp", shape, classes, width=width)


def wide(width, extra=None):
    """A closure over a width."""

    def network(shape, classes):
        return build("mlp", shape, classes, width=width if extra is None else len(str(extra)))

    return network


def nested(width):
    return lambda shape, classes: wide(width)(shape, classes)


class Maker:
    def __init__(self, width):
        self.width = width

    def __call__(self, shape, classes):
        return plain(shape, classes, self.width)

    def make(self, shape, classes):
        return plain(shape, classes, self.width)


@dataclass(frozen=True)
class Described:
    width: int

    def make(self, shape, classes):
        return plain(shape, classes, self.width)


def over(value):
    return lambda shape, classes: value


DIFFERENT = {
    "closures": (wide(4), wide(8)),
    "nested closures": (nested(4), nested(8)),
    "lambdas": (lambda shape, classes: plain(shape, classes, 4), lambda shape, classes: plain(shape, classes, 8)),
    "defaults": tuple(eval(f"lambda s, c, w={w}: w") for w in (4, 8)),
    "keyword defaults": tuple(eval(f"lambda s, c, *, w={w}: w") for w in (4, 8)),
    "constants of inner functions": tuple(eval(f"lambda s, c: (lambda: {w})()") for w in (4, 8)),
    "partials of closures": (partial(wide(4)), partial(wide(8))),
    "partials": (partial(plain, width=4), partial(plain, width=8)),
    "partials of functions": (partial(over, plain), partial(over, wide)),
    "functions in closures": (over(plain), over(wide)),
    "methods": (Described(4).make, Described(8).make),
    "arrays": (over(np.zeros(2000)), over(np.eye(2000)[0])),
    "modules": (plain, build),
    "globals": tuple(eval("lambda s, c: W", {"W": width}) for width in (4, 8)),
    "long parameters": tuple(
        make_pipeline(*[LogisticRegression(class_weight={n: 1.0 for n in range(80)})] * 4, LogisticRegression(C=c))
        for c in (1.0, 2.0)
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_makes_different_networks_has_different_words(name):
    first, second = (Networks(Supervised(each, ONCE)).describe() for each in DIFFERENT[name])
    assert first != second
    assert " at 0x" not in first


@pytest.mark.parametrize("make", [lambda: wide(4), lambda: partial(plain, width=4), lambda: over(np.ones(3))])
def test_what_makes_the_same_networks_has_the_same_words(make):
    assert describe(make()) == describe(make())


def test_functions_and_learners_of_modules_are_known_by_name():
    assert describe(plain) == f"{__name__}.plain"
    assert describe(Supervised(partial(build, "cnn", width=16), ONCE)).startswith(
        "Supervised(backbone=build('cnn',)[('width', 16)], training=Training(epochs=1, batch_size=8, "
    )
    assert (
        describe(SklearnLearner(LogisticRegression(C=2.0)))
        == "SklearnLearner(classifier=LogisticRegression(C=2.0), n_rounds=10)"
    )


def test_the_words_are_the_same_in_every_process(tmp_path):
    """Sets of strings have another order in each."""
    script = tmp_path / "script.py"
    script.write_text(
        "from labeldp.privacy.teachers.trainer_description import describe\n"
        "def network(shape, classes):\n    return shape in {'a', 'b', 'c', 'd', 'e'}\n"
        "print(describe(network), describe(lambda shape: network(shape, 2)))\n"
    )
    runs = [
        subprocess.run([sys.executable, script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True)
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout != b""


REFUSED = {
    "network in a closure": over(nn.Linear(2, 2)),
    "object in a closure": over(object()),
    "object that is called": Maker(4),
    "method of an object": Maker(4).make,
    "generator of numbers": LogisticRegression(random_state=np.random.RandomState(0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_words_is_refused_before_a_teacher_is_trained_or_paid(name, monkeypatch):
    monkeypatch.setattr(FixMatch, "fit", lambda *_: pytest.fail("trained"))
    vault = ldp.Vault(["no", "yes"] * 20, ldp.LabelSpace(["no", "yes"]), ldp.Budget(50.0, 1e-5))
    rows = Embeddings(np.random.default_rng(0).normal(size=(40, 2)))
    asked = vault.prepare_teachers(
        rows, np.arange(4), n_teachers=2, trainer=Networks(FixMatch(REFUSED[name], ONCE), engine="here")
    )
    with pytest.raises(ldp.InputError, match=r"cannot be distinguished|has no description") as found:
        asked.release(GNMax(20.0, 4), delta=1e-5)
    assert found.value.__cause__ is None
    assert not vault.ledger.entries()


def test_a_class_that_was_defined_inside_a_function_is_refused():
    class Network(nn.Module):
        pass

    with pytest.raises(ldp.InputError, match="defined inside a function"):
        describe(Network)


def test_teachers_of_another_width_are_another_request():
    vault = ldp.Vault(["no", "yes"] * 20, ldp.LabelSpace(["no", "yes"]), ldp.Budget(50.0, 1e-5))
    vault._bits = Seeded(0)
    rows = Embeddings(np.random.default_rng(0).normal(size=(40, 2)))
    for count, width in ((1, 4), (2, 8), (2, 4)):
        trainer = Networks(Supervised(wide(width), ONCE), engine="here")
        vault.prepare_teachers(rows, np.arange(4), n_teachers=2, trainer=trainer).release(GNMax(20.0, 4), delta=1e-6)
        assert len(vault.ledger.entries()) == count
