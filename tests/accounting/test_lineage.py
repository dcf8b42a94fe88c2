"""Whatever is made from models and releases states the labels of all of them: no public function is left out."""

import ast
import copy
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Generator
from dataclasses import fields, replace
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Self, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as RidgeRegressor
from torch import nn

import labeldp as ldp
from labeldp import learn, representation
from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.data import Embeddings, Images, Table
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn import Model, Training
from labeldp.learn.additive import AdditiveNumberSums, AdditiveSums, BinDesign, BinnedColumn, CrossSums
from labeldp.learn.additive.log_linear import LogLinear, LogLinearModel
from labeldp.learn.additive.model import AdditiveModel
from labeldp.learn.average import AveragedModel, average_models
from labeldp.learn.backbones import EnsembleNetwork, build
from labeldp.learn.base import Backbone, Learner
from labeldp.learn.boosting import BoostedModel, Boosting
from labeldp.learn.encoded import EncodedModel, attach_linear_head, concat_encoders, split_encoder
from labeldp.learn.predictor import Predictor, load_predictor, with_lineage
from labeldp.learn.regression import Regression, RegressionModel
from labeldp.learn.regression_boosting import BoostedRegressionModel, RegressionBoosting
from labeldp.learn.ridge import LinearModel, Ridge
from labeldp.learn.sklearn_learner import SklearnLearner, SklearnModel
from labeldp.mechanisms import GroupHistogram, LinearQuery, NumberSums, RROnBins, UnbiasedBins
from labeldp.privacy.teachers.networks import Networks
from labeldp.recipes.cached_models import train_or_load
from labeldp.recipes.candidates import Candidate, fit_candidates
from labeldp.recipes.cluster_votes import keep_agreeing
from labeldp.recipes.pipelines import pate
from labeldp.recipes.pipelines.additive import add_constant_column
from labeldp.recipes.pipelines.auto import smooth_pseudo_labels
from labeldp.recipes.pipelines.log_linear import LogLinearFit
from labeldp.recipes.pipelines.regression import LabelPrior, make_number_learners
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.representation.restart import train_two_encoders, train_with_restart

torch.set_num_threads(1)
SOURCE = Path(ldp.__file__).parent
ROWS, SPACE, NUMBERS = 48, ldp.LabelSpace([0, 1, 2]), ldp.LabelSpace.range(0, 2, 1)
ONCE = Training(epochs=1, batch_size=16, learning_rate=0.01, device="cpu")


def _additive_sums(vault):
    """Counts of the bins of one column, and of a cross of it with itself."""
    column, codes = BinnedColumn("x", np.array([0.0], np.float32), None, 3), np.arange(ROWS) % 3
    matrix, cells = np.column_stack([np.eye(3)[codes], np.ones(ROWS)]), 3 * codes + codes
    counts = vault.release(LinearQuery(matrix, 0.3, 1e-6))
    crossed = vault.release(LinearQuery(np.eye(9)[cells], 0.2, 1e-6), derived_from=[counts])
    cross = CrossSums((column, column), cells, crossed)
    return AdditiveSums(None, [column], BinDesign([codes], [3]), [None], counts, [cross])


