import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import labeldp as ldp
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.report.plots import Point
from labeldp.runs.compare import (
    Comparison,
    ComparisonCell,
    make_private_cell_trainer,
    make_public_cell_trainer,
    summarize,
)
from labeldp.runs.config import TrainConfig
from labeldp.runs.feature_files import read_features

N = 400


@pytest.fixture
def request_(tmp_path):
    return Comparison(tmp_path / "out", TrainConfig(2.0, device="cpu"), ["moments", "randres"], [1.0, 2.0], 1, "people")


@pytest.fixture
def people(tmp_path):
    x = np.random.default_rng(0).normal(size=N)
    frame = pl.DataFrame({"x": x, "z": -x, "y": np.where(x > 0, "b", "a")})
    frame.write_csv(tmp_path / "people.csv")
    return SecretTable.open(tmp_path / "people.csv", "y", "a,b")


def nothing(what):
    pass


def pretend(trained, die_at=None):
    """Train nothing, and note what should have been."""

    def train(plan):
        trained.append((plan.recipe, plan.epsilon, plan.seed))
        if len(trained) == die_at:
            raise KeyboardInterrupt
        return {"accuracy": 0.5 + plan.epsilon / 10, "low": 0.4, "high": 0.9, "measured": "not at all"}

    return train


def test_every_recipe_meets_every_epsilon_and_whole_rows_come_first(request_):
    assert [(c.recipe, c.epsilon) for c in request_.cells()] == [
        ("moments", 1.0),
        ("randres", 1.0),
        ("moments", 2.0),
        ("randres", 2.0),
    ]
    assert len(replace(request_, n_seeds=3).cells()) == 12


def test_the_total_adds_up_exactly(request_):
    many = replace(request_, epsilons=[0.1, 0.2], n_seeds=5, config=replace(request_.config, delta=1e-6))
    assert many.total_cost() == (Fraction(3), Fraction(20, 10**6))


def test_a_row_for_each_finished_cell_and_a_plot(request_):
    trained = []
    rows = request_.run(pretend(trained), nothing)
    lines = (request_.folder / "cells.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert [row["accuracy"] for row in rows] == [0.6, 0.6, 0.7, 0.7]
    assert (request_.folder / "accuracy.png").stat().st_size > 0
    assert not (request_.folder / "begun.json").exists()


def test_a_stopped_comparison_goes_on_where_it_was(request_):
    first, second = [], []
    with pytest.raises(KeyboardInterrupt):
        request_.run(pretend(first, die_at=3), nothing)
    assert request_.remaining_cost() == (Fraction(2), 0)  # the third was charged when it was begun, the fourth was not
    rows = request_.run(pretend(second), nothing)
    assert second == [("moments", 2.0, 0), ("randres", 2.0, 0)]
    assert len(rows) == 4
    assert request_.remaining_cost() == (0, 0)
    request_.run(pretend(none := []), nothing)
    assert none == []


def test_more_can_be_asked_later_and_less_shows_less(request_):
    replace(request_, epsilons=[1.0]).run(pretend([]), nothing)
    later = []
    request_.run(pretend(later), nothing)
    assert later == [("moments", 2.0, 0), ("randres", 2.0, 0)]
    fewer = replace(request_, recipes=["randres"])
    assert len(fewer.run(pretend([]), nothing)) == 2
    assert fewer.remaining_cost() == (0, 0)


@pytest.mark.parametrize("damage", ['{"recipe": "moments", "eps', "nonsense", "[]", "{}", "\n\n"])
def test_a_line_that_was_cut_off_is_trained_again_and_harms_no_other(request_, damage):
    request_.run(pretend([]), nothing)
    path = request_.folder / "cells.jsonl"
    complete_lines = path.read_text().splitlines()[:3]
    path.write_text("\n".join([*complete_lines, damage]))
    again = []
    assert len(request_.run(pretend(again), nothing)) == 4
    assert again == [("randres", 2.0, 0)]


def test_cells_of_another_comparison_are_not_mixed_in(request_):
    request_.run(pretend([]), nothing)
    for other in (
        replace(request_, data_description="other people"),
        replace(request_, config=replace(request_.config, delta=1e-6)),
        replace(request_, config=replace(request_.config, model="trees")),
        replace(request_, config=replace(request_.config, features="embeddings")),
        replace(request_, config=replace(request_.config, choose_by="auc")),
    ):
        with pytest.raises(ldp.InputError, match="holds another comparison"):
            other.check()
        with pytest.raises(ldp.InputError, match="holds another comparison"):
            other.run(pretend([]), nothing)


def test_a_wrong_request_is_one_sentence(request_, tmp_path):
    (tmp_path / "file").write_text("")
    for changes, message in (
        ({"epsilons": []}, "at least one epsilon"),
        ({"recipes": []}, "at least one epsilon, one recipe"),
        ({"n_seeds": 0}, "one seed"),
        ({"recipes": ["none such"]}, "There is no recipe"),
        ({"folder": tmp_path / "file"}, "exists"),
        ({"folder": tmp_path / "absent" / "out"}, "no folder"),
    ):
        with pytest.raises(ldp.InputError, match=message):
            replace(request_, **changes).check()


def test_seeds_are_averaged_and_one_seed_keeps_its_interval():
    one = {"recipe": "a", "epsilon": 1.0, "seed": 0, "accuracy": 0.8, "low": 0.7, "high": 0.85}
    assert list(summarize([one], "a")) == [Point(1.0, 0.8, 0.7, 0.85)]
    (point,) = summarize([one, one | {"seed": 1, "accuracy": 0.81, "low": 0.71, "high": 0.86}], "a")
    assert point.accuracy == pytest.approx(0.805)
    between = 12.706 * np.std([0.8, 0.81], ddof=1) / np.sqrt(2)  # Student's law, of two
    assert point.high == pytest.approx(0.805 + np.hypot(0.05, between), abs=1e-4)
    assert point.low == pytest.approx(0.805 - np.hypot(0.1, between), abs=1e-4)
    (apart,) = summarize([one, one | {"seed": 1, "accuracy": 0.9}], "a")
    assert (apart.low, apart.high) == (pytest.approx(0.85 - np.hypot(0.635, 0.15), abs=1e-3), 1.0)
    assert list(summarize([one | {"accuracy": None}], "a")) == []
    assert list(summarize([one], "b")) == []


# On real labels


def test_private_labels_are_charged_for_each_cell_and_scored_privately(request_, people):
    request_ = replace(request_, recipes=["moments"])
    vault = people.vault(3.0)
    rows = request_.run(make_private_cell_trainer(people, vault, request_), nothing)
    assert vault.guarantee().epsilon == 3.0
    assert {row["measured"] for row in rows} == {"privately"}
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in rows)


