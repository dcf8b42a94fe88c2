"""Corruption of columns: some entries of a row are replaced by those of other rows in the batch (SCARF)."""

import torch
from torch import Tensor


def corrupt_columns(
    batch: Tensor, fraction: float, original_column: Tensor | None = None, n_original_columns: int = 0
) -> Tensor:
    """Replace this share of each row's columns, each by the same column of another row of the batch.

    `owner` (one entry for each column of the batch) numbers the original columns, `owners` of them: entries of one
    original column are replaced together, from the same row. Where the share is no whole number of columns, rows
    differ by one, at random. One original column always stays, so that a row keeps something of its own.
    """
    n_rows, device = len(batch), batch.device
    if fraction == 0 or n_rows < 2:
        return batch
    n_columns = batch.shape[1] if original_column is None else n_original_columns
    scores = torch.rand(n_rows, n_columns, device=device)
    n_replaced = (fraction * n_columns + torch.rand(n_rows, 1, device=device)).long().clamp_max(n_columns - 1)
    is_replaced = scores < scores.sort(1).values.gather(1, n_replaced)
    row_ids = torch.arange(n_rows, device=device)[:, None]
    source_rows = (row_ids + torch.randint(1, n_rows, (n_rows, n_columns), device=device)) % n_rows
    if original_column is not None:
        is_replaced, source_rows = is_replaced[:, original_column], source_rows[:, original_column]
    return torch.where(is_replaced, batch.gather(0, source_rows), batch)