class World:
    """Pictures, three releases of one vault, and networks that learned from the first of them, at epsilon 8."""

    def __init__(self, folder):
        random = np.random.default_rng(0)
        self.folder = folder
        self.images = Images(random.integers(0, 256, (ROWS, 1, 8, 8)).astype(np.uint8), flip=False)
        self.table = Table.fit(pl.DataFrame({"x": np.arange(ROWS) % 2 - 0.5}))
        self.rows = Embeddings(random.normal(size=(ROWS, 6)))
        labels = np.arange(ROWS) % 3
        vault = ldp.Vault(labels, SPACE, ldp.Budget(20.0, 1e-5))
        numbers = ldp.Vault(labels, NUMBERS, ldp.Budget(20.0, 1e-5))
        self.old, self.new = (vault.release(ldp.RandomizedResponse(epsilon)) for epsilon in (8.0, 0.1))
        self.normalizer = RowNormalizer.fit(self.rows)
        self.sums = vault.release(LinearQuery(self.normalizer(self.rows), 0.5, 1e-6))
        self.counts = numbers.release(GroupHistogram(np.zeros(ROWS, np.int64), 0.3))
        self.values = numbers.release(RROnBins(0.2, np.full(3, 1 / 3)), derived_from=[self.counts])
        self.additive_sums = _additive_sums(vault)
        self.unbiased = numbers.release(UnbiasedBins(0.4, np.full(3, 1 / 3)))
        design, columns = self.additive_sums.design, self.additive_sums.columns
        matrix = add_constant_column(design.to_sparse())
        self.number_sums = AdditiveNumberSums(
            None, columns, design, [None], numbers.release(NumberSums(matrix, 0.3, 1e-6, n_values=3))
        )
        self.network = learn.Supervised(partial(build, "cnn", width=4), ONCE).fit(self.images, self.old)
        self.line = learn.Supervised("linear", ONCE).fit(Embeddings(self.network.embed(self.images)), self.old)
        self.linear = Ridge(self.normalizer).fit(self.rows, self.sums)

    def task(self, **changes):
        """A task whose encoder has learned from labels."""
        usual = {"space": SPACE, "model": partial(build, "cnn", width=4), "training": ONCE, "encoder": self.network}
        return Task(features=self.images, row_mask=np.ones(ROWS, bool), epsilon=1.0, **usual | changes)

    def saved(self, model, load):
        """What `load` reads of a model that was written."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}"
        model.save(path)
        return load(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("models"))


def fits(learner, features="images"):
    """Learn from the new release, starting from the network that learned from the old one."""
    return lambda w: (learner.fit(getattr(w, features), w.new, w.network), [w.new, w.network])


def fits_together(learner):
    return lambda w: (learner.fit_many(w.images, w.new, [w.network, w.network]), [w.new, w.network])


def loads(kind, model):
    return lambda w: (w.saved(model(w), kind.load), [model(w)])


def represents(kind):
    """Begin from a copy of the network that learned from labels, as a user's backbone could."""
    return lambda w: (kind(lambda shape, classes: copy.deepcopy(w.network.network), ONCE).fit(w.images), [w.network])


def student(function, **settings):
    return lambda w: (function(w.task(), w.new, **settings), [w.new, w.network])


def _learners(w):
    (fit,) = make_number_learners(w.task(space=NUMBERS, model="cnn"), "squared").values()
    return fit(w.values, LabelPrior.of(w.counts)), [w.values, w.network]


BOOSTING = Boosting(max_rounds=2, validation_fraction=0.0)


def _sums_and_labels(w):
    rows, learner = w.normalizer(w.rows), LogLinear(w.normalizer)
    return LogLinearFit(learner.fit(rows, w.sums), w.sums, w.new, rows, learner)


def _additive(w):
    return AdditiveModel(SPACE, Provenance.of(w.sums), np.zeros(3), ())


