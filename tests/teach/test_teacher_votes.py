import numpy as np
import pytest
from scripted import Seeded
from sklearn.datasets import load_digits

import labeldp as ldp
from labeldp.mechanisms.voting import ConfidentGNMax, GNMax, LNMax
from labeldp.teach.heads import Heads
from labeldp.teach.partition import deal
from labeldp.teach.votes import TeacherVotes

PIXELS, LABELS = load_digits(return_X_y=True)
POINTS = PIXELS - PIXELS.mean(axis=0)
POINTS = (POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)).astype(np.float32)
SPACE = ldp.LabelSpace(list(range(10)))
QUERIES = np.arange(100, 200)


def vault(labels=LABELS, epsilon=20.0, delta=1e-5, **options):
    made = ldp.Vault(labels, SPACE, ldp.Budget(epsilon, delta), **options)
    made._bits = Seeded(0)
    return made


def votes(mechanism=None, teachers=40, **options):
    mechanism = mechanism or ConfidentGNMax(20, 10, 5, 100, 50)
    return TeacherVotes(POINTS, QUERIES, teachers, mechanism, **{"delta": 1e-5} | options)


def test_answers_are_mostly_right_and_no_more_than_were_paid_for():
    told = vault().release(votes())
    assert set(np.flatnonzero(told.labels() >= 0)) <= set(QUERIES)
    answered = told.labels() >= 0
    assert 20 <= answered.sum() <= 50
    assert (told.labels()[answered] == LABELS[answered]).mean() > 0.9


def test_the_ledger_pays_for_the_caps_before_a_teacher_is_trained(monkeypatch):
    mine, asked = vault(), votes()
    paid = asked.votes.loss(100, 50).epsilon(1e-5)

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(Heads, "fit", fail)
    with pytest.raises(RuntimeError):
        mine.release(asked)
    assert mine.guarantee().epsilon == pytest.approx(paid, rel=1e-6)
    assert mine.guarantee().epsilon >= paid
    assert mine.guarantee().delta == 1e-5


def test_the_same_request_is_told_again_and_not_drawn_again():
    mine = vault()
    first, again = mine.release(votes()), mine.release(votes())
    assert np.array_equal(first.labels(), again.labels())
    assert mine.guarantee().epsilon == votes().epsilon
    assert len(mine.ledger.entries()) == 1


@pytest.mark.parametrize("row", [0, 150, 1796])
def test_one_label_moves_one_vote_in_each_query_at_most(row):
    teacher = deal(np.ones(len(LABELS), bool), 40, 0)
    before = Heads.vote(Heads().fit(POINTS, LABELS, teacher, 10), POINTS[QUERIES])
    for other in range(10):
        changed = LABELS.copy()
        changed[row] = other
        after = Heads.vote(Heads().fit(POINTS, changed, teacher, 10), POINTS[QUERIES])
        moved = after - before
        assert np.abs(moved).sum(axis=1).max() <= 2
        assert moved.max() <= 1


def test_users_are_dealt_out_whole_or_refused():
    users = np.repeat(np.arange(len(LABELS) // 3 + 1), 3)[: len(LABELS)]
    with pytest.raises(ldp.InputError, match="reach several teachers"):
        vault(users=users).release(votes())
    told = vault(users=users).release(votes(users=users))
    assert (told.guarantee.epsilon, told.guarantee.unit) == (votes().epsilon, "user")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teachers": 5000}, "each needs at least one"),
        ({"delta": 0.0}, "give a delta above 0"),
        ({"points": POINTS[:10]}, "finite matrix with 1797 rows"),
        ({"queries": np.array([5, 5])}, "asked about twice"),
        ({"queries": np.array([1797])}, "row number from 0 to 1796"),
    ],
)
def test_bad_requests_cost_nothing(changes, message):
    mine = vault()
    asked = {"points": POINTS, "queries": QUERIES, "teachers": 40, "votes": GNMax(5, 100), "delta": 1e-5}
    with pytest.raises(ldp.InputError, match=message):
        mine.release(TeacherVotes(**asked | changes))
    assert not mine.ledger.entries()


def test_laplace_votes_need_no_delta():
    told = vault(delta=0.0, epsilon=100.0).release(votes(LNMax(10.0, 100), delta=0.0))
    assert told.guarantee.epsilon == pytest.approx(20.0)  # two moves of 1/10 for each of 100 queries


def test_sealed_votes_are_told_and_never_shown():
    mine = vault(delta=1e-4)
    sealed = mine.teach(POINTS, QUERIES, 40)
    assert repr(sealed) == "SealedVotes(40 teachers, 100 queries)"
    told = sealed.release(ConfidentGNMax(20, 10, 5, 100, 50), 1e-5)
    assert told.guarantee.epsilon == votes().epsilon
    assert not [v for v in vars(sealed)["_asked"].values() if getattr(v, "shape", None) == (100, 10)]
    sealed.release(GNMax(20, 100), 1e-6)
    assert mine.guarantee().epsilon > votes().epsilon  # a second mechanism on the same labels adds up