def test_a_comparison_above_the_budget_is_refused_before_anything_is_spent(request_, people):
    vault = people.vault(5.0)
    with pytest.raises(
        ldp.BudgetExceeded, match=r"cost epsilon 6 .* has epsilon 5 and delta 0 left.* labels public"
    ) as caught:
        make_private_cell_trainer(people, vault, request_)
    assert caught.value.parameter == "public_labels"
    assert vault.guarantee().epsilon == 0


def test_a_comparison_that_was_stopped_within_its_last_epsilon_can_go_on(request_, people):
    request_ = replace(request_, recipes=["moments"])
    vault = people.vault(3.0)
    train = make_private_cell_trainer(people, vault, request_)

    def stopped(plan):
        train(plan)
        if plan.epsilon == 2.0:
            raise KeyboardInterrupt
        return {"accuracy": 0.5, "low": 0.0, "high": 1.0}

    with pytest.raises(KeyboardInterrupt):
        request_.run(stopped, nothing)
    assert vault.remaining() == (0.0, 0.0)
    rows = request_.run(make_private_cell_trainer(people, vault, request_), nothing)
    assert len(rows) == 2
    assert vault.guarantee().epsilon == 3.0


def test_public_labels_score_on_other_rows_and_leave_no_ledger(request_, people, tmp_path):
    request_ = replace(request_, recipes=["moments"], epsilons=[5.0])
    codes = people.read_public_codes()
    features = read_features(people, "table", N)[1]
    (row,) = request_.run(make_public_cell_trainer(features, codes, people), nothing)
    assert row["accuracy"] > 0.8
    assert row["measured"] == "on true labels"
    assert not list(tmp_path.glob("*.ledger"))
    test = features.select(np.arange(10)), 1 - codes[:10]
    wrong = make_public_cell_trainer(features, codes, people, test)(
        replace(request_.config, recipe="moments", epsilon=50.0)
    )
    assert wrong["accuracy"] < 0.5


def test_a_cell_that_cannot_be_scored_says_so(request_, tmp_path):
    pl.DataFrame({"x": np.arange(50.0), "y": ["a", "b"] * 25}).write_csv(tmp_path / "few.csv")
    table = SecretTable.open(tmp_path / "few.csv", "y", "a,b")
    few = replace(request_, recipes=["moments"], epsilons=[1.0])
    (row,) = few.run(make_private_cell_trainer(table, table.vault(1.0), few), nothing)
    assert row["accuracy"] is None
    assert not (few.folder / "accuracy.png").exists()
    assert ComparisonCell(row["recipe"], row["epsilon"], row["seed"]) == few.cells()[0]


def test_cells_of_another_encoder_or_with_mirrors_are_another_comparison(request_, tmp_path, monkeypatch):
    monkeypatch.setattr("labeldp.runs.config._check_encoder", lambda encoder, model: None)
    monkeypatch.setattr("labeldp.runs.compare.Model.load", lambda path, device: SimpleNamespace(digest=path.read_text))
    for name in ("first", "second", "copy"):
        (tmp_path / name).write_text(name.replace("copy", "first"))
    plain = replace(request_.config, features="images", encoder=tmp_path / "first")
    first = replace(request_, config=plain)
    first.run(pretend([]), nothing)
    replace(request_, config=replace(plain, encoder=tmp_path / "copy")).check()
    for change in ({"encoder": tmp_path / "second"}, {"encoder": None}, {"flip": True}):
        with pytest.raises(ldp.InputError, match="holds another comparison"):
            replace(request_, config=replace(plain, **change)).check()
