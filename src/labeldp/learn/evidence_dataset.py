"""A torch dataset that pairs the user's features with the evidence of a release."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import Dataset

from labeldp.core.errors import InputError
from labeldp.learn.base import released_row_ids
from labeldp.releases.base import Release


class EvidenceDataset(Dataset[Any]):
    """Pairs (features, log-evidence) of the rows that a release covers, for a training loop with `EvidenceLoss`.

    Args:
        data: A torch dataset of all rows. If its items are pairs (features, label), the label is left out.
        release: A release about these rows.

    Raises:
        InputError: The dataset has another number of rows than the release, or its items are mappings, whose entries
            may contain the label.

    Privacy:
        Post-processing of the release, without additional cost.
    """

    def __init__(self, data: Any, release: Release) -> None:
        if len(data) != release.n_rows:
            raise InputError(f"The dataset has {len(data)} items and the release {release.n_rows} rows.")
        self._data, self._row_ids = data, released_row_ids(release, torch.device("cpu")).tolist()
        self._evidence = torch.from_numpy(release.log_evidence(self._row_ids))

    def __len__(self) -> int:
        return len(self._row_ids)

    def __getitem__(self, position: int) -> tuple[Any, torch.Tensor]:
        item = self._data[self._row_ids[position]]
        if isinstance(item, Mapping):
            raise InputError("Items of this dataset are mappings, which may contain the label: give features alone.")
        return (item[0] if isinstance(item, tuple | list) else item), self._evidence[position]
