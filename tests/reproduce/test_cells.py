from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import labeldp as ldp
from labeldp.data import Images
from labeldp.mechanisms import GNMax, LinearQuery, OneHotLaplace
from labeldp.privacy.teachers.teacher_votes import TeacherVotes
from labeldp.reproduce.cells import CellConfig, CellVault, ExperimentCell, ImageDataset, run_cell
from labeldp.reproduce.tables import ExperimentRow

LABELS, SPACE = np.arange(60) % 3, ldp.LabelSpace([0, 1, 2])
ROWS = np.eye(60, 5, dtype=np.float32) + 0.1


def cell(common, budget=1.0, labels=LABELS):
    vault = CellVault(labels, SPACE, ldp.Budget(budget, 1e-5))
    vault.shared_folder = common
    return vault


@pytest.mark.parametrize("mechanism", [ldp.RandomizedResponse(0.5), LinearQuery(ROWS, 0.5, 1e-6)])
def test_cells_of_a_row_share_a_release_and_each_is_charged_for_it(tmp_path, mechanism):
    first, second = cell(tmp_path), cell(tmp_path, 3.0)
    ours, theirs = first.release(mechanism), second.release(mechanism)
    assert np.array_equal(ours.log_evidence(), theirs.log_evidence())
    assert ours.entry != theirs.entry
    assert [use.entry for use in theirs.lineage] == [theirs.entry]
    assert first.guarantee().epsilon == second.guarantee().epsilon == 0.5
    assert np.array_equal(second.release(mechanism).log_evidence(), ours.log_evidence())  # stored by now
    assert second.guarantee().epsilon == 0.5


def test_releases_of_some_rows_are_shared_too(tmp_path):
    some = np.arange(60) < 30
    ours, theirs = (cell(tmp_path).release(ldp.RandomizedResponse(0.5), row_selection=some) for _ in range(2))
    assert np.array_equal(ours.log_evidence(), theirs.log_evidence())
    assert np.array_equal(theirs.row_mask, some)


def test_releases_of_other_labels_are_not_shared(tmp_path):
    """At this epsilon, every label is released unchanged."""
    mechanism = ldp.RandomizedResponse(50.0)
    cell(tmp_path, 50.0).release(mechanism)
    for labels in (np.full(60, 2), np.full(90, 1)):
        assert np.array_equal(cell(tmp_path, 50.0, labels).release(mechanism).labels(), labels)


def test_votes_on_rows_that_teachers_choose_are_not_shared(tmp_path):
    votes = TeacherVotes(ROWS, np.arange(0, 60, 6), 2, GNMax(1.0, 10), delta=1e-6)
    for _ in range(2):
        assert cell(tmp_path, 500.0).release(votes).row_mask.sum() == 10


def test_two_processes_share_a_release(tmp_path):
    """Threads stand for processes: the lock is a file."""
    mechanism = OneHotLaplace(0.5)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(cell(tmp_path).release, mechanism) for _ in range(2)]
    ours, theirs = (job.result() for job in jobs)
    assert np.array_equal(ours.log_evidence(), theirs.log_evidence())


def test_a_release_above_the_budget_is_refused(tmp_path):
    mechanism = ldp.RandomizedResponse(0.5)
    cell(tmp_path).release(mechanism)
    poor = cell(tmp_path, 0.4)
    with pytest.raises(ldp.BudgetExceeded):
        poor.release(mechanism)
    assert poor.guarantee().epsilon == 0


def test_other_rows_and_other_requests_have_noise_of_their_own(tmp_path):
    mechanism = OneHotLaplace(0.5)
    ours = cell(tmp_path / "a").release(mechanism).log_evidence()
    assert not np.array_equal(ours, cell(tmp_path / "b").release(mechanism).log_evidence())
    vault = cell(tmp_path / "a", 5.0)
    assert not np.array_equal(ours, vault.release(OneHotLaplace(0.6)).log_evidence())
    assert np.array_equal(ours, vault.release(mechanism).log_evidence())


@pytest.mark.parametrize("recipe", ["randres-mixup", "lp-mst", "alibi", "noise-cluster"])
def test_networks_train_for_fewer_epochs_where_few_labels_are_wrong(tmp_path, recipe):
    often, rarely = (CellConfig(tmp_path).training(recipe, error_rate, 0, tmp_path) for error_rate in (0.14, 0.022))
    assert rarely.epochs < often.epochs
    assert replace(rarely, epochs=often.epochs) == often


DATA = ImageDataset(
    Images(np.random.default_rng(0).integers(0, 256, (120, 3, 8, 8)).astype(np.uint8)),
    np.arange(120) % 3,
    Images(np.zeros((3, 3, 8, 8), np.uint8)),
    np.arange(3),
)
SEMI = (60, 256, 0.03, 0.999)  # FixMatch's epochs, rows of a batch, rate, and average of weights
PAIR = (100, 128, 0.02, None)
PLAIN = (60, 256, 0.1, None)
TRAINED = {
    "randres": [("Supervised", PLAIN)],
    "randres-ssl": [("FixMatch", SEMI)],
    "randres-denoise": [("FixMatch", SEMI)],
    "randres-augdescent": [("AugDescent", PAIR)],
    "pate-fm": [("FixMatch", SEMI)],
    "pate-fm-ssl": [("FixMatch", SEMI), ("FixMatch", SEMI)],
    "pate-fm-denoise": [("FixMatch", SEMI), ("FixMatch", SEMI)],
    "pate-fm-augdescent": [("FixMatch", SEMI), ("AugDescent", PAIR)],
    "pate-plus": [("SemiGAN", (60, 100, 0.001, 0.999))],
}


@pytest.mark.parametrize("recipe", TRAINED)
def test_every_learner_of_a_recipe_has_its_own_schedule(tmp_path, monkeypatch, recipe):
    """The student that labels all rows trains by its schedule, and what learns these labels by its own."""
    seen = []

    def train(network, rows, loss, training, *, identity, **hooks):
        seen.append(
            (identity.split()[0], (training.epochs, training.batch_size, training.learning_rate, training.ema_decay))
        )
        return network.eval()

    monkeypatch.setattr("labeldp.learn.base.train_network", train)
    row = ExperimentRow("a method", recipe, {20.0: None}, model="cnn")
    result = run_cell(
        ExperimentCell(row, 20.0, 0, "a table"), DATA, 1e-4, CellConfig(tmp_path, "cpu"), lambda message: None
    )
    assert seen == TRAINED[recipe]
    assert result["epochs"] == TRAINED[recipe][-1][1][0]


@pytest.mark.parametrize("recipe", ["refine", "randres-ssl", "pate-fm", "randres-augdescent"])
def test_schedules_of_semi_supervised_learners_do_not_depend_on_the_error_rate(tmp_path, recipe):
    assert CellConfig(tmp_path).training(recipe, 0.0, 0, tmp_path) == CellConfig(tmp_path).training(
        recipe, 0.9, 0, tmp_path
    )
