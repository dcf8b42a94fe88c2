"""Recipes that reserve several releases at once: what they cost, and how they go on after an interruption."""

import numpy as np
import pytest
import torch
from scripted import Seeded

import labeldp as ldp
from labeldp.accounting import PureLoss
from labeldp.accounting.calibration import calibrated_loss
from labeldp.estimators.limited_vault import LimitedVault
from labeldp.learn import Supervised
from labeldp.mechanisms import BestCandidate, GroupHistogram, LinearQuery, OneHotLaplace
from labeldp.privacy.vault import Identity, Ledger
from labeldp.recipes import rehearsal
from labeldp.recipes.budget_split import split_composed
from labeldp.recipes.registry import RECIPES, Recipe, get_recipe
from labeldp.recipes.request import Request, Reserve
from labeldp.recipes.training import train

SOME, DELTA = 400, 1e-5
SHARES = [(1.0, "gaussian"), (1.0, "pure"), (2.0, "gaussian")]


def pixels(task):
    return task.features.batch(torch.arange(len(task.features))).numpy()


def rounds(task, stop=lambda step: None, replies=None, fallback=0.3):
    """Sums, a noisy maximum of two columns for each row, and sums over the columns that it names."""
    parts = split_composed(task.epsilon, task.delta, SHARES)
    points = pixels(task)
    replies = [] if replies is None else replies
    stop(0)
    reserved = yield Reserve([calibrated_loss(*part) for part in parts], task.delta)
    replies.append(reserved)
    if not reserved:
        parts = [(fallback * task.epsilon, 0.0)] * 3
    stop(1)
    sums = yield Request(LinearQuery(points[:, :8], *parts[0]))
    replies.append(sums)
    stop(2)
    predictions = np.stack(
        [np.abs(sums.moments).argmax(axis=1)[points[:, part : part + 4].argmax(axis=1)] for part in (0, 4)], 1
    )
    best = yield Request(BestCandidate(predictions.astype(np.int32), parts[1][0]), derived_from=[sums])
    replies.append(best)
    stop(3)
    columns = points[:, 8 + 8 * best.best_index : 16 + 8 * best.best_index]
    more = yield Request(LinearQuery(columns, *parts[2]), derived_from=[sums, best])
    replies.append(more)
    stop(4)
    return task.learner(Supervised).fit(task.features, more.relabel(sums.labels(), derived_from=[sums, best]))


@pytest.fixture
def enter(monkeypatch):
    """Puts a recipe into the list for one test."""

    def put(steps, **facts):
        get_recipe("randres")
        monkeypatch.setitem(RECIPES, "tried", Recipe("tried", "of this test", steps, needs="delta", **facts))

    return put


def opened(digits, folder, seed=0, epsilon=1.0, delta=DELTA):
    vault = ldp.Vault(
        digits.labels[:SOME],
        digits.task(1.0).space,
        ldp.Budget(epsilon, delta),
        ledger=folder / "ledger.db",
        identity=Identity("digits", "digit", SOME),
    )
    vault._bits = Seeded(seed)
    return vault


def drawn(ledger):
    """The stored bytes of each step, by its place."""
    steps = [entry for entry in ledger.entries() if entry.kind == "step" and entry.status == "committed"]
    return {entry.details["step"]: ledger.payload(entry.id) for entry in steps}


def test_three_rounds_cost_what_was_asked_for_and_say_so(digits, enter):
    enter(rounds)
    vault = digits.vault(1.0, DELTA, count=SOME)
    trained = train(vault, digits.task(1.0, DELTA, count=SOME), "tried")
    assert 0.999 < trained.guarantee.epsilon <= 1.0
    assert trained.guarantee.delta == DELTA
    assert sum(release.parameters["epsilon"] for release in trained.releases) > 1.1  # one by one
    assert trained.model.guarantee.epsilon == trained.guarantee.epsilon
    plan, *steps, right, _ = vault.ledger.entries()
    assert [entry.kind for entry in steps] == ["step"] * 3
    assert [entry.details["origin"] for entry in steps] == [
        "declared public",
        [steps[0].id],
        [steps[0].id, steps[1].id],
    ]
    assert vault.guarantee_of(trained.releases).epsilon == float(plan.costs[1].epsilon)
    assert right.details["mechanism"] == "CorrectCount"  # of other rows
    assert vault.remaining()[0] < 1e-3


