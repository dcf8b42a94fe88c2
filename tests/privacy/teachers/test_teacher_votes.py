import pickle

import numpy as np
import pytest
from scripted import Seeded
from sklearn.datasets import load_digits

import labeldp as ldp
from labeldp.privacy.mechanisms.stable import ImmutableArgmax
from labeldp.privacy.mechanisms.vote_aggregators import ConfidentGNMax, GNMax, LNMax
from labeldp.privacy.teachers.heads import Heads
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.teacher_votes import TeacherVotes

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
    release = vault().release(votes())
    assert set(np.flatnonzero(release.labels() >= 0)) <= set(QUERIES)
    answered = release.labels() >= 0
    assert 20 <= answered.sum() <= 50
    assert (release.labels()[answered] == LABELS[answered]).mean() > 0.9


def test_the_ledger_pays_for_the_caps_before_noise_is_drawn(monkeypatch):
    mine, asked = vault(), votes()
    paid = asked.aggregator.loss(100, 50).epsilon(1e-5)

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(ConfidentGNMax, "_draw", fail)
    with pytest.raises(RuntimeError):
        mine.release(asked)
    assert mine.guarantee().epsilon == pytest.approx(paid, rel=1e-6)
    assert mine.guarantee().epsilon >= paid
    assert mine.guarantee().delta == 1e-5


def test_an_interrupted_training_of_teachers_costs_nothing(monkeypatch):
    mine = vault()

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Heads, "fit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            mine.release(votes())
    assert not mine.ledger.entries()
    assert mine.release(votes()).guarantee.epsilon == votes().epsilon


def test_teachers_are_not_trained_for_what_cannot_be_paid(monkeypatch):
    monkeypatch.setattr(Heads, "fit", lambda *_: pytest.fail("trained"))
    with pytest.raises(ldp.BudgetExceeded):
        vault(epsilon=0.1).release(votes())


def test_a_repeated_request_returns_the_stored_release():
    mine = vault()
    first, again = mine.release(votes()), mine.release(votes())
    assert np.array_equal(first.labels(), again.labels())
    assert mine.guarantee().epsilon == votes().epsilon
    assert len(mine.ledger.entries()) == 1


@pytest.mark.parametrize("listed", [True, False])
def test_votes_on_what_was_computed_from_a_release_rest_on_it_too(listed):
    """Points that hold noisy labels: the votes cannot be cheaper than these."""
    mine, mechanism = vault(), ConfidentGNMax(20, 10, 5, 100, 50)
    noisy = mine.release(ldp.RandomizedResponse(3.0))
    points = np.concatenate([POINTS, 0.1 * np.eye(10, dtype=np.float32)[noisy.labels()]], axis=1)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    release = mine.prepare_teachers(points, QUERIES, n_teachers=40, derived_from=[noisy] if listed else noisy).release(
        mechanism, 1e-5
    )
    direct = TeacherVotes(points, QUERIES, 40, mechanism, delta=1e-5)
    assert release.guarantee.epsilon == pytest.approx(3.0 + direct.epsilon)
    assert release.guarantee.delta == 1e-5
    assert set(release.lineage) > set(noisy.lineage)
    again = mine.release(direct, derived_from=[noisy])
    assert (again.guarantee, again.lineage) == (release.guarantee, release.lineage)
    assert mine.ledger.entries()[-1].details["origin"] == [noisy.entry]


@pytest.mark.parametrize("row", [0, 150, 1796])
def test_one_label_moves_one_vote_in_each_query_at_most(row):
    teacher = assign_teachers(np.ones(len(LABELS), bool), 40, 0)
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
    release = vault(users=users).release(votes(users=users))
    assert (release.guarantee.epsilon, release.guarantee.unit) == (votes().epsilon, "user")


