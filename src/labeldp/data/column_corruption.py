"""Corruption of columns: some entries of a row are replaced by those of other rows in the batch (SCARF)."""

import torch
from torch import Tensor


def corrupt_columns(
    batch: Tensor, fraction: float, original_column: Tensor | None = None, n_original_columns: int = 0
) -> Tensor:
    """Replace a fraction of the columns of each row, each by the same column of another row of the batch.

    If the fraction is not a whole number of columns, the numbers of replaced columns differ by one, at random. At least
    one original column of each row is unchanged.

    Args:
        batch: The rows.
        fraction: The fraction of columns to replace.
        original_column: The number of the original column of each column of the batch. All columns of one original
            column are replaced together, from the same row. None if each column is an original one.
        n_original_columns: The number of original columns, if `original_column` is given.
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