@pytest.mark.parametrize("place", range(5))
def test_a_run_that_was_interrupted_after_any_step_goes_on_byte_for_byte(digits, tmp_path, enter, place):
    def stop(step):
        if step == place:
            raise KeyboardInterrupt

    task = digits.task(1.0, DELTA, count=SOME)
    enter(lambda task: rounds(task, stop))
    with pytest.raises(KeyboardInterrupt):
        train(opened(digits, tmp_path, 1), task, "tried")
    ledger = Ledger(tmp_path / "ledger.db")
    before, paid = drawn(ledger) if place else {}, opened(digits, tmp_path).guarantee().epsilon
    assert (len(before), paid > 0.999) == (max(0, place - 1), place > 0)
    enter(rounds)
    vault = opened(digits, tmp_path, 2)
    trained = train(vault, task, "tried")
    assert 0.999 < trained.guarantee.epsilon == vault.guarantee_of(trained.releases).epsilon <= 1.0
    after = drawn(vault.ledger)
    assert len(after) == 3
    assert after | before == after
    entry_types = [entry.kind for entry in vault.ledger.entries()]
    assert (entry_types.count("plan"), entry_types.count("step")) == (1, 3)
    again = train(opened(digits, tmp_path, 3), task, "tried")
    assert drawn(Ledger(tmp_path / "ledger.db")) == after
    assert np.array_equal(again.model.predict_proba(digits.new), trained.model.predict_proba(digits.new))


@pytest.mark.parametrize("mechanism", [LinearQuery, BestCandidate])
def test_a_step_that_was_interrupted_in_its_draw_is_drawn_when_the_run_goes_on(
    digits, tmp_path, enter, monkeypatch, mechanism
):
    def interrupt(*given):
        raise KeyboardInterrupt

    enter(rounds)
    task = digits.task(1.0, DELTA, count=SOME)
    with monkeypatch.context() as patch:
        patch.setattr(mechanism, "draw", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(opened(digits, tmp_path, 1), task, "tried")
    assert [entry.status for entry in Ledger(tmp_path / "ledger.db").entries()][-1] == "reserved"
    vault = opened(digits, tmp_path, 2)
    assert train(vault, task, "tried").guarantee.epsilon <= 1.0
    assert {entry.status for entry in vault.ledger.entries()} == {"committed"}


def test_what_fails_after_the_reservation_says_that_it_is_paid(digits, tmp_path, enter):
    def stop(step):
        if step == 1:
            raise ldp.InputError("nothing works")

    enter(lambda task: rounds(task, stop))
    with pytest.raises(ldp.InputError) as caught:
        train(opened(digits, tmp_path), digits.task(1.0, DELTA, count=SOME), "tried")
    assert "is paid for and in the ledger" in caught.value.__notes__[0]


def test_a_budget_that_is_too_small_is_named_before_anything_is_reserved(digits, tmp_path, enter):
    enter(rounds)
    vault = opened(digits, tmp_path)
    vault.release(ldp.RandomizedResponse(0.1))
    with pytest.raises(ldp.BudgetExceeded, match=r"costs epsilon 1 in all, and the budget has epsilon 0\.9"):
        train(vault, digits.task(1.0, DELTA, count=SOME), "tried")
    assert len(vault.ledger.entries()) == 1


def greedy(task, epsilon, delta, first=0.0, again=False):
    if first:
        yield Request(ldp.RandomizedResponse(first))
    yield Reserve([PureLoss(epsilon / 2), PureLoss(epsilon / 2)], delta)
    if again:
        yield Reserve([PureLoss(0.1)], delta)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"epsilon": 1.01, "delta": 0.0}, "requests more than the epsilon and delta of its task"),
        ({"epsilon": 0.5, "delta": 2e-5}, "requests more than the epsilon and delta of its task"),
        ({"epsilon": 0.5, "delta": 0.0, "first": 0.6}, "requests more than the epsilon and delta of its task"),
        ({"epsilon": 0.5, "delta": 0.0, "again": True}, "reserves again before it drew all steps"),
    ],
)
def test_a_recipe_cannot_reserve_more_than_it_was_given(digits, enter, asked, message):
    enter(lambda task: greedy(task, **asked))
    vault = digits.vault(9.0, 1e-3, count=SOME)
    with pytest.raises(ldp.LabelDPError, match=message):
        train(vault, digits.task(1.0, DELTA, count=SOME), "tried")
    assert vault.guarantee().epsilon == asked.get("first", 0.5 if asked.get("again") else 0.0)