# What makes a model or a release, by name: a call that returns it, and everything that it was made from.
MADE = {
    "learn.additive.log_linear.LogLinear.fit": lambda w: (
        LogLinear(w.normalizer).fit(w.normalizer(w.rows), w.sums),
        [w.sums],
    ),
    "learn.additive.log_linear.LogLinear.refine": lambda w: (
        LogLinear(w.normalizer).refine(
            w.normalizer(w.rows), w.new, LogLinear(w.normalizer).fit(w.normalizer(w.rows), w.sums)
        ),
        [w.sums, w.new],
    ),
    "learn.additive.log_linear.LogLinearModel.load": loads(
        LogLinearModel, lambda w: LogLinear(w.normalizer).fit(w.normalizer(w.rows), w.sums)
    ),
    "learn.additive.model.AdditiveModel.load": loads(AdditiveModel, _additive),
    "learn.additive.model.AdditiveModel.with_terms": lambda w: (
        _additive(w).with_terms((), Provenance.of(_additive(w), w.new)),
        [w.sums, w.new],
    ),
    "learn.additive.terms.AdditiveSums.fit": lambda w: (
        w.additive_sums.fit(w.new),
        [*w.additive_sums.releases, w.new],
    ),
    "learn.additive.terms.AdditiveSums.fit_main_effects": lambda w: (
        w.additive_sums.fit_main_effects(w.new)[0],
        [w.additive_sums.counts, w.new],
    ),
    "learn.additive.terms.AdditiveSums.releases": lambda w: (w.additive_sums.releases[-1:], w.additive_sums.releases),
    "learn.augdescent.AugDescent.fit": fits(learn.AugDescent(training=ONCE)),
    "learn.average.AveragedModel.load": loads(AveragedModel, lambda w: average_models([w.linear, w.line])),
    "learn.average.average_models": lambda w: (average_models([w.linear, w.network]), [w.linear, w.network]),
    "learn.base.Learner.fit_many": fits_together(learn.Supervised(training=ONCE)),
    "learn.bayes.Bayes.fit": fits(learn.Bayes(training=ONCE)),
    "learn.boosting.BoostedModel.load": loads(BoostedModel, lambda w: BOOSTING.fit(w.images, w.new, w.network)),
    "learn.boosting.Boosting.fit": fits(BOOSTING),
    "learn.boosting.Boosting.fit_averaged": lambda w: (
        BOOSTING.fit_averaged(w.images, w.new, w.network),
        [w.new, w.network],
    ),
    "learn.sklearn_learner.SklearnLearner.fit": fits(SklearnLearner(LogisticRegression(), n_rounds=1)),
    "learn.sklearn_learner.SklearnModel.load": loads(
        SklearnModel, lambda w: SklearnLearner(LogisticRegression(), 1).fit(w.rows, w.new)
    ),
    "learn.consensus.Consensus.fit": fits(learn.Consensus(learner=learn.Supervised(training=ONCE))),
    "learn.coteaching.CoTeaching.fit": fits(learn.CoTeaching(training=ONCE)),
    "learn.crossfit.CrossFit.fit": fits(learn.CrossFit(training=ONCE)),
    "learn.crossfit.CrossFit.posteriors": lambda w: (
        learn.CrossFit(training=ONCE).posteriors(w.images, w.new, [w.network, w.network]),
        [w.new, w.network],
    ),
    "learn.debiased.Debiased.fit": fits(learn.Debiased(training=ONCE)),
    "learn.encoded.EncodedModel.load": loads(EncodedModel, lambda w: EncodedModel(w.network, w.linear)),
    "learn.encoded.split_encoder": lambda w: (split_encoder(w.network), [w.network]),
    "learn.encoded.attach_linear_head": lambda w: (attach_linear_head(w.network, w.line), [w.network, w.line]),
    "learn.fixmatch.FixMatch.fit": fits(learn.FixMatch(training=ONCE)),
    "learn.model.Model.load": loads(Model, lambda w: w.network),
    "learn.model.Model.trained_on": lambda w: (
        Model.trained_on(build("cnn", (1, 8, 8), 3), w.new, None, w.network),
        [w.new, w.network],
    ),
    "learn.additive.regression.AdditiveNumberSums.fit": lambda w: (
        w.number_sums.fit(w.unbiased),
        [w.number_sums.sums, w.unbiased],
    ),
    "learn.regression_boosting.BoostedRegressionModel.load": loads(
        BoostedRegressionModel, lambda w: RegressionBoosting().fit(w.table, w.unbiased, w.number_sums.fit())
    ),
    "learn.regression_boosting.RegressionBoosting.fit": lambda w: (
        RegressionBoosting().fit(w.table, w.unbiased, w.number_sums.fit()),
        [w.unbiased, w.number_sums.sums],
    ),
    "learn.predictor.load_predictor": lambda w: (w.saved(w.network, load_predictor), [w.network]),
    "learn.predictor.with_lineage": lambda w: (with_lineage(w.linear, [w.new]), [w.linear, w.new]),
    "learn.regression.RegressionModel.load": loads(
        RegressionModel, lambda w: Regression(RidgeRegressor(), max_rounds=1).fit(w.rows, w.values)
    ),
    "learn.regression.Regression.fit": lambda w: (
        Regression(RidgeRegressor(), max_rounds=1).fit(w.rows, w.values),
        [w.values],
    ),
    "learn.regression.Regression.fit_values": lambda w: (
        Regression(RidgeRegressor()).fit_values(w.rows, w.values, np.zeros(ROWS)),
        [w.values],
    ),
    "learn.ridge.LinearModel.load": loads(LinearModel, lambda w: w.linear),
    "learn.ridge.Ridge.fit": lambda w: (Ridge(w.normalizer).fit(w.rows, w.sums), [w.sums]),
    "learn.semigan.SemiGAN.fit": fits(learn.SemiGAN(training=ONCE, n_discriminators=2, remove_fraction=0.3)),
    "learn.semigan.SemiGAN.fit_and_count_contradictions": lambda w: (
        learn.SemiGAN(training=ONCE).fit_and_count_contradictions(w.images, w.new, w.network)[0],
        [w.new, w.network],
    ),
    "learn.softmatch.SoftMatch.fit": fits(learn.SoftMatch(training=ONCE)),
    "learn.softmatch.SoftMatch.fit_many": fits_together(learn.SoftMatch(training=ONCE)),
    "learn.supervised.Supervised.fit": fits(learn.Supervised(training=ONCE)),
    "representation.contrastive.SimCLR.fit": represents(representation.SimCLR),
    "representation.momentum.MomentumLearner.fit": represents(
        partial(representation.MoCo, hidden_features=8, projection_features=8)
    ),
    "representation.scan.SCAN.fit": lambda w: (
        representation.SCAN(3, n_neighbors=3, training=ONCE, self_label_epochs=1).fit(w.images, w.network),
        [w.network],
    ),
    "recipes.pipelines.auto.smooth_pseudo_labels": lambda w: (
        smooth_pseudo_labels(w.task(), w.sums, np.zeros((len(w.rows), 1), np.int64)),
        [w.sums],
    ),
    "recipes.candidates.fit_candidates": lambda w: (
        fit_candidates(w.task(), [Candidate("linear", lambda: w.linear)])[0],
        [w.linear],
    ),
    "recipes.cached_models.train_or_load": lambda w: (
        train_or_load(w.task(folder=w.folder), learn.Supervised(training=ONCE), w.new, [w.network], np.zeros(0)),
        [w.new, w.network],
    ),
    "recipes.pipelines.regression.make_number_learners": _learners,
    "recipes.pipelines.pate.augdescent": student(pate.augdescent),
    "recipes.pipelines.pate.denoise": student(pate.denoise),
    "recipes.pipelines.pate.fixmatch": student(pate.fixmatch),
    "recipes.pipelines.pate.gan": student(pate.gan, n_discriminators=2),
    "recipes.pipelines.pate.ssl": student(pate.ssl),
    "recipes.task.Task.with_encoder": lambda w: (w.task().with_encoder(w.linear), [w.linear, w.network]),
    "recipes.cluster_votes.keep_agreeing": lambda w: (keep_agreeing(w.new, w.new.labels()), [w.new]),
    "recipes.pipelines.log_linear.LogLinearFit.refine": lambda w: (_sums_and_labels(w).refine(), [w.sums, w.new]),
}