@pytest.mark.parametrize("user", [0, 7, 200])
def test_all_labels_of_a_user_move_one_vote_of_a_query_at_most(user):
    users = np.arange(len(LABELS)) % 300  # six rows of each, far apart
    asked = votes(users=users)
    assert asked.scaled_to_unit(6) is asked  # and so they cost no more than one
    other = np.where(users == user, (LABELS + 5) % 10, LABELS)
    here, there = (asked.prepare(codes.astype(np.int8), SPACE, {})._counts for codes in (LABELS, other))
    moved = np.abs(here - there).sum(axis=1)
    assert moved.max() == 2
    assert np.abs(here - there).max() == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_teachers": 5000}, "each needs at least one"),
        ({"delta": 0.0}, "give a delta above 0"),
        ({"points": POINTS[:10]}, "10 points for 1797 rows"),
        ({"points": np.full((1797, 3), np.nan)}, "finite matrix"),
        ({"queries": None}, "nothing to vote on"),
        ({"public": POINTS[:5]}, "row number from 0 to 4"),
        ({"queries": None, "public": POINTS[:5, :3]}, "3 columns, and points 64"),
        ({"queries": None, "public": POINTS[:0]}, "no public row"),
        ({"queries": np.array([5, 5])}, "asked about twice"),
        ({"queries": np.array([1797])}, "row number from 0 to 1796"),
    ],
)
def test_bad_requests_cost_nothing(changes, message):
    mine = vault()
    asked = {"points": POINTS, "queries": QUERIES, "n_teachers": 40, "aggregator": GNMax(5, 100), "delta": 1e-5}
    with pytest.raises(ldp.InputError, match=message):
        mine.release(TeacherVotes(**asked | changes))
    assert not mine.ledger.entries()


def test_laplace_votes_need_no_delta():
    release = vault(delta=0.0, epsilon=100.0).release(votes(LNMax(10.0, 100), delta=0.0))
    assert release.guarantee.epsilon == pytest.approx(20.0)  # two moves of 1/10 for each of 100 queries


def test_sealed_votes_are_counted_once_and_never_shown(monkeypatch):
    mine, trained = vault(delta=1e-4), []
    fit = Heads.fit
    monkeypatch.setattr(Heads, "fit", lambda *asked: trained.append(1) or fit(*asked))
    sealed = mine.prepare_teachers(POINTS, QUERIES, n_teachers=40)
    assert repr(sealed) == "TeacherEnsemble(40 teachers, 100 queries)"
    release = sealed.release(ConfidentGNMax(20, 10, 5, 100, 50), 1e-5)
    assert release.guarantee.epsilon == votes().epsilon
    sealed.release(GNMax(20, 100), 1e-6)
    assert mine.guarantee().epsilon > votes().epsilon  # a second mechanism on the same labels adds up
    assert len(trained) == 1
    assert not [value for value in vars(sealed)["_arguments"].values() if getattr(value, "shape", None) == (100, 10)]
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(sealed)


def test_a_request_never_holds_the_votes_that_it_asked_for():
    asked = votes()
    vault().release(asked)
    assert asked._counts is None


def test_votes_on_other_rows_protect_the_whole_record():
    private, public = POINTS[:1500], POINTS[1500:]
    mine = vault(LABELS[:1500])
    release = mine.prepare_teachers(private, public=public, n_teachers=40).release(
        ConfidentGNMax(20, 20, 10, 297, 200), 1e-5
    )
    assert (release.n_rows, release.guarantee.unit, release.codes.dtype) == (297, "record", np.int32)
    known = release.labels() >= 0
    assert (release.labels()[known] == LABELS[1500:][known]).mean() > 0.7
    assert release.keep(known).guarantee == release.guarantee
    again = mine.prepare_teachers(private, public=public, n_teachers=40).release(
        ConfidentGNMax(20, 20, 10, 297, 200), 1e-5
    )
    assert np.array_equal(again.labels(), release.labels())
    assert (again.n_rows, again.guarantee.unit, again.lineage) == (297, "record", release.lineage)
    assert mine.remaining()[0] == pytest.approx(20.0 - release.guarantee.epsilon)