def test_a_step_is_drawn_on_all_rows_and_what_comes_after_the_steps_is_charged_by_itself(digits, enter):
    def steps(task, rows=None):
        yield Reserve([PureLoss(0.25), PureLoss(0.25)])
        first = yield Request(ldp.RandomizedResponse(0.25))
        yield Request(OneHotLaplace(0.25), rows, [first])
        last = yield Request(ldp.RandomizedResponse(0.5), derived_from=[first])
        return task.learner(Supervised).fit(task.features, last)

    enter(steps)
    vault, task = digits.vault(1.0, DELTA, count=SOME), digits.task(1.0, DELTA, count=SOME)
    trained = train(vault, task, "tried", score=False)
    assert (trained.guarantee.epsilon, vault.guarantee().epsilon) == (1.0, 1.0)
    enter(lambda task: steps(task, np.arange(SOME) < 7))
    with pytest.raises(ldp.LabelDPError, match="some rows of a reserved step"):
        train(digits.vault(1.0, DELTA, count=SOME), task, "tried", score=False)


def test_another_seed_or_option_is_another_plan_and_another_request_is_refused(digits, tmp_path, enter):
    def steps(task, classes: int = 10, columns: int = 4):
        yield Reserve([PureLoss(0.5), PureLoss(0.5)])
        points = pixels(task)[:, : task.training.epochs]
        sums = yield Request(LinearQuery(points, 0.5))
        other = yield Request(GroupHistogram(np.arange(SOME) % classes, 0.5), derived_from=[sums])
        return task.learner(Supervised).fit(task.features, other)

    enter(steps)
    vault = opened(digits, tmp_path, epsilon=9.0)

    def spent(options=None, **changes):
        train(vault, digits.task(1.0, DELTA, count=SOME, **changes), "tried", options, score=False)
        return vault.guarantee().epsilon

    assert [spent(), spent(), spent({"classes": 5}), spent(seed=1), spent({"classes": 5})] == [1, 1, 2, 3, 3]
    with pytest.raises(ldp.BudgetExceeded, match=r"drawn before, with another request.*another seed, which is charged"):
        spent(epochs=2)
    assert spent(epochs=2, seed=2) == 4


