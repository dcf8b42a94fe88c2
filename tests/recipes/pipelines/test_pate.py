from dataclasses import replace

import numpy as np
import pytest

import labeldp as ldp
from labeldp.learn import FixMatch
from labeldp.learn.semigan import SemiGAN
from labeldp.mechanisms import ConfidentGNMax
from labeldp.recipes.pipelines.teachers import QueryPlan, choose_confident_votes
from labeldp.recipes.registry import RECIPES, get_recipe
from labeldp.recipes.training import train

get_recipe("pate-fm")
FAMILY = sorted(name for name in RECIPES if name.startswith("pate"))


@pytest.mark.parametrize("name", FAMILY)
def test_the_votes_stay_within_epsilon(digits, name):
    vault = digits.vault(3.0, 1e-5)
    trained = train(vault, digits.task(3.0, 1e-5, epochs=1), name, {"teachers": 40})
    assert 2.9 < trained.guarantee.epsilon <= 3.0
    assert (trained.guarantee.delta, trained.guarantee.unit) == (1e-5, "label")
    assert trained.score is not None
    assert vault.ledger.entries()[0].details["mechanism"] == "TeacherVotes"


@pytest.mark.parametrize("name", FAMILY)
def test_students_learn_what_the_teachers_tell(digits, name):
    """At an epsilon where votes are hardly noisy: so few rows make weak teachers, and 1,400 are few for 20 of them."""
    vault, task = digits.vault(100.0, 1e-5), digits.task(100.0, 1e-5, epochs=12)
    assert digits.accuracy(train(vault, task, name, {"teachers": 20}, score=False).model) > 0.8


@pytest.mark.parametrize("name", FAMILY)
def test_without_delta_it_is_refused_before_anything_is_spent(digits, name):
    vault = digits.vault(1.0)
    with pytest.raises(ldp.InputError, match="needs a delta above 0"):
        train(vault, digits.task(1.0), name)
    assert not vault.ledger.entries()


def test_rows_outside_the_task_have_no_teacher_and_no_query(digits):
    rows = np.arange(1400) < 900
    vault = digits.vault(2.0, 1e-5)
    train(vault, digits.task(2.0, 1e-5, row_mask=rows), "pate-fm", {"teachers": 40})
    assert vault.remaining(~rows)[0] == 2.0


@pytest.mark.parametrize("name", ["pate", "pate-plus-plus", "pate-fm"])
def test_with_public_rows_the_student_sees_nothing_else_and_records_are_protected(digits, name, monkeypatch):
    vault, seen = digits.vault(400.0, 1e-5), []
    task = digits.task(400.0, 1e-5, epochs=12, public=digits.new)
    fits = {kind: kind.fit for kind in (FixMatch, SemiGAN)}
    for kind, fit in fits.items():
        monkeypatch.setattr(
            kind, "fit", lambda self, rows, *more, fit=fit: seen.append(len(rows)) or fit(self, rows, *more)
        )
    settings = {"score": False, "with_rehearsal": False}
    trained = train(vault, task, name, {"teachers": 10, "engine": "here"}, **settings)
    assert trained.model.guarantee.unit == "record"
    assert trained.guarantee.epsilon <= 400.0
    assert set(seen) == {len(digits.new)}
    assert digits.accuracy(trained.model) > 0.6


def test_what_saw_all_rows_is_refused_with_public_rows(digits):
    vault = digits.vault(2.0, 1e-5)
    with pytest.raises(ldp.InputError, match="protects labels only"):
        train(vault, digits.task(2.0, 1e-5, public=digits.new), "pate", {"teacher_kind": "heads"})
    assert not vault.ledger.entries()


def test_network_teachers_vote_through_the_vault(digits):
    vault = digits.vault(100.0, 1e-5)
    options = {"teacher_kind": "networks", "engine": "here", "teachers": 10, "answers": 5}
    trained = train(vault, digits.task(100.0, 1e-5, epochs=2), "pate-fm", options, score=False)
    answers = trained.releases[0]
    is_answered = answers.labels() >= 0
    assert (answers.labels()[is_answered] == digits.labels[is_answered]).mean() > 0.7
    assert "FixMatch" in vault.ledger.entries()[0].details["parameters"]["trainer"]


def test_teachers_are_as_many_as_the_noise_asks_for(digits):
    rows = np.ones(50_000, bool)
    task = digits.task(1.0, 1e-5)
    counts = []
    for epsilon in (0.2, 1.0, 4.0):
        query_plan = QueryPlan(replace(task, row_mask=rows, epsilon=epsilon), None, 200, 600, 0.5)
        count, votes = choose_confident_votes(query_plan)
        counts.append(count)
        assert count == min(2500, int(8 * votes.sigma2))  # at least 20 rows each
        assert votes.threshold == count / 2
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 2500


def test_stable_votes_say_how_many_teachers_they_need_before_anything_is_spent(digits):
    vault = digits.vault(1.0, 1e-5)
    with pytest.raises(ldp.InputError, match=r"need \d+ teachers that all agree"):
        train(vault, digits.task(1.0, 1e-5), "stable-vote")
    assert not vault.ledger.entries()


def test_stable_votes_tell_exact_winners(digits):
    vault = digits.vault(200.0, 1e-5)
    trained = train(vault, digits.task(200.0, 1e-5, epochs=12), "stable-vote", {"teachers": 20}, score=False)
    assert trained.guarantee.epsilon == 200.0
    assert digits.accuracy(trained.model) > 0.7


def test_immutable_votes_are_switched_on_by_name_and_their_guarantee_is_none(digits, monkeypatch):
    vault, task = digits.vault(1.0, 1e-5), digits.task(1.0, 1e-5, epochs=12)
    monkeypatch.setattr("labeldp.core.unproven._ALLOWED", set())
    with pytest.raises(ldp.InputError, match="allow_unproven"):
        train(vault, task, "immutable")
    assert not vault.ledger.entries()
    ldp.allow_unproven("immutable")
    trained = train(vault, task, "immutable", {"teachers": 20})
    assert trained.guarantee.epsilon == trained.model.guarantee.epsilon == np.inf
    assert "NOT differentially private" in trained.to_json()["warnings"][0]
    assert digits.accuracy(trained.model) > 0.8
    with pytest.raises(ldp.BudgetExceeded):
        vault.release(ldp.RandomizedResponse(0.1))


def test_teachers_are_stored_until_their_votes_are_released(digits, tmp_path, monkeypatch):
    vault, task = digits.vault(8.0, 1e-5), digits.task(8.0, 1e-5, epochs=1)
    task = replace(task, training=replace(task.training, checkpoint=tmp_path))
    seen = []
    monkeypatch.setattr(ConfidentGNMax, "draw", watched(ConfidentGNMax.draw, tmp_path / "teachers", seen))
    train(vault, task, "pate-fm", {"teachers": 10, "teacher_kind": "networks", "engine": "here"}, score=False)
    assert seen == [10]
    assert not (tmp_path / "teachers").exists()


def watched(draw, folder, seen):
    def counting_draw(self, counts, bits):
        seen.append(len(list(folder.iterdir())))
        return draw(self, counts, bits)

    return counting_draw


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("teacher_kind", ["heads", "networks"])
def test_students_are_networks_which_is_said_before_anything_is_spent(digits, name, teacher_kind):
    vault, task = digits.vault(8.0, 1e-5), replace(digits.task(8.0, 1e-5), model="trees")
    with pytest.raises(ldp.InputError, match="trains networks: choose a backbone"):
        train(vault, task, name, {"teachers": 10, "teacher_kind": teacher_kind, "engine": "here"})
    assert not vault.ledger.entries()
