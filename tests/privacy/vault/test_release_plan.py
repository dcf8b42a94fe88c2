import threading
from dataclasses import replace

import numpy as np
import pytest

import labeldp as ldp
from labeldp.accounting import GaussianLoss, PureLoss
from labeldp.accounting.calibration import calibrated_loss
from labeldp.accounting.costs import joint_cost
from labeldp.accounting.lineage import Provenance
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.predictor import load_predictor
from labeldp.learn.ridge import Ridge
from labeldp.mechanisms import BestCandidate, GroupHistogram, LinearQuery, OneHotGaussian, OneHotLaplace, RRWithPrior
from labeldp.report.ledger import read_ledger_report

SPACE = ldp.LabelSpace(["no", "yes"])
LABELS = ["no", "yes", "yes", "no", "yes", "no"]
RR = ldp.RandomizedResponse


def vault(epsilon=1.0, delta=0.0, labels=LABELS, **options):
    return ldp.Vault(labels, SPACE, ldp.Budget(epsilon, delta), **options)


class Replacing(ldp.Vault):
    """A vault whose checks return another mechanism, with twice the loss."""

    def check_mechanism(self, mechanism):
        return super().check_mechanism(RR(2 * mechanism.epsilon))


def test_a_step_is_covered_by_the_loss_of_the_mechanism_that_is_drawn():
    v = Replacing(LABELS, SPACE, ldp.Budget(1.0))
    plan = v.plan(RR(0.5))
    with pytest.raises(ldp.InputError, match="declared with another loss"):
        plan.release(RR(0.5))
    assert plan.release(RR(0.25)).guarantee.epsilon == 0.5


def test_a_plan_costs_less_than_its_parts_and_is_charged_at_once():
    steps = [GroupHistogram(np.full(6, i), 0.2, 1e-7) for i in range(8)]
    v = vault(1.2, 1e-5)
    plan = v.plan(*steps, delta=1e-5)
    cost = v.guarantee().epsilon
    assert 0.4 < cost < 8 * 0.2 * 0.75
    drawn = [plan.release(step) for step in steps]
    assert v.guarantee().epsilon == cost
    assert len({r.entry for r in drawn}) == 8
    with pytest.raises(ldp.BudgetExceeded, match="Every step"):
        plan.release(steps[0])


def test_a_plan_holds_its_user_to_what_was_declared():
    v = vault(2.0, 1e-5)
    plan = v.plan(PureLoss(0.5), PureLoss(1.0))
    with pytest.raises(ldp.InputError, match="another loss"):
        plan.release(RR(1.0))
    first = plan.release(RR(0.5))
    plan.release(RRWithPrior(1.0, np.full((6, 2), 0.5)), derived_from=[first])
    assert v.guarantee().epsilon == 1.5
    with pytest.raises(ldp.InputError, match="delta above 0"):
        v.plan(GaussianLoss(3.0, 1.0))


def test_a_step_holds_for_every_number_of_rows_a_user_owns():
    users = np.arange(100) // 50
    v = ldp.Vault([0, 1] * 50, ldp.LabelSpace([0, 1]), ldp.Budget(3.0, 1e-5), users=users)
    plan = v.plan(OneHotGaussian(0.2, 1e-6), delta=1e-6)
    dearer = GroupHistogram(np.zeros(100, int), 0.2, 1e-6)
    assert dearer.loss() == OneHotGaussian(0.2, 1e-6).loss()
    with pytest.raises(ldp.InputError, match="another loss"):
        plan.release(dearer)