@pytest.mark.parametrize("users", [np.arange(SOME) // 2, np.arange(SOME)[::-1]])
def test_users_with_several_labels_fall_back_to_one_release_after_another(digits, enter, users):
    replies = []
    enter(lambda task: rounds(task, replies=replies))
    vault = digits.vault(1.0, DELTA, count=SOME, users=users)
    trained = train(vault, digits.task(1.0, DELTA, count=SOME, users=users), "tried")
    several = users.max() < SOME - 1
    assert replies[0] is not several
    assert trained.guarantee.unit == "user"
    assert trained.guarantee.epsilon == pytest.approx(0.9 if several else 1.0, rel=1e-3)
    assert vault.guarantee().epsilon <= 1.0
    assert [entry.kind for entry in vault.ledger.entries()].count("plan") == (not several)


@pytest.mark.parametrize("labels", [1, 2])
def test_steps_are_rehearsed_as_they_will_be_drawn(digits, enter, monkeypatch, labels):
    replies, vaults = [], []

    def steps(task):
        return rounds(task, replies=replies)

    steps.__module__ = "labeldp.recipes.tried"
    made = rehearsal._SyntheticVault.__init__
    monkeypatch.setattr(
        rehearsal._SyntheticVault, "__init__", lambda self, *given: vaults.append(self) or made(self, *given)
    )
    enter(steps)
    users = np.arange(SOME) // labels
    vault = digits.vault(1.0, DELTA, count=SOME, users=users)
    trained = train(vault, digits.task(1.0, DELTA, count=SOME, users=users), "tried")
    assert [reply for reply in replies if isinstance(reply, bool)] == [labels == 1] * 2
    assert len(vaults) == 1
    assert vaults[0].n_rows < SOME
    entry_types = [entry.kind for entry in vaults[0].ledger.entries()]
    assert entry_types[:4] == (["plan", "step", "step", "step"] if labels == 1 else ["release"] * 4)
    assert trained.guarantee.epsilon <= 1.0


def test_what_cannot_be_drawn_is_found_by_the_rehearsal_before_anything_is_reserved(digits, enter):
    def steps(task):
        yield Reserve([calibrated_loss(0.5, DELTA)], DELTA)
        yield Request(LinearQuery(pixels(task) * np.nan, 0.5, DELTA))

    steps.__module__ = "labeldp.recipes.tried"
    enter(steps)
    vault = digits.vault(1.0, DELTA, count=SOME)
    with pytest.raises(ldp.InputError, match="missing or infinite value"):
        train(vault, digits.task(1.0, DELTA, count=SOME), "tried")
    assert not vault.ledger.entries()


def test_a_search_reserves_once_and_draws_the_same_steps():
    vault = ldp.Vault([0, 1] * 5, ldp.LabelSpace([0, 1]), ldp.Budget(9.0))
    once = LimitedVault(vault, 0.75, 0.0)
    steps = ldp.RandomizedResponse(0.5), PureLoss(0.25)
    for _ in range(2):
        plan = once.plan(*steps)
        first = plan.release(steps[0])
        assert plan.n_remaining == 1
    assert (vault.guarantee().epsilon, first.entry) == (0.75, vault.ledger.entries()[1].id)
    with pytest.raises(ldp.InputError, match="another release than the first"):
        once.plan(*steps).release(OneHotLaplace(0.5))


@pytest.mark.parametrize(
    "make_request",
    [
        lambda once, steps: once.plan(*steps, name="second"),
        lambda once, steps: once.plan(*steps, delta=1e-6),
        lambda once, steps: once.plan(PureLoss(0.1), delta=2e-6),
        lambda once, steps: once.plan(PureLoss(0.26)),
        lambda once, steps: once.release(OneHotLaplace(0.26)),
    ],
)
def test_a_search_reserves_no_more_than_its_epsilon_and_delta(make_request):
    vault = ldp.Vault([0, 1] * 5, ldp.LabelSpace([0, 1]), ldp.Budget(9.0, 1e-3))
    once, steps = LimitedVault(vault, 1.0, 1e-6), [PureLoss(0.5), PureLoss(0.25)]
    once.plan(*steps)
    with pytest.raises(ldp.InputError, match="another release than the first"):
        make_request(once, steps)
    assert len(vault.ledger.entries()) == 1


def test_a_search_over_a_recipe_that_reserves_costs_one_epsilon(enter):
    def steps(task, depth: int = 1):
        yield Reserve([PureLoss(1.0), PureLoss(3.0)])
        counts = yield Request(GroupHistogram(np.zeros(len(task.row_mask), int), 1.0))
        noisy = yield Request(ldp.RandomizedResponse(3.0), derived_from=[counts])
        return task.learner(Supervised).fit(task.features, noisy)

    enter(steps)
    X = np.random.default_rng(0).normal(size=(600, 3))
    model = ldp.LabelPrivateClassifier(4.0, delta=1e-6, classes=["no", "yes"], recipe="tried", random_state=0)
    search = ldp.LabelPrivateSearchCV(model, {"model": ["logistic", "trees"], "options": [{"depth": 1}, {"depth": 2}]})
    found = search.fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    assert found.guarantee_.epsilon == 4.0
    releases = found.best_estimator_.card_.facts["releases"]
    assert [each["mechanism"] for each in releases] == ["GroupHistogram", "RandomizedResponse", "BestCandidate"]
    own = {each["mechanism"]: each for each in found.best_estimator_.card_.facts["ledger"] if each["own"]}
    assert (own["plan"]["epsilon"], own["plan"]["purpose"]) == (4.0, "training")
    text = found.best_estimator_.card_.to_markdown()
    assert "| plan | training | unknown | 4 | 0 | `labeldp.accounting.losses` |" in text
    assert "| RandomizedResponse | training | 480 | in its plan | in its plan |" in text