# What refuses a model that learned from labels.
REFUSED = {
    "learn.encoded.concat_encoders": lambda w: concat_encoders([w.network], w.images),
    "representation.restart.train_two_encoders": lambda w: train_two_encoders(
        w.images, lambda shape, classes: copy.deepcopy(w.network.network), 1, batch_size=16, device="cpu"
    ),
    "representation.restart.train_with_restart": lambda w: train_with_restart(
        representation.SimCLR(lambda shape, classes: copy.deepcopy(w.network.network), ONCE), w.images, 1
    ),
}

# Returns the models of a recipe's steps to `train`, which adds every release to their lineage.
INTERNAL = {"recipes.runner.run_steps"}


def _returns_a_source(hint, owner):
    """Whether a return type is, or holds, a model or a release.

    The steps of a recipe are left out: they run in `train` alone, which adds every release and refuses such encoders.
    """
    hint = owner if hint is Self else hint
    if get_origin(hint) is Generator:
        return False
    if isinstance(hint, type) and not get_args(hint):
        return hint is Predictor or issubclass(hint, HasProvenance | Release)
    parts = get_args(hint)
    return any(_returns_a_source(each, owner) for each in (parts[1:] if get_origin(hint) is Callable else parts))


def _function(member):
    """The function behind a method, a property or a decorated function; None for anything else."""
    member = getattr(member, "__func__", None) or getattr(member, "fget", None) or getattr(member, "func", member)
    found = inspect.unwrap(member)
    return found if inspect.isfunction(found) and not getattr(found, "__isabstractmethod__", False) else None


