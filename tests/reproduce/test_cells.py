import numpy as np
import pytest

import labeldp as ldp
from labeldp.reproduce.cells import CellVault

LABELS, SPACE = np.arange(60) % 3, ldp.LabelSpace([0, 1, 2])
ROWS = np.eye(60, 5, dtype=np.float32) + 0.1


def cell(common, budget=1.0):
    vault = CellVault(LABELS, SPACE, ldp.Budget(budget, 1e-5))
    vault.common = common
    return vault


@pytest.mark.parametrize("mechanism", [ldp.RandomizedResponse(0.5), ldp.LinearQuery(ROWS, 0.5, 1e-6)])
def test_cells_of_a_row_hear_the_same_and_each_pays_for_it(tmp_path, mechanism):
    first, second = cell(tmp_path), cell(tmp_path, 3.0)
    ours, theirs = first.release(mechanism), second.release(mechanism)
    assert np.array_equal(ours.log_evidence(), theirs.log_evidence())
    assert ours.entry != theirs.entry
    assert [use.entry for use in theirs.lineage] == [theirs.entry]
    assert first.guarantee().epsilon == second.guarantee().epsilon == 0.5
    assert np.array_equal(second.release(mechanism).log_evidence(), ours.log_evidence())  # stored by now
    assert second.guarantee().epsilon == 0.5


def test_what_cannot_be_paid_for_is_not_heard(tmp_path):
    mechanism = ldp.RandomizedResponse(0.5)
    cell(tmp_path).release(mechanism)
    poor = cell(tmp_path, 0.4)
    with pytest.raises(ldp.BudgetExceeded):
        poor.release(mechanism)
    assert poor.guarantee().epsilon == 0


def test_other_rows_and_other_requests_hear_their_own_noise(tmp_path):
    mechanism = ldp.OneHotLaplace(0.5)
    ours = cell(tmp_path / "a").release(mechanism).log_evidence()
    assert not np.array_equal(ours, cell(tmp_path / "b").release(mechanism).log_evidence())
    vault = cell(tmp_path / "a", 5.0)
    assert not np.array_equal(ours, vault.release(ldp.OneHotLaplace(0.6)).log_evidence())
    assert np.array_equal(ours, vault.release(mechanism).log_evidence())
