import numpy as np
import pytest

import labeldp as ldp
from labeldp import LabelPrivateClassifier, LabelPrivateRegressor
from labeldp.learn.ridge import Ridge
from labeldp.learn.short_training import is_shortened
from labeldp.privacy.vault import Ledger
from labeldp.privacy.vault.failure_notes import PAID_NOTE, message_with_notes, note_charge_on_failure


def rows_and_labels(seed):
    """Other rows for each test: rows that are fitted again are a warning."""
    numbers = np.random.default_rng(seed).normal(size=(400, 3))
    return numbers, np.where(numbers[:, 0] > 0, "yes", "no"), np.clip(numbers[:, 0], -5, 5)


@pytest.fixture
def failing_once(monkeypatch):
    """Let the linear model fail at its first fit that is no rehearsal."""
    fit, failed = Ridge.fit, []

    def tried(self, *given):
        if not is_shortened() and not failed:
            failed.append(True)
            raise ZeroDivisionError("division by a label")
        return fit(self, *given)

    monkeypatch.setattr(Ridge, "fit", tried)


def given(place, ledger, seed):
    """Return an estimator, its rows and its labels."""
    rows, classes, numbers = rows_and_labels([seed, place])
    if place:
        return LabelPrivateRegressor(1.0, (-5, 5, 0.5), "sums", ledger=ledger), rows, numbers
    return LabelPrivateClassifier(1.0, ["no", "yes"], "moments", ledger=ledger), rows, classes


@pytest.mark.filterwarnings("ignore::labeldp.ReusedReleaseWarning")
@pytest.mark.parametrize("place", [0, 1])
def test_a_fit_that_fails_after_a_release_says_so_and_the_next_one_is_free(failing_once, place, tmp_path):
    estimator, *data = given(place, tmp_path / "ledger", 1)
    with pytest.raises(ZeroDivisionError) as caught:
        estimator.fit(*data)
    assert caught.value.__notes__ == [PAID_NOTE]
    (release,) = Ledger(tmp_path / "ledger").entries()
    estimator.fit(*data)
    assert estimator.guarantee_.epsilon == 1.0
    entries = Ledger(tmp_path / "ledger").entries()
    assert [entry.id for entry in entries if entry.request == release.request] == [release.id]


@pytest.mark.parametrize("place", [0, 1])
def test_without_a_ledger_file_there_is_nothing_to_use_again(failing_once, place):
    estimator, *data = given(place, None, 2)
    with pytest.raises(ZeroDivisionError) as caught:
        estimator.fit(*data)
    assert not hasattr(caught.value, "__notes__")


def test_the_note_is_added_once_and_is_part_of_the_sentence(tmp_path):
    vault = ldp.Vault(
        rows_and_labels(3)[1],
        ldp.LabelSpace(["no", "yes"]),
        ldp.Budget(1.0),
        ledger=tmp_path / "ledger",
        identity=ldp.Identity("people", "label", 400),
    )

    def charge_and_fail():
        with note_charge_on_failure(vault), note_charge_on_failure(vault):
            vault.release(ldp.RandomizedResponse(1.0))
            raise KeyError("what")

    with pytest.raises(KeyError) as caught:
        charge_and_fail()
    assert message_with_notes(caught.value) == f"'what' {PAID_NOTE}"
    with pytest.raises(KeyError) as caught:
        charge_and_fail()  # which is charged nothing
    assert message_with_notes(caught.value) == "'what'"