# Types that are imported for a type checker alone; `RecipeForecast` is neither model nor release.
CHECKED = {
    "RecipeForecast": object,
    "Model": Model,
    "Learner": Learner,
    "Backbone": Backbone,
    "Networks": Networks,
    "Tensor": torch.Tensor,
}


def makers():
    """The name of every public function and method of the learning side that returns a model or a release."""
    for package in ("learn", "representation", "recipes"):
        for info in pkgutil.walk_packages([str(SOURCE / package)], f"labeldp.{package}."):
            module = importlib.import_module(info.name)
            here = [(n, o) for n, o in vars(module).items() if getattr(o, "__module__", "") == module.__name__]
            for name, thing in here:
                own = vars(thing).items() if inspect.isclass(thing) else [("", thing)]
                for method, member in own:
                    if name.startswith("_") or method.startswith("_") or (function := _function(member)) is None:
                        continue
                    hint = get_type_hints(function, localns=CHECKED).get("return")
                    if _returns_a_source(hint, thing if method else None):
                        yield f"{info.name.removeprefix('labeldp.')}.{name}" + (f".{method}" if method else "")


def test_every_function_that_makes_a_model_or_a_release_is_covered():
    assert set(makers()) == MADE.keys() | REFUSED.keys() | INTERNAL


def test_steps_of_a_recipe_are_run_by_train_alone():
    callers = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for call in _calls(ast.parse(path.read_text()))
        if call.split(".")[-1] == "run_steps"
    }
    assert callers == {"recipes/training.py"}


@pytest.mark.parametrize("name", MADE)
def test_every_result_states_the_lineage_of_all_its_sources(world, name):
    made, sources = MADE[name](world)
    needed = {use for source in sources for use in source.lineage}
    together = Provenance.of(*sources).guarantee
    for each in made if isinstance(made, list) else [made]:
        assert needed
        assert set(each.lineage) >= needed
        assert each.guarantee.epsilon == pytest.approx(together.epsilon)
        assert each.guarantee.delta == pytest.approx(together.delta)


@pytest.mark.parametrize("name", REFUSED)
def test_combining_encoders_refuses_those_that_learned_from_labels(world, name):
    with pytest.raises(ldp.InputError, match="trained on labels"):
        REFUSED[name](world)


def _copied(network):
    return copy.deepcopy(network)


