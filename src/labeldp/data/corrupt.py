"""Corruption of columns: some entries of a row are replaced by those of other rows in the batch (SCARF)."""

import torch
from torch import Tensor


def corrupt(batch: Tensor, share: float, owner: Tensor | None = None, owners: int = 0) -> Tensor:
    """Replace this share of each row's columns, each by the same column of another row of the batch.

    `owner` (one entry for each column of the batch) numbers the original columns, `owners` of them: entries of one
    original column are replaced together, from the same row. Where the share is no whole number of columns, rows
    differ by one, at random. One original column always stays, so that a row keeps something of its own.
    """
    rows, device = len(batch), batch.device
    if share == 0 or rows < 2:
        return batch
    columns = batch.shape[1] if owner is None else owners
    scores = torch.rand(rows, columns, device=device)
    count = (share * columns + torch.rand(rows, 1, device=device)).long().clamp_max(columns - 1)
    replaced = scores < scores.sort(1).values.gather(1, count)
    own = torch.arange(rows, device=device)[:, None]
    source = (own + torch.randint(1, rows, (rows, columns), device=device)) % rows
    if owner is not None:
        replaced, source = replaced[:, owner], source[:, owner]
    return torch.where(replaced, batch.gather(0, source), batch)
