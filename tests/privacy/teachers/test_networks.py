import contextlib
import random
from dataclasses import replace

import numpy as np
import pytest
from scripted import Seeded
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier

import labeldp as ldp
from labeldp.data import Embeddings, Images
from labeldp.learn import FixMatch, Supervised, Training
from labeldp.learn.predictor import load_predictor
from labeldp.learn.sklearn_learner import SklearnLearner
from labeldp.mechanisms import CorrectCount, RRWithPrior
from labeldp.privacy.mechanisms.vote_aggregators import GNMax
from labeldp.privacy.teachers.networks import Networks, _isolated_random_state
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.teacher_data import TeacherData, count_winners
from labeldp.privacy.teachers.teacher_votes import TeacherVotes

PIXELS, LABELS = load_digits(return_X_y=True)
FEATURES, CODES = Embeddings((PIXELS / 16).astype(np.float32)), LABELS.astype(np.int32)
ASKED = FEATURES.select(np.arange(200))
SPACE = ldp.LabelSpace(list(range(10)))
TRAINING = Training(epochs=4, batch_size=32, learning_rate=0.1, device="cpu")
TEACHER_IDS = assign_teachers(np.ones(len(CODES), bool), 4, 0)
LINEAR = Networks(Supervised("linear", TRAINING), engine="here")
SEMI = Networks(FixMatch("linear", TRAINING), visible_features="all", engine="here")


def teacher_data(codes=CODES, asked=ASKED):
    return TeacherData(FEATURES, codes, TEACHER_IDS, asked, SPACE)


def teachers(trainer, folder, codes=CODES):
    """Every teacher's model, by number."""
    replace(trainer, checkpoint_folder=folder).count_votes(teacher_data(codes))
    return [load_predictor(found, "cpu") for found in sorted(folder.glob("teacher-*"))]


def weights(model):
    return [value.numpy() for value in model.network.state_dict().values()]


@pytest.mark.parametrize("trainer", [LINEAR, SEMI], ids=["own", "all"])
def test_one_label_leaves_every_other_teacher_as_it_was_to_the_last_bit(trainer, tmp_path):
    before = teachers(trainer, tmp_path / "before")
    changed = CODES.copy()
    changed[5] = (changed[5] + 1) % 10
    after = teachers(trainer, tmp_path / "after", changed)
    assert len(before) == len(after) == 4
    for number in range(4):
        same = [np.array_equal(*pair) for pair in zip(weights(before[number]), weights(after[number]), strict=True)]
        assert all(same) == (number != TEACHER_IDS[5])


def test_a_teacher_that_sees_its_own_part_ignores_the_features_of_others(tmp_path):
    before = teachers(LINEAR, tmp_path / "before")
    pixels = (PIXELS / 16).astype(np.float32)
    pixels[5] = 1 - pixels[5]  # a record, not only its label
    changed = replace(teacher_data(), points=Embeddings(pixels))
    replace(LINEAR, checkpoint_folder=tmp_path / "after").count_votes(changed)
    after = [load_predictor(found, "cpu") for found in sorted((tmp_path / "after").glob("teacher-*"))]
    for number in range(4):
        same = [np.array_equal(*pair) for pair in zip(weights(before[number]), weights(after[number]), strict=True)]
        assert all(same) == (number != TEACHER_IDS[5])


@pytest.mark.parametrize("engine", ["processes", pytest.param("ray", marks=pytest.mark.long)])
def test_workers_count_the_same_votes(engine):
    counts = replace(LINEAR, engine=engine, workers=2).count_votes(teacher_data())
    assert np.array_equal(counts, LINEAR.count_votes(teacher_data()))
    assert (counts.sum(axis=1) == 4).all()
    assert (counts.argmax(axis=1) == CODES[:200]).mean() > 0.8


def test_stored_teachers_are_not_trained_again(tmp_path, monkeypatch):
    trainer = replace(LINEAR, checkpoint_folder=tmp_path / "secret")
    first = trainer.count_votes(teacher_data())
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    monkeypatch.setattr(Supervised, "fit", lambda *_: pytest.fail("trained again"))
    assert np.array_equal(trainer.count_votes(teacher_data()), first)
    assert (
        len(trainer.count_votes(teacher_data(asked=FEATURES.select(np.arange(300, 350))))) == 50
    )  # other questions, same teachers


def test_a_stored_teacher_of_other_labels_is_not_used(tmp_path):
    trainer = replace(LINEAR, checkpoint_folder=tmp_path)
    trainer.count_votes(teacher_data())
    changed = (CODES + 1) % 10
    assert np.array_equal(trainer.count_votes(teacher_data(changed)), LINEAR.count_votes(teacher_data(changed)))
    assert len(list(tmp_path.iterdir())) == 8


def test_a_learner_without_a_seed_does_not_tie_teachers_together():
    """What one teacher draws from NumPy's own generator depends on its labels: here, trainer many classes it sees."""
    first = np.flatnonzero(TEACHER_IDS == 0)
    one, other = CODES.copy(), CODES.copy()
    one[first], other[first] = 0, 0
    other[first[0]] = 1
    trainer, found = Networks(SklearnLearner(SGDClassifier(loss="log_loss", max_iter=5), 1), engine="here"), []
    for codes in (one, other):
        np.random.seed(0)  # noqa: NPY002
        found.append(trainer.count_votes(teacher_data(codes)))
    assert np.abs(found[0] - found[1]).sum(axis=1).max() <= 2  # one vote, from one class to another