@pytest.mark.parametrize(
    "make",
    [
        _copied,
        lambda network: EnsembleNetwork([build("cnn", (1, 8, 8), 3, width=4), _copied(network)]),
        lambda network: nn.Sequential(nn.Flatten(), nn.Linear(64, 4 * 16), _copied(network.head)),
    ],
    ids=["copy", "average", "layer"],
)
def test_a_copy_of_a_network_is_never_public(world, make):
    """Whoever makes a model of it without naming where it is from states the labels all the same."""
    again = Model(make(world.network.network), None)
    assert (again.guarantee, again.lineage) == (world.network.guarantee, world.network.lineage)
    assert replace(again, provenance=Provenance.public()).lineage == world.network.lineage


def test_a_network_that_saw_no_label_is_public():
    fresh = Model(build("cnn", (1, 8, 8), 3, width=4), SPACE)
    assert fresh.provenance == Provenance.public() == Provenance.of() == Provenance.of(None, fresh)


@pytest.mark.parametrize("kind", [Model, EncodedModel, LinearModel, SklearnModel, RegressionModel])
def test_no_model_takes_a_guarantee_or_a_lineage(kind):
    assert not {"guarantee", "lineage"} & {field.name for field in fields(kind)}
    assert issubclass(kind, HasProvenance)
    assert isinstance(vars(kind).get("provenance"), cached_property) == (kind is EncodedModel)


def _calls(tree):
    """What is called in a module: `name` or `owner.name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_only_the_lineage_module_states_provenance():
    """Nobody else makes one by hand, or says that something is public; one place reads a network without it."""
    found = {
        (path.relative_to(SOURCE).as_posix(), call)
        for path in SOURCE.rglob("*.py")
        for call in _calls(ast.parse(path.read_text()))
        if call in ("Provenance", "Provenance.public", "load_network")
    }
    assert found == {("learn/model.py", "load_network"), ("recipes/cached_models.py", "load_network")}


def stated(epsilon, delta=0.0, lineage=()):
    return SimpleNamespace(guarantee=ldp.Guarantee(epsilon, delta), lineage=lineage)


def test_a_source_without_named_uses_keeps_counting():
    """Also after it was combined, when the result has named uses of others."""
    vault = ldp.Vault([0, 1, 2], SPACE, ldp.Budget(9.0))
    first, second = (vault.release(ldp.RandomizedResponse(epsilon)) for epsilon in (1.0, 2.0))
    unnamed = Provenance.of(stated(5.0, 0.1))
    once = Provenance.of(first, unnamed)
    assert (once.guarantee.epsilon, once.guarantee.delta) == (6.0, 0.1)
    assert Provenance.of(second, once).guarantee.epsilon == 8.0
    assert Provenance.of(once, second, once, first).guarantee.epsilon == 8.0
    assert Provenance.of(unnamed, unnamed).guarantee.epsilon == 5.0
    assert Provenance.of(stated(5.0), stated(5.0)).guarantee.epsilon == 10.0


def test_shared_uses_count_once_and_disjoint_rows_compose_in_parallel():
    vault = ldp.Vault([0, 1, 2, 0], SPACE, ldp.Budget(9.0))
    left, right = (vault.release(ldp.RandomizedResponse(1.0), row_selection=rows) for rows in ([0, 1], [2, 3]))
    everywhere = vault.release(ldp.RandomizedResponse(3.0))
    assert Provenance.of(left, right).guarantee.epsilon == 1.0
    assert Provenance.of(left, everywhere, left).guarantee.epsilon == 4.0
    assert Provenance.of(left, left) == Provenance.of(left)


def test_a_provenance_is_read_back_as_it_was_written():
    vault = ldp.Vault([0, 1, 2], SPACE, ldp.Budget(9.0))
    both = Provenance.of(vault.release(ldp.RandomizedResponse(1.0)), stated(float("inf")))
    for each in (both, Provenance.public()):
        assert Provenance.from_json(each.to_json()) == each