def test_who_has_a_label_does_not_move_other_records_to_other_teachers(monkeypatch):
    """A record may differ in whether it has a label, so rows without one are dealt out, too."""
    parts = []
    monkeypatch.setattr(
        Heads,
        "count_votes",
        lambda self, teacher_data: parts.append(teacher_data.teacher_ids) or np.ones((297, 10), int),
    )
    for hidden in ([], [3, 400]):
        labels = [None if row in hidden else label for row, label in enumerate(LABELS[:1500].tolist())]
        mine = ldp.Vault(labels, ldp.LabelSpace(list(range(10)), missing="public"), ldp.Budget(20.0, 1e-5))
        release = mine.prepare_teachers(POINTS[:1500], public=POINTS[1500:], n_teachers=40).release(
            GNMax(20, 297), 1e-5
        )
        assert [use.packed_rows for use in release.lineage] == [None]  # all rows took part, with a label or without
    assert np.array_equal(*parts)


def test_what_is_not_private_costs_everything():
    ldp.allow_unproven("immutable")
    mine = vault()
    release = mine.release(votes(ImmutableArgmax(20.0, 100), delta=0.0), row_selection=np.arange(1000))
    assert (release.labels()[QUERIES] == LABELS[QUERIES]).mean() > 0.8
    assert release.guarantee.epsilon == mine.guarantee().epsilon == np.inf
    assert mine.remaining(np.arange(1000))[0] == 0
    with pytest.raises(ldp.BudgetExceeded):
        mine.release(ldp.RandomizedResponse(0.1))
    assert mine.release(ldp.RandomizedResponse(0.1), row_selection=np.arange(1000, 1797)).guarantee.epsilon == 0.1
    assert mine.ledger.entries()[0].to_redacted_json()["epsilon"] == "inf"
    assert ldp.Guarantee(**release.guarantee.to_json()) == release.guarantee


def test_teachers_are_dealt_the_users_of_the_vault_and_no_others():
    one_owner, apart = np.zeros(len(LABELS), int), np.arange(len(LABELS))
    with pytest.raises(ldp.InputError, match="give the vault's own users"):
        vault(users=one_owner).release(votes(users=apart))
    vault(users=apart).release(votes(users=apart // 2))  # larger groups are no harm


def test_a_request_is_the_same_however_users_are_named():
    """Python objects lie elsewhere in each process: by their addresses, the same votes would be drawn again."""
    names = [f"person {number // 3}" for number in range(len(LABELS))]
    held = [np.array(names, object), np.array(names), [number // 3 for number in range(len(LABELS))]]
    held.append(np.datetime64("2020-01-01") + np.array(held[-1]))
    described = [votes(users=users).parameters()["users"] for users in held]
    assert all(each == described[0] for each in described)


def test_other_teachers_are_not_taken_for_those_that_the_vault_remembers(monkeypatch):
    counted = []
    monkeypatch.setattr(
        Heads, "count_votes", lambda self, teacher_data: counted.append(teacher_data) or np.ones((100, 10), int)
    )
    mine = vault(epsilon=1000.0)
    for teachers, seed, noise in ((40, 0, 20), (40, 0, 30), (20, 0, 20), (40, 1, 20)):
        mine.release(votes(LNMax(noise, 100), teachers, delta=0.0, seed=seed))
    assert len(counted) == 3  # the second asks for the same votes


def test_teachers_know_whether_whole_records_are_secret(monkeypatch):
    asked = []
    monkeypatch.setattr(Heads, "check", lambda self, points, rows, space, records: asked.append((len(rows), records)))
    votes().check(SPACE, len(POINTS))
    TeacherVotes(POINTS[:1500], None, 40, LNMax(20, 297), public=POINTS[1500:]).check(SPACE, 1500)
    assert asked == [(100, False), (297, True)]
