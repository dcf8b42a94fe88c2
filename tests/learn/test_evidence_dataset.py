import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import labeldp as ldp
from labeldp.learn import EvidenceDataset, EvidenceLoss
from labeldp.mechanisms import OneHotLaplace


def test_evidence_comes_with_its_own_row_and_labels_stay_out(digits):
    rows = np.array([2, 5, 7])
    release = digits.release(ldp.RandomizedResponse(1.0), rows=rows)
    data = TensorDataset(torch.arange(1400), torch.from_numpy(digits.labels))
    paired = EvidenceDataset(data, release)
    assert len(paired) == 3
    for position, row in enumerate(rows):
        item, evidence = paired[position]
        assert int(item) == row
        assert np.array_equal(evidence.numpy(), release.log_evidence([row])[0])
    with pytest.raises(ldp.InputError, match="10 items"):
        EvidenceDataset(TensorDataset(torch.arange(10)), release)


def test_items_with_a_label_that_cannot_be_separated_are_refused(digits):
    rows = [{"x": row, "label": int(label)} for row, label in enumerate(digits.labels)]
    paired = EvidenceDataset(rows, digits.release(ldp.RandomizedResponse(1.0)))
    with pytest.raises(ldp.InputError, match="mappings, which may contain the label"):
        paired[0]


def test_the_users_own_loop_learns(digits):
    torch.manual_seed(0)
    release = digits.release(OneHotLaplace(3.0))
    inputs = digits.features.batch(torch.arange(1400))
    loader = DataLoader(EvidenceDataset(TensorDataset(inputs), release), batch_size=128, shuffle=True)
    network, loss = torch.nn.Linear(64, 10), EvidenceLoss()
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(15):
        for batch, evidence in loader:
            optimizer.zero_grad()
            loss(network(batch), evidence).backward()
            optimizer.step()
    predicted = network(digits.new.batch(torch.arange(len(digits.new)))).argmax(1).numpy()
    assert (predicted == digits.new_labels).mean() > 0.85
