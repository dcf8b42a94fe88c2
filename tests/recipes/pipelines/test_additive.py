"""Additive models from noisy counts: what is asked for and in which order, what it costs, and what it learns."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scripted import Seeded
from sklearn.metrics import roc_auc_score

import labeldp as ldp
from labeldp.accounting.losses import compose
from labeldp.data import Embeddings, Table
from labeldp.learn.additive import AdditiveSums, BasisFunctions
from labeldp.learn.additive.model import AdditiveModel
from labeldp.privacy.mechanisms import LargestResiduals, LinearQuery
from labeldp.privacy.vault import Identity, Ledger
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.pipelines import additive as module
from labeldp.recipes.pipelines.additive import Layout, additive_steps, choose_layout, task_snr
from labeldp.recipes.rehearsal import _shorten_task
from labeldp.recipes.task import Task
from labeldp.recipes.training import train

ROWS = 3_000
SPACE = ldp.LabelSpace([0, 1], missing="public")
STEP = ["LargestResiduals", "LinearQuery"]


class People:
    """Numbers, a category and missing values; two numbers act together, like exclusive or."""

    def __init__(self, rows=ROWS, seed=0):
        generator = np.random.default_rng(seed)
        a, b, c = generator.normal(size=(3, rows))
        town = generator.choice(["north", "south", "west"], rows)
        self.labels = (np.where(a * b > 0, 1.5, -1.5) + (town == "west") + generator.logistic(size=rows) > 0).astype(
            int
        )
        seen = np.where(generator.random(rows) < 0.1, None, c.astype(object))
        self.frame = pl.DataFrame({"a": a, "town": town, "b": b, "c": seen.astype(float)}).fill_nan(None)
        self.table = Table.fit(self.frame)


@pytest.fixture(scope="module")
def people():
    return People()


def vault_of(labels, epsilon, delta, seed=0, space=SPACE, **options):
    vault = ldp.Vault(labels, space, ldp.Budget(epsilon, delta), **options)
    vault._bits = Seeded(seed)
    return vault


def fitted(table, labels, epsilon, delta=0.0, options=None, seed=0, name="additive", space=SPACE, users=None, **more):
    """The vault and the outcome of a training."""
    vault = vault_of(labels, epsilon, delta, seed, space, users=users)
    known = np.array([label is not None for label in labels])
    task = Task(table, space, known, epsilon, delta, users=users, seed=seed)
    return vault, train(vault, task, name, options, **more)


def mechanisms(trained):
    return [release.mechanism for release in trained.releases]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"crosses": 0}, []),
        ({"crosses": 2}, [*STEP, *STEP]),
        ({"cross": "a,b", "crosses": 0}, ["LinearQuery"]),
        ({"cross": "a, b; town,c", "crosses": 0}, ["LinearQuery"] * 2),
        ({"cross": "town,c", "crosses": 1}, ["LinearQuery", *STEP]),
        ({}, []),
    ],
)
def test_columns_come_first_then_named_crosses_then_selected_ones(people, options, asked, delta):
    vault, trained = fitted(people.table, people.labels, 1.0, delta, options)
    assert mechanisms(trained) == ["LinearQuery", *asked]
    assert trained.guarantee.epsilon <= 1.0
    assert trained.guarantee.epsilon == pytest.approx(1.0, rel=1e-4 if delta and asked else 1e-9)
    assert trained.guarantee.delta == delta
    assert vault.guarantee().epsilon <= 1.0
    assert vault.guarantee().delta == delta
    assert (trained.model.guarantee.epsilon, trained.model.guarantee.delta) == (trained.guarantee.epsilon, delta)
    assert set(trained.model.lineage) == {use for release in trained.releases for use in release.lineage}
    names = [term.name for term in trained.model.terms]
    assert names[:4] == ["a", "b", "c", "town"]
    wanted = [pair.replace(" ", "").replace(",", " x ") for pair in options.get("cross", "").split(";") if pair]
    assert names[4 : 4 + len(wanted)] == wanted
    assert len(names) == 4 + asked.count("LinearQuery")
    entry_types = [entry.kind for entry in vault.ledger.entries()]
    assert entry_types.count("step") == (1 + len(asked) if asked else 0)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_users_with_several_labels_pay_no_more_than_epsilon(people, delta):
    users = np.arange(ROWS) // 3
    options = {"cross": "town,c", "crosses": 1}
    vault, trained = fitted(people.table, people.labels, 1.0, delta, options, users=users)
    assert mechanisms(trained) == ["LinearQuery", "LinearQuery", *STEP]
    assert (trained.guarantee.unit, trained.guarantee.delta) == ("user", pytest.approx(delta, rel=1e-12))
    assert trained.guarantee.epsilon <= 1.0
    assert trained.guarantee.epsilon == pytest.approx(1.0, rel=1e-3)
    assert trained.guarantee.delta <= delta
    assert vault.guarantee().epsilon <= 1.0
    assert {entry.kind for entry in vault.ledger.entries()} == {"release"}


@pytest.mark.parametrize("name", ["additive", "auto"])
def test_rows_without_a_label_take_no_part(people, name):
    labels = [None if index % 4 == 0 else int(label) for index, label in enumerate(people.labels)]
    _, trained = fitted(people.table, labels, 2.0, 1e-6, {"cross": "a,b"}, name=name)
    missing = np.arange(ROWS) % 4 == 0
    assert all(not release.row_mask[missing].any() for release in trained.releases)
    assert trained.guarantee.epsilon <= 2.0
    assert roc_auc_score(people.labels[missing], trained.model.predict_proba(people.table)[missing, 1]) > 0.75


@pytest.mark.parametrize(
    ("cross", "message"),
    [
        ("a", "The cross 'a' must name two different columns"),
        ("a,a", "The cross 'a,a' must name two different columns"),
        ("a,b,c", "must name two different columns"),
        (",", "must name two different columns"),
        ("a,z", "There is no feature column 'z' for the cross 'a,z'"),
        ("a,b;b,a", "A cross is named twice"),
    ],
)
@pytest.mark.parametrize("name", ["additive", "auto"])
def test_bad_crosses_are_refused_before_the_charge(people, cross, message, name):
    vault = vault_of(people.labels, 1.0, 1e-6)
    with pytest.raises(ldp.InputError, match=message) as caught:
        train(vault, Task(people.table, SPACE, all_rows(ROWS), 1.0, 1e-6), name, {"cross": cross})
    assert not vault.ledger.entries()
    assert "\n" not in str(caught.value)
    assert not getattr(caught.value, "__notes__", [])


def test_other_features_and_models_are_refused_before_the_charge(people):
    vault, rows = vault_of(people.labels, 1.0, 0.0), all_rows(ROWS)
    for change, message in (
        ({"features": Embeddings(np.zeros((ROWS, 2)))}, "needs the columns of a table"),
        ({"model": "trees"}, "trains a linear model of its own"),
    ):
        task = replace(Task(people.table, SPACE, rows, 1.0), **change)
        with pytest.raises(ldp.InputError, match=message):
            train(vault, task, "additive")
    assert not vault.ledger.entries()


def test_exclusive_or_needs_a_cross(people):
    aucs = {}
    for name, options in {"none": {"crosses": 0}, "named": {"cross": "a,b"}, "selected": {"crosses": 1}}.items():
        _, trained = fitted(people.table, people.labels, 4.0, 1e-6, options, score=False)
        new = People(seed=1)
        probabilities = trained.model.predict_proba(people.table.apply(new.frame))[:, 1]
        aucs[name] = roc_auc_score(new.labels, probabilities)
    assert aucs["none"] < 0.65
    assert aucs["selected"] > 0.8
    assert aucs["named"] > 0.8
    assert trained.model.terms[-1].name == "a x b"  # the strongest


def test_the_selection_sees_what_the_model_says_so_far(people, monkeypatch):
    """Probabilities are rounded: the last bits of a fit must not change a request."""
    seen = []
    made = LargestResiduals.__post_init__
    monkeypatch.setattr(LargestResiduals, "__post_init__", lambda self: made(self) or seen.append(self))
    _, trained = fitted(people.table, people.labels, 4.0, 1e-6, {"crosses": 2}, with_rehearsal=False, score=False)
    first, second = seen[:2]
    for requested in (first, second):
        assert requested.expected_probabilities.dtype == np.float32
        assert np.allclose(
            requested.expected_probabilities,
            requested.expected_probabilities.astype(np.float64).round(6),
            rtol=0,
            atol=1e-7,
        )
        assert np.allclose(requested.expected_probabilities.sum(axis=1), 1, rtol=0, atol=1e-6)
    model = trained.model
    before = replace(model, terms=model.terms[:4])
    assert np.allclose(first.expected_probabilities, before.predict_proba(people.table), atol=1e-5)
    after = replace(model, terms=model.terms[:5])
    assert np.allclose(second.expected_probabilities, after.predict_proba(people.table), atol=1e-5)
    assert len(second.column_pairs) == len(first.column_pairs) - 1 == 5


def opened(people, folder, seed):
    ledger, identity = folder / "ledger.db", Identity("people", "label", ROWS)
    return vault_of(people.labels, 1.0, 1e-6, seed, ledger=ledger, identity=identity)


def drawn(folder):
    ledger = Ledger(folder / "ledger.db")
    steps = [entry for entry in ledger.entries() if entry.kind == "step" and entry.status == "committed"]
    return {entry.details["step"]: ledger.payload(entry.id) for entry in steps}


@pytest.mark.parametrize("index", range(5))
def test_an_interrupted_run_goes_on_and_repeats_its_requests(people, tmp_path, monkeypatch, index):
    task, options, calls = Task(people.table, SPACE, all_rows(ROWS), 1.0, 1e-6), {"crosses": 2}, []
    settings = {"score": False, "with_rehearsal": False}
    with monkeypatch.context() as patch:
        for kind in (LinearQuery, LargestResiduals):

            def draw(self, *given, own=kind.draw):
                calls.append(type(self).__name__)
                if len(calls) == index + 1:
                    raise KeyboardInterrupt
                return own(self, *given)

            patch.setattr(kind, "draw", draw)
        with pytest.raises(KeyboardInterrupt):
            train(opened(people, tmp_path, 1), task, "additive", options, **settings)
    assert calls == ["LinearQuery", *STEP, *STEP][: index + 1]
    before = drawn(tmp_path)
    assert len(before) == index
    trained = train(opened(people, tmp_path, 2), task, "additive", options, **settings)
    after = drawn(tmp_path)
    assert len(after) == 5
    assert after | before == after
    again = train(opened(people, tmp_path, 3), task, "additive", options, **settings)
    assert drawn(tmp_path) == after
    assert np.array_equal(again.model.predict_proba(people.table), trained.model.predict_proba(people.table))
    assert trained.guarantee.epsilon <= 1.0


TABLES = {
    "one constant": pl.DataFrame({"x": np.ones(400)}),
    "one column": pl.DataFrame({"x": np.arange(400.0)}),
    "constants": pl.DataFrame({"x": np.ones(400), "kind": ["a"] * 400}),
    "nothing known": pl.DataFrame({"x": pl.Series([None] * 400, dtype=pl.Float64), "y": np.arange(400.0)}),
    "categories": pl.DataFrame({"k": [str(n % 7) for n in range(400)], "l": [str(n) for n in range(400)]}),
    "numbers": pl.DataFrame({"x": np.arange(400.0), "y": np.arange(400.0) % 3, "z": -(np.arange(400.0) ** 2)}),
    "two rows": pl.DataFrame({"x": [1.0, 2.0], "k": ["a", "b"]}),
}


@pytest.mark.parametrize("classes", [2, 3, 500])
@pytest.mark.parametrize("name", list(TABLES))
def test_unusual_tables_are_learnt(name, classes):
    frame = TABLES[name]
    table, labels = Table.fit(frame), np.arange(frame.height) % classes
    space = ldp.LabelSpace(list(range(classes)))
    for recipe, options in (("additive", {"crosses": 2}), ("auto", {})):
        vault, trained = fitted(table, labels, 1.0, 1e-6, options, name=recipe, space=space)
        assert trained.guarantee.epsilon <= 1.0
        assert vault.guarantee().epsilon <= 1.0
        probabilities = trained.model.predict_proba(table)
        assert np.isfinite(probabilities).all()
        assert np.allclose(probabilities.sum(axis=1), 1)
        crosses = min(2, frame.width * (frame.width - 1) // 2)
        if recipe == "additive":
            assert mechanisms(trained) == ["LinearQuery", *STEP * crosses]
            assert isinstance(trained.model, AdditiveModel)


@pytest.mark.parametrize(("columns", "bins"), [(10, 64), (30, 38), (60, 18), (100, 10), (200, 4)])
def test_wide_tables_have_fewer_bins(columns, bins):
    """All bins together are no more than 1,200, with one for missing values and one to spare in each column."""
    table = Table.fit(pl.DataFrame(np.random.default_rng(0).normal(size=(50, columns))))
    task = Task(table.select(np.arange(20_000) % 50), SPACE, all_rows(20_000), 50.0, 1e-6)
    assert choose_layout(task, 50.0).max_bins == bins


def test_of_wide_tables_the_strongest_columns_are_crossed(monkeypatch):
    requested, made = [], LargestResiduals.__post_init__
    monkeypatch.setattr(LargestResiduals, "__post_init__", lambda self: made(self) or requested.append(self))
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(4_000, 28))
    labels = (1.5 * rows[:, 25] + 1.5 * rows[:, 27] + generator.logistic(size=4_000) > 0).astype(int)
    table = Table.fit(pl.DataFrame(rows))
    _, trained = fitted(table, labels, 2.0, 1e-6, {"crosses": 1}, score=False, with_rehearsal=False)
    choice = trained.releases[1]
    assert choice.n_candidates == 24 * 23 // 2
    pairs = {tuple(pair) for pair in np.asarray(requested[0].column_pairs).tolist()}
    assert (25, 27) in pairs
    assert len({index for pair in pairs for index in pair}) == 24


def test_the_layout_follows_rows_and_noise():
    space = ldp.LabelSpace([0, 1])
    table = Table.fit(pl.DataFrame(np.random.default_rng(0).normal(size=(100, 5))))
    layouts = []
    for rows in (200, 4_000, 20_000, 10**6):
        task = Task(table.select(np.arange(rows) % 100), space, all_rows(rows), 1.0, 1e-6)
        layouts.append(choose_layout(task, 1.0))
        double = task_snr(task, 2.0)
        assert double > 1.5 * task_snr(task, 1.0)
    assert [each.max_bins for each in layouts] == sorted(each.max_bins for each in layouts)
    assert layouts[0].n_selected == 0
    assert layouts[0].functions == BasisFunctions(2, 0.75, 0.0, 2)  # few rows tell little of single bins
    assert layouts[1].functions.detail_fraction == 0 < layouts[2].functions.detail_fraction < 1
    cosines = [each.functions.n_cosines for each in layouts[:3]]
    assert cosines == sorted(set(cosines))
    assert layouts[-1] == Layout(64, 60, 31, (), 8, None)  # so many that counts of bins have little noise
    few = Task(table.select(np.arange(300) % 100), space, all_rows(300), 1.0)
    assert choose_layout(few, 0.01) == Layout(16, 12, 4, (), 0, BasisFunctions(2, 1.0, 0.0, 1))
    assert task_snr(few, 1.0) == pytest.approx(300 / (2**0.5 * 5))


@pytest.mark.parametrize(("columns", "cosines"), [(20, 8), (30, 4), (60, None)])
def test_large_tables_have_fewer_functions_and_then_counts(columns, cosines):
    """A sparse matrix of all functions would not fit into memory."""
    table = Table.fit(pl.DataFrame(np.random.default_rng(0).normal(size=(50, columns))))
    rows = 200_000
    task = Task(table.select(np.arange(rows) % 50), SPACE, all_rows(rows), 0.1, 1e-6)
    found = choose_layout(task, 0.1).functions
    assert (None if found is None else found.n_cosines) == cosines


def test_a_rehearsal_asks_for_what_the_training_will(people):
    """On a few rows, users own fewer labels, so that the rows at hand would allow more crosses."""
    big = People(rows=60_000)
    users = np.arange(60_000) // 20
    task = Task(big.table, SPACE, all_rows(60_000), 4.0, 1e-6, users=users)
    short = _shorten_task(task, np.arange(0, 60_000, 300))
    assert short.labels_per_user < task.labels_per_user
    own, rehearsed = [], []
    for each, found in ((task, own), (short, rehearsed)):
        steps = module.additive(each)
        reserve = next(steps)
        found.append(len(getattr(reserve, "steps", [None])))
        steps.close()
    assert own == rehearsed


def test_steps_take_part_of_the_budget(people):
    """As `auto` does: what is left is for other releases."""
    task = Task(people.table, SPACE, all_rows(ROWS), 3.0, 1e-6)
    steps = additive_steps(task, choose_layout(task, 1.0, n_crosses=1), 1.0, 1e-6)
    reserve = next(steps)
    assert 0.999 < compose(reserve.steps, 1e-6) <= 1.0
    assert reserve.delta == 1e-6


def stepped(people, epsilon, delta, crosses=0, **changes):
    """What `additive_steps` asks for, and what it returns."""
    task, vault = Task(people.table, SPACE, all_rows(ROWS), epsilon, delta), vault_of(people.labels, epsilon, delta)
    layout = replace(choose_layout(task, epsilon, n_crosses=crosses), **changes)
    steps, requested, answer = additive_steps(task, layout, epsilon, delta), [], None
    try:
        while True:
            request = steps.send(answer)
            answer = None
            if hasattr(request, "mechanism"):
                requested.append(request.mechanism)
                answer = vault.release(request.mechanism)
            else:
                steps.close()
                return requested, None
    except StopIteration as done:
        return requested, done.value


def longest_share(query, delta):
    """The shortest row over the longest one, as the noise measures them."""
    rows = np.asarray(query.todense())
    lengths = np.linalg.norm(rows, 2 if delta else 1, axis=1)
    return lengths.min() / lengths.max()


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("functions", [BasisFunctions(3, 0.75, 0.3, 2), BasisFunctions(3, 1.0, 0.0, 1), None])
def test_what_is_summed_are_functions_of_bins_and_the_rows_of_each_class(people, delta, functions):
    (requested,), (model, sums) = stepped(people, 1.0, delta, functions=functions)
    query = requested.query.toarray()
    assert (query[:, -1] == 1).all()
    assert type(sums) is AdditiveSums
    assert np.allclose(query[:, :-1], sums.design.to_sparse(sums.functions).toarray(), atol=1e-6)
    for column, codes, own in zip(sums.columns, sums.design.codes, sums.functions, strict=True):
        missing = bool((codes == column.width - 1).any())
        wanted = None if functions is None or column.bin_of_code is not None else functions.evaluate(column, missing)
        assert (own is None) == (wanted is None)
        assert own is None or np.array_equal(own, wanted)
    assert [own is None for own in sums.functions] == [functions is None] * 3 + [True]
    assert sums.releases == [sums.counts]
    assert model.lineage == sums.counts.lineage
    assert np.array_equal(sums.fit().scores(people.table), model.scores(people.table))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_every_row_has_the_length_that_its_noise_protects(people, delta):
    """Of a row that is shorter than others, a sum tells less with the same noise."""
    (requested,), (_, sums) = stepped(people, 1.0, delta)
    assert sums.functions[0] is not None
    assert longest_share(requested.query, delta) > 0.999


def test_the_model_of_sums_of_functions_is_better_than_of_counts_under_noise():
    """Means over draws: rows of five numbers with effects that are smooth."""
    found, space = {"functions": [], "counts": []}, ldp.LabelSpace([0, 1])
    for seed in range(6):
        generator = np.random.default_rng(seed)
        rows = generator.normal(size=(6_000, 5))
        labels = (rows[:, 0] + np.square(rows[:, 1]) - 1 + generator.logistic(size=6_000) > 0).astype(int)
        table, new = Table.fit(pl.DataFrame(rows[:3_000])), pl.DataFrame(rows[3_000:])
        task = Task(table, space, all_rows(3_000), 0.25, 1e-6)
        layout = choose_layout(task, 0.25)
        assert layout.functions is not None
        for name, own in (("functions", layout.functions), ("counts", None)):
            steps = additive_steps(task, replace(layout, functions=own), 0.25, 1e-6)
            request = next(steps)
            with pytest.raises(StopIteration) as done:
                steps.send(vault_of(labels[:3_000], 0.25, 1e-6, seed, space).release(request.mechanism))
            model, _ = done.value.value
            found[name].append(roc_auc_score(labels[3_000:], model.predict_proba(table.apply(new))[:, 1]))
    assert np.mean(found["functions"]) > np.mean(found["counts"]) + 0.02
