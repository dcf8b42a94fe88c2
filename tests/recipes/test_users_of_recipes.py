"""Users who own several rows: what each recipe asks of whom, and what a user pays for all of it."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from bound_vault import rows_of

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import Supervised, Training
from labeldp.mechanisms import OneHotGaussian
from labeldp.privacy.mechanisms import RandomizedResponse, RRWithPrior
from labeldp.recipes.cluster_votes import choose_n_clusters
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.pipelines.teachers import QueryPlan
from labeldp.recipes.registry import RECIPES, Recipe, get_recipe
from labeldp.recipes.request import Request
from labeldp.recipes.task import Task
from labeldp.recipes.training import train

SOME = 700
USERS = np.random.default_rng(5).permutation(np.repeat(np.arange(280), [1, 2, 3, 4] * 70))  # 1 to 4 rows each
PURE = ["randres", "randres-denoise", "lp-mst", "cluster-prior", "noise-cluster", "moments", "alibi", "auto"]
WITH_TEACHERS = ["pate", "pate-fm", "stable-vote"]


def asked(vault):
    """For each request: its mechanism, and the rows of each user in it."""
    for entry in vault.ledger.entries():
        yield entry, np.bincount(USERS[rows_of(vault, entry)], minlength=280)


def paid(vault):
    """The slow way to add up: user by user."""
    total = {}
    for entry, owned in asked(vault):
        for user in np.flatnonzero(owned):
            cost = entry.costs[int(owned[user])]
            spent = total.get(user, (Fraction(0), Fraction(0)))
            total[user] = spent[0] + cost.epsilon, spent[1] + cost.delta
    return total


def trained(digits, name, epsilon, delta=0.0, labels_per_user=3, **options):
    vault = digits.vault(epsilon, delta, count=SOME, users=USERS)
    task = digits.task(epsilon, delta, count=SOME, row_mask=vault.cap_labels_per_user(labels_per_user))
    return vault, train(vault, task, name, options or None)


@pytest.mark.parametrize(
    ("name", "delta"), [*((n, d) for n in PURE for d in (0.0, 1e-6)), *((n, 1e-6) for n in WITH_TEACHERS)]
)
def test_a_user_pays_epsilon_for_all_labels_and_is_in_one_part(digits, name, delta):
    epsilon = 2.7 if name not in WITH_TEACHERS else 200.0
    options = {"teachers": 20, "answers": 5} if name in WITH_TEACHERS else {}
    vault, result = trained(digits, name, epsilon, delta, **options)
    spent = paid(vault)
    assert max(e for e, _ in spent.values()) <= Fraction(str(epsilon))
    assert max(d for _, d in spent.values()) <= Fraction(str(delta))
    assert float(max(e for e, _ in spent.values())) == pytest.approx(epsilon, rel=0.01)
    assert (result.guarantee.unit, result.model.guarantee.unit) == ("user", "user")
    assert result.guarantee.epsilon <= epsilon
    assert result.model.guarantee.epsilon <= epsilon  # also where stages are of different users
    training_entries = {release.entry for release in result.releases}
    parts = {"learnt": np.zeros(280, int), "BestCandidate": np.zeros(280, int), "scored": np.zeros(280, int)}
    for entry, owned in asked(vault):
        assert owned.max() <= 3
        own = "learnt" if entry.id in training_entries else "scored"
        parts["BestCandidate" if entry.details["mechanism"] == "BestCandidate" else own] |= owned
    in_parts = np.sum([owned > 0 for owned in parts.values()], axis=0)
    assert (in_parts == 1).all()
    assert parts["learnt"].max() == 3
    assert parts["scored"].max() == 1  # intervals take rows as independent
    assert result.score.n_rows == (parts["scored"] > 0).sum()


def test_stages_share_no_user(digits):
    vault, _ = trained(digits, "lp-mst", 1.5, stages=3)
    stages = [owned > 0 for entry, owned in asked(vault) if entry.details["mechanism"].startswith("R")][:3]
    assert np.sum(stages, axis=0).max() == 1


def test_the_report_says_how_users_took_part(digits):
    _, result = trained(digits, "randres", 1.5, labels_per_user=2)
    about = result.to_json()["users"]
    assert {name: about[name] for name in ("count", "labels_per_user", "rows", "dropped")} == {
        "count": 280,
        "labels_per_user": 2,
        "rows": 490,
        "dropped": 210,
    }
    assert (about["label"]["epsilon"], about["label"]["unit"]) == (0.75, "label")
    assert train(digits.vault(1.0, count=SOME), digits.task(1.0, count=SOME), "randres").to_json()["users"] is None


def test_delta_left_over_buys_many_labels_a_larger_epsilon(digits):
    users = np.arange(SOME) // 70
    for delta, more in ((0.0, False), (1e-6, True)):
        vault = digits.vault(1.0, delta, count=SOME, users=users)
        result = train(vault, digits.task(1.0, delta, count=SOME), "randres", score=False)
        assert (result.releases[0].epsilon > 1.2 / 70) == more
        assert result.guarantee.epsilon <= 1.0
        assert result.guarantee.delta == delta


def test_delta_that_sums_have_spent_is_not_spent_again(digits):
    users = np.arange(SOME) // 35
    vault = digits.vault(200.0, 1e-6, count=SOME, users=users)
    result = train(vault, digits.task(200.0, 1e-6, count=SOME), "auto", score=False)
    assert {"LinearQuery", "RandomizedResponse"} <= {release.mechanism for release in result.releases}
    assert result.guarantee.delta == 1e-6
    assert result.guarantee.epsilon <= 200.0


@pytest.mark.parametrize("name", ["randres", "lp-mst", "moments"])
def test_a_run_that_is_repeated_asks_for_nothing_new(digits, name):
    vault = digits.vault(1.0, 1e-6, count=SOME, users=np.arange(SOME) // 20)
    for _ in range(2):
        train(vault, digits.task(1.0, 1e-6, count=SOME), name, score=False)
    assert len(vault.ledger.entries()) == (2 if name == "lp-mst" else 1)


def test_recipes_expect_the_noise_that_shared_labels_get(digits):
    task = digits.task(2.0, count=SOME)
    several = replace(task, users=np.arange(SOME) // 5)
    assert (task.labels_per_user, task.label_epsilon) == (1, 2.0)
    assert (several.labels_per_user, several.label_epsilon) == (5, 0.4)
    assert choose_n_clusters(several) == choose_n_clusters(replace(task, epsilon=0.4))


def test_nobody_owns_public_rows(digits):
    vault = digits.vault(400.0, 1e-4, count=SOME, users=np.arange(SOME) // 2)
    task = digits.task(400.0, 1e-4, count=SOME, public=digits.new)
    options = {"teachers": 10, "engine": "here", "answers": 10}
    assert train(vault, task, "pate-fm-denoise", options, score=False).guarantee.unit == "user"


def test_no_more_teachers_than_users(digits):
    task = digits.task(20.0, 1e-5, count=SOME, users=np.arange(SOME) // 40)
    assert QueryPlan(task, None, 10, 10, 0.5).teacher_limit == 18
    assert QueryPlan(replace(task, users=None), None, 10, 10, 0.5).teacher_limit == 35


# Two stages, two users, two labels each: every outcome.


class ScriptedResponses:
    """Stands in for the noise: answers are given, and their chance is noted by the channel that is drawn from."""

    def __init__(self, monkeypatch):
        self.answers, self.correct_probability = None, 1.0
        for kind in (RandomizedResponse, RRWithPrior):
            monkeypatch.setattr(kind, "draw", self._instead_of(kind.draw))

    def _instead_of(self, draw):
        def draw_scripted(mechanism, codes, common, bits):
            release = draw(mechanism, codes, common, bits)
            rows = np.flatnonzero(codes >= 0)
            given = np.full_like(release.codes, -1)
            given[rows] = self.answers[rows]
            release = replace(release, codes=given)
            # What no candidate can be answered is never released.
            possible = np.ones(4, bool)
            if release.candidates is not None:
                possible = np.unpackbits(release.candidates, axis=1, count=2)[np.arange(4), self.answers].astype(bool)
            channel = np.exp(release.log_evidence().astype(float))[rows, codes[rows]]
            self.correct_probability *= float(np.prod(np.where(possible[rows], channel, 0.0)))
            return release

        return draw_scripted


def test_every_outcome_of_two_stages_is_as_likely_within_epsilon(monkeypatch):
    noise, users = ScriptedResponses(monkeypatch), np.array([0, 1, 0, 1])
    features, space = Embeddings(np.array([[0.0, 1.0], [1.0, 0.0], [0.2, 1.0], [1.0, 0.3]])), ldp.LabelSpace([0, 1])
    training = Training(epochs=1, batch_size=4, device="cpu", learning_rate=0.5)
    neighbors = [(0, 0, 0, 0), (1, 0, 1, 0), (0, 1, 0, 1), (1, 1, 1, 1)]
    law = {labels: [] for labels in neighbors}
    touched = set()
    for labels, answers in product(neighbors, product([0, 1], repeat=4)):
        noise.answers, noise.correct_probability = np.array(answers), 1.0
        vault = ldp.Vault(list(labels), space, ldp.Budget(1.0), users=users)
        task = Task(features, space, all_rows(4), 1.0, training=training, model="linear")
        train(vault, task, "lp-mst", {"stages": 2, "mixup": 0.0}, with_rehearsal=False)
        law[labels].append(noise.correct_probability)
        touched.add(tuple(tuple(users[rows_of(vault, entry)].tolist()) for entry in vault.ledger.entries()))
    assert {frozenset(stage) for stages in touched for stage in stages} == {frozenset({0}), frozenset({1})}
    probabilities = {labels: np.array(each) for labels, each in law.items()}
    for each in probabilities.values():
        assert each.sum() == pytest.approx(1, abs=1e-6)
    worst = 0.0
    for one, other in product(neighbors, repeat=2):
        changed = {int(users[row]) for row in range(4) if one[row] != other[row]}
        if len(changed) == 1:
            possible = probabilities[one] > 0
            assert np.array_equal(possible, probabilities[other] > 0)
            worst = max(worst, np.log(probabilities[one][possible] / probabilities[other][possible]).max())
    assert 0.999 < worst <= 1 + 1e-5


def test_delta_that_one_release_has_spent_is_not_shared_by_the_next(digits, monkeypatch):
    """Many labels of a user could share delta to more effect, but the task has none left."""

    def steps(task):
        yield Request(OneHotGaussian(0.5, 1e-6))
        noisy = yield Request(RandomizedResponse(0.5))
        return Supervised("linear", task.training).fit(task.features, noisy)

    get_recipe("randres")
    monkeypatch.setitem(RECIPES, "tried", Recipe("tried", "of this test", steps))
    vault = digits.vault(9.0, 1e-5, count=SOME, users=np.arange(SOME) // 70)
    result = train(vault, digits.task(1.0, 1e-6, count=SOME), "tried", score=False)
    assert result.guarantee.delta == vault.guarantee().delta == 1e-6
    assert result.guarantee.epsilon <= 1.0