def test_random_numbers_of_a_teacher_depend_on_its_number_and_leave_no_trace():
    """The state of a generator after a teacher depends on its labels, so that the next one must not see it."""

    def drawn(before, teacher):
        random.seed(before)
        np.random.seed(before)  # noqa: NPY002
        inside = []
        if teacher is not None:
            with contextlib.suppress(ValueError), _isolated_random_state(teacher):
                inside = [random.random(), np.random.random()]  # noqa: NPY002
                raise ValueError
        return inside, [random.random(), np.random.random()]  # noqa: NPY002

    (one, after), (other, _) = drawn(1, teacher=3), drawn(2, teacher=3)
    assert one == other
    assert all(a != b for a, b in zip(one, drawn(1, teacher=4)[0], strict=True))
    assert after == drawn(1, teacher=None)[1]


def test_a_teacher_that_fails_on_its_labels_abstains():
    """Logistic regression needs two classes: the error must not tell that a part has only one."""
    trainer = Networks(SklearnLearner(LogisticRegression(max_iter=50)), engine="here")
    alone = np.where(TEACHER_IDS == 1, 3, CODES).astype(np.int32)
    broken = Networks(_Fails(), engine="here")
    assert (trainer.count_votes(teacher_data()).sum(axis=1) == 4).all()
    assert set(trainer.count_votes(teacher_data(alone)).sum(axis=1)) in ({3}, {4})  # it abstains always, or never
    assert (broken.count_votes(teacher_data()).sum(axis=1) == 3).all()


class _Fails(SklearnLearner):
    def __init__(self):
        super().__init__(LogisticRegression(max_iter=50))

    def fit(self, features, release, start=None):
        if release.labels()[0] == CODES[TEACHER_IDS == 0][0] and len(features) == (TEACHER_IDS == 0).sum():
            raise ValueError("the label is 7")
        return super().fit(features, release, start)


@pytest.mark.parametrize("engine", ["here", "processes"])
def test_trees_on_one_class_vote_for_it(engine):
    """They give two columns for one class, at which an error would tell that a part has only one."""
    trainer = Networks(SklearnLearner(HistGradientBoostingClassifier(max_iter=2)), engine=engine, workers=1)
    counts = trainer.count_votes(teacher_data(np.where(TEACHER_IDS == 1, 3, CODES).astype(np.int32)))
    assert (counts.sum(axis=1) == 4).all()
    assert (counts[:, 3] >= 1).all()


def test_a_teacher_that_fails_when_it_is_asked_abstains_and_warns_of_nothing(tmp_path, recwarn):
    trainer = Networks(_FailsLater(LogisticRegression(max_iter=1)), engine="here", checkpoint_folder=tmp_path)
    assert (trainer.count_votes(teacher_data()).sum(axis=1) == 3).all()
    assert (trainer.count_votes(teacher_data()).sum(axis=1) == 3).all()  # those that are stored, too
    assert not recwarn.list


class _FailsLater(SklearnLearner):
    def fit(self, features, release, start=None):
        model = super().fit(features, release, start)
        if release.labels()[0] == CODES[TEACHER_IDS == 0][0] and len(features) == (TEACHER_IDS == 0).sum():
            object.__setattr__(model, "deviation", None)
        return model


def test_nothing_that_a_record_decides_goes_with_a_release_about_records():
    """A digest of all records would let who knows the others try what one of them is."""
    private, public = FEATURES.select(np.arange(1500)), FEATURES.select(np.arange(1500, 1797))
    pixels = (PIXELS / 16).astype(np.float32)[:1500]
    pixels[5] = 1 - pixels[5]
    parameters = []
    for points in (private, Embeddings(pixels)):
        vault = ldp.Vault(LABELS[:1500], SPACE, ldp.Budget(100.0, 1e-4))
        asked = vault.prepare_teachers(points, public=public, users=np.arange(1500), n_teachers=10, trainer=LINEAR)
        release = asked.release(GNMax(20.0, 297), 1e-5)
        assert release.parameters == vault.ledger.entries()[0].details["parameters"]
        parameters.append(release.parameters)
        assert vault.was_released(_last_request(points, public))
        assert "released" not in vault.ledger.entries()[0].details  # nor trainer many records have a label
        said = np.arange(1500) % 10
        vault.release(CorrectCount(said, 1.0), derived_from=[release])
        assert "predictions" not in vault.ledger.entries()[1].details["parameters"]  # nor what is said of records
        assert vault.was_released(CorrectCount(said, 1.0))
    assert parameters[0] == parameters[1]
    assert "public" in parameters[0]