def test_threads_cannot_draw_one_step_twice():
    v = vault(6.0, labels=LABELS * 20)
    plan = v.plan(PureLoss(5.0), PureLoss(0.1))
    outcomes = []

    def draw(group):
        try:
            outcomes.append(plan.release(GroupHistogram(np.full(120, group), 5.0)))
        except ldp.InputError:
            outcomes.append(None)

    threads = [threading.Thread(target=draw, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcome is not None for outcome in outcomes) == 1


def test_the_same_plan_again_is_the_one_that_was_paid_for():
    v = vault(1.0)
    first = v.plan(PureLoss(0.5)).release(RR(0.5))
    again = v.plan(PureLoss(0.5))
    assert v.guarantee().epsilon == 0.5
    assert again.release(RR(0.5)).entry == first.entry
    with pytest.raises(ldp.BudgetExceeded, match="drawn before"):
        v.plan(PureLoss(0.5)).release(OneHotLaplace(0.5))
    v.plan(PureLoss(0.5), name="second").release(OneHotLaplace(0.5))
    assert v.guarantee().epsilon == 1.0


def test_a_plan_draws_the_rows_that_were_paid_for_whatever_is_done_to_a_release():
    vault = ldp.Vault([0, 1] * 50, ldp.LabelSpace([0, 1]), ldp.Budget(20.0))
    weak, strong = ldp.RandomizedResponse(0.1), ldp.RandomizedResponse(8.0)
    plan = vault.plan(weak, strong, row_selection=[0])
    first = plan.release(weak)
    first.row_mask[:] = True
    assert (plan.release(strong).labels() >= 0).sum() == 1


def test_a_step_that_was_refused_can_be_asked_for_again():
    vault, other = (ldp.Vault([0, 1] * 5, ldp.LabelSpace([0, 1]), ldp.Budget(2.0)) for _ in range(2))
    step = ldp.RandomizedResponse(0.5)
    plan, stranger = vault.plan(step, step), other.release(ldp.RandomizedResponse(1.0))
    with pytest.raises(ldp.InputError, match="not of this vault"):
        plan.release(step, derived_from=stranger)
    drawn = [plan.release(step).entry for _ in range(2)]
    assert len(set(drawn)) == 2
    with pytest.raises(ldp.BudgetExceeded, match="Every step"):
        plan.release(step)


def test_the_delta_of_a_plan_is_charged():
    v = vault(4.0, 1e-5)
    v.plan(GaussianLoss(3.0, 1.0), PureLoss(0.5), delta=1e-6)
    assert v.guarantee().delta == 1e-6
    assert v.remaining()[1] == pytest.approx(9e-6, rel=1e-9)
    with pytest.raises(ldp.BudgetExceeded):
        v.plan(GaussianLoss(30.0, 1.0), delta=9.1e-6)


def test_a_plan_costs_a_renyi_budget_the_sum_of_its_steps():
    planned, single = (ldp.Vault(LABELS, SPACE, ldp.Budget(2.0, 1e-5, "rdp")) for _ in range(2))
    steps = [GroupHistogram(np.full(6, i), 0.5, 1e-6) for i in range(2)]
    planned.plan(*steps, delta=1e-6)
    for step in steps:
        single.release(step)
    assert planned.guarantee().epsilon == pytest.approx(single.guarantee().epsilon, rel=1e-9)


def test_plans_with_other_steps_or_another_delta_are_other_plans():
    v = vault(9.0, 1e-5)
    v.plan(PureLoss(0.5))
    v.plan(PureLoss(1.0))
    assert v.guarantee().epsilon == 1.5
    v.plan(PureLoss(0.5), PureLoss(0.5))
    assert v.guarantee().epsilon == 2.5
    v.plan(PureLoss(0.5), delta=1e-6)
    assert (v.guarantee().epsilon, v.guarantee().delta) == (3.0, 1e-6)


def test_a_plan_is_paid_by_its_own_rows():
    v = vault(1.0)
    v.release(RR(1.0), row_selection=[0, 1])
    v.plan(RR(0.75), row_selection=[2, 3])
    for rows in ([0], [2], None):
        with pytest.raises(ldp.BudgetExceeded):
            v.plan(RR(0.5), row_selection=rows)
    assert [entry.status for entry in v.ledger.entries()] == ["committed", "committed"]


def test_a_plan_states_the_cost_of_each_number_of_its_rows_that_a_user_owns():
    v = vault(9.0, users=[0, 0, 0, 1, 1, 2])
    v.plan(RR(0.5), row_selection=[0, 3])
    v.plan(RR(0.5), row_selection=[0, 1, 3])
    assert [sorted(entry.costs) for entry in v.ledger.entries()] == [[1], [1, 2]]


def test_a_plan_for_one_label_pays_for_no_other(tmp_path):
    def opened(label):
        return vault(4.0, ledger=tmp_path / "l", identity=ldp.Identity("people", label, 6, "abc"))

    opened("income").plan(RR(0.5))
    opened("illness").plan(RR(0.5))
    opened("income").plan(RR(0.5))
    assert opened("income").guarantee().epsilon == 1.0
    assert [entry.label for entry in opened("income").ledger.entries()] == ["income", "illness"]


def test_a_plan_for_some_rows_of_users_must_fit_beside_a_release_of_all_rows():
    v = vault(1.0, users=[0, 0, 0, 1, 1, 2])
    v.release(RR(0.25))  # costs the first user three quarters
    for ask in (v.plan, v.release):
        with pytest.raises(ldp.BudgetExceeded):
            ask(RR(0.5), row_selection=[0, 3])
    v.plan(RR(0.5), row_selection=[3, 5])


def planned(users=None, **options):
    """A plan of two noisy sums and an answer, its vault, and the first two releases."""
    v = ldp.Vault([0, 1] * 50, ldp.LabelSpace([0, 1]), ldp.Budget(9.0, 1e-4), users=users, **options)
    rows = np.random.default_rng(0).normal(size=(100, 3))
    plan = v.plan(calibrated_loss(0.5, 1e-6), calibrated_loss(0.5, 1e-6), PureLoss(0.25), delta=1e-6)
    first = plan.release(LinearQuery(rows, 0.5, 1e-6))
    second = plan.release(LinearQuery(rows[:, :2], 0.5, 1e-6), derived_from=[first])
    return v, plan, rows, first, second


def test_a_model_of_two_steps_costs_their_plan_once(tmp_path):
    v, plan, rows, first, second = planned()
    [charged] = [entry for entry in v.ledger.entries() if entry.kind == "plan"]
    whole = float(charged.costs[1].epsilon), 1e-6
    assert 0.8 < whole[0] < 1.0  # neither the sum of the steps nor one of them
    points = Embeddings(rows)
    lift = RowNormalizer.fit(points, n_columns=2)
    model = Ridge(lift).fit(points, first)
    both = Provenance.of(model, second)
    model.save(tmp_path / "model")
    alone = plan.release(RR(0.25), derived_from=[second])
    for stated in (
        *(v.guarantee_of(part) for part in ([first], [first, second], [alone, second, first], [first.concat(first)])),
        *(each.guarantee for each in (first, second, alone, model, both, load_predictor(tmp_path / "model"))),
        v.guarantee(),
    ):
        assert (stated.epsilon, stated.delta) == whole
    cost = joint_cost([*both.lineage, *alone.lineage, *model.lineage])
    assert (float(cost.epsilon), float(cost.delta)) == whole
    more = v.release(RR(0.5), row_selection=[0, 1], derived_from=[model])
    assert v.guarantee_of([more]).epsilon == more.guarantee.epsilon == v.guarantee().epsilon == whole[0] + 0.5
    assert v.guarantee_of([second], RR(0.5), [4]).epsilon == whole[0] + 0.5


def test_a_plan_of_some_rows_is_used_on_these():
    v = vault(9.0)
    plan = v.plan(RR(1.0), RR(0.5), row_selection=[0, 1])
    steps = [plan.release(RR(1.0)), plan.release(RR(0.5))]
    other = v.release(RR(1.25), row_selection=[2, 3])
    assert v.guarantee_of([*steps, other]).epsilon == Provenance.of(*steps, other).guarantee.epsilon == 1.5
    above = v.release(RR(0.25), row_selection=[1, 2])
    assert v.guarantee_of([*steps, above]).epsilon == Provenance.of(*steps, above).guarantee.epsilon == 1.75


def test_a_step_that_loses_less_is_drawn_and_one_that_loses_more_is_not():
    v = vault(9.0, 1e-4)
    query = np.arange(12.0).reshape(6, 2)
    plan = v.plan(calibrated_loss(1.0, 1e-6), PureLoss(1.0), delta=1e-6)
    paid, events = v.guarantee(), len(v.ledger.entries())
    for dearer in (LinearQuery(query, 1.01, 1e-6), LinearQuery(query, 1.0), RR(1.0)):
        with pytest.raises(ldp.InputError, match="another loss, which does not cover"):
            plan.release(dearer)
    assert (len(v.ledger.entries()), plan.n_remaining) == (events, 2)
    plan.release(LinearQuery(query, 0.7, 1e-6))
    with pytest.raises(ldp.InputError, match="another loss"):
        plan.release(RR(1.0000001))
    plan.release(RR(0.25))
    assert (plan.n_remaining, v.guarantee().epsilon) == (0, paid.epsilon)


def test_users_with_a_row_each_plan_by_losses_and_others_by_mechanisms():
    v, plan, _, first, _ = planned(users=np.arange(100)[::-1])
    assert v.guarantee_of([first]).unit == plan.release(RR(0.25)).guarantee.unit == "user"
    users = np.arange(100) // 2
    with pytest.raises(ldp.InputError, match="several rows, declare each step of a plan as a mechanism"):
        planned(users=users)
    v = ldp.Vault([0, 1] * 50, ldp.LabelSpace([0, 1]), ldp.Budget(9.0, 1e-4), users=users)
    query = LinearQuery(np.eye(100)[:, :4], 0.5, 1e-6)
    plan = v.plan(query, BestCandidate(np.zeros((100, 2), int), 0.5), delta=1e-6)
    first = plan.release(LinearQuery(np.eye(100)[:, :4], 0.25, 1e-6))
    assert first.guarantee.epsilon == v.guarantee_of([first]).epsilon == v.guarantee().epsilon > 1.0
    with pytest.raises(ldp.InputError, match="another loss"):
        plan.release(RR(0.5))  # two answers of one user lose more than one changed count


def test_whether_a_plan_was_paid_for_is_known_before_it_is_made_again():
    v = vault(9.0, 1e-5)
    steps = PureLoss(0.5), PureLoss(0.25)
    assert not v.was_planned(*steps, name="first")
    v.plan(*steps, name="first")
    assert v.was_planned(*steps, name="first")
    assert v.was_planned(list(steps), name="first")
    for other in ({"name": "second"}, {"name": "first", "row_selection": [0]}, {"name": "first", "delta": 1e-6}):
        assert not v.was_planned(*steps, **other)
    assert v.guarantee().epsilon == 0.75


def test_a_ledger_file_and_its_copy_count_a_plan_once(tmp_path):
    people = {"ledger": tmp_path / "l", "identity": ldp.Identity("people", "ill", 100)}
    v, _, _, first, second = planned(**people)
    whole = v.guarantee_of([first, second])
    report = read_ledger_report(tmp_path / "l")
    assert report["spent"]["epsilon"] == whole.epsilon
    assert [line["epsilon"] for line in report["entries"]] == [whole.epsilon, 0.0, 0.0]
    again, *_, third, fourth = planned(**people)
    assert (again.drawn_entries, len(again.reused_entries)) == ((), 2)
    assert third.lineage == first.lineage == fourth.lineage == second.lineage
    assert [use.entry for use in third.lineage] == [report["entries"][0]["id"]]
    assert [fourth.entry, third.entry] == [line["id"] for line in report["entries"][:0:-1]]


def test_a_change_of_the_budget_is_no_release():
    v = vault(1.0)
    first = v.release(RR(0.5))
    v.ledger.change_budget({"from": v.ledger.facts()["budget"], "to": v.ledger.facts()["budget"]})
    other = replace(first, entry=v.ledger.entries()[-1].id)
    with pytest.raises(ldp.InputError, match="Only releases of this vault"):
        v.guarantee_of([other])