def test_rows_of_the_vault_are_no_public_rows():
    private, matrix = FEATURES.select(np.arange(1500)), PIXELS[:1500].astype(np.float32)
    vault = ldp.Vault(LABELS[:1500], SPACE, ldp.Budget(100.0, 1e-4))
    for rows in (private, matrix):
        with pytest.raises(ldp.InputError, match="The public rows are those of the vault"):
            vault.prepare_teachers(rows, public=rows, n_teachers=10, trainer=LINEAR).release(GNMax(20.0, 1500), 1e-5)


def test_whether_a_row_is_among_the_records_is_not_revealed():
    """A refusal of public rows that are records would be an answer, and a free one."""
    private, stranger = FEATURES.select(np.arange(1500)), FEATURES.select(np.arange(1500, 1501))
    for row in (private.select(np.arange(1)), stranger):
        vault = ldp.Vault(LABELS[:1500], SPACE, ldp.Budget(100.0, 1e-4))
        asked = vault.prepare_teachers(private, public=row, n_teachers=10, trainer=LINEAR)
        assert asked.release(GNMax(20.0, 1), 1e-5).guarantee.unit == "record"


def test_records_are_not_protected_by_what_was_derived_from_labels_alone():
    private, public = FEATURES.select(np.arange(1500)), FEATURES.select(np.arange(1500, 1797))
    vault = ldp.Vault(LABELS[:1500], SPACE, ldp.Budget(100.0, 1e-4))
    release = vault.release(ldp.RandomizedResponse(1.0))
    votes = TeacherVotes(private, None, 10, GNMax(20.0, 297), delta=1e-5, trainer=LINEAR, public=public)
    with pytest.raises(ldp.InputError, match="cannot be derived from a release that protects labels alone"):
        vault.release(votes, derived_from=[release])
    first = vault.release(votes)
    assert first.guarantee.unit == "record"
    with pytest.raises(ldp.InputError, match="cannot be derived"):
        vault.release(votes, derived_from=[release])
    prior = np.full((1500, 10), 0.1)
    after = vault.release(RRWithPrior(1.0, prior), derived_from=[first])  # who protects records protects labels
    assert after.guarantee.unit == "label"
    assert after.guarantee.epsilon == pytest.approx(1.0 + first.guarantee.epsilon)
    again = replace(votes, aggregator=GNMax(30.0, 297))
    both = vault.release(again, derived_from=[first])
    assert both.guarantee.epsilon == pytest.approx(first.guarantee.epsilon + again.epsilon)


def _last_request(points, public):
    settings = {"users": np.arange(1500), "n_teachers": 10, "trainer": LINEAR, "public": public}
    return TeacherVotes(points, None, aggregator=GNMax(20.0, 297), delta=1e-5, **settings)


def test_votes_through_the_vault_protect_labels_or_records():
    vault = ldp.Vault(LABELS[:1500], SPACE, ldp.Budget(100.0, 1e-4))
    vault._bits = Seeded(0)
    private, public = FEATURES.select(np.arange(1500)), FEATURES.select(np.arange(1500, 1797))
    settings = {"n_teachers": 10, "trainer": LINEAR}
    release = vault.prepare_teachers(private, np.arange(50), **settings).release(GNMax(4.0, 50), 1e-5)
    assert (release.guarantee.unit, int(release.row_mask.sum())) == ("label", 50)
    about = vault.prepare_teachers(private, public=public, **settings).release(GNMax(20.0, 297), 1e-5)
    assert (about.guarantee.unit, about.n_rows) == ("record", 297)


@pytest.mark.parametrize(
    ("how", "change", "message"),
    [
        (SEMI, {}, 'choose visible_features="own"'),
        (LINEAR, {"points": PIXELS}, "learn from Features"),
        (LINEAR, {"query_points": Images(np.zeros((2, 1, 8, 8), np.uint8))}, "same kind and shape"),
        (Networks(Supervised("resnet99", TRAINING)), {}, "resnet99"),
    ],
)
def test_what_fails_for_all_labels_is_said_before_anything_is_spent(how, change, message):
    rows = {"points": FEATURES, "query_points": ASKED} | change
    with pytest.raises(ldp.InputError, match=message):
        how.check(rows["points"], rows["query_points"], SPACE, True)


def test_secret_records_take_no_part_in_the_rehearsal(monkeypatch):
    points, seen = FEATURES.select(np.arange(300)), []
    fit = Supervised.fit
    monkeypatch.setattr(
        Supervised, "fit", lambda self, rows, *more: seen.append(rows.digest()) or fit(self, rows, *more)
    )
    LINEAR.check(points, ASKED, SPACE, True)
    assert seen == [ASKED.select(np.arange(64)).digest()]


def test_settings_do_not_depend_on_the_process_or_the_engine():
    assert LINEAR.describe() == replace(LINEAR, engine="ray", workers=3).describe()
    assert "0x" not in Networks(Supervised(_backbone, TRAINING)).describe()
    assert LINEAR.describe() != SEMI.describe()


def _backbone(shape, classes):
    raise NotImplementedError


def test_tally_against_a_slow_count():
    winners = [np.array([0, 2, -1]), np.array([2, 2, -1]), np.array([1, -1, 0])]
    slow = [[sum(int(w[q] == c) for w in winners) for c in range(3)] for q in range(3)]
    assert count_winners(winners, 3).tolist() == slow
