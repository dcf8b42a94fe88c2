"""Networks for pairs of a person and an item: matrix factorization, and neural collaborative filtering.

Both return one score, and the head maps it to a score for each class. So there should be two classes, or ordered
classes: a score that raises the last class lowers the first. An encoding of more scores is equally accurate with clean
labels, and overfits noisy ones.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_INITIAL_DEVIATION = 0.1  # of initial factors; the gradient of a product of two factors of zero is zero


class MatrixFactorization(nn.Module):
    """The sum of the biases of person and item and, with `product`, the inner product of their factors."""

    def __init__(self, shape: Sequence[int], rank: int, product: bool = True) -> None:
        super().__init__()
        self.biases = nn.ModuleList(_embedding(size, 1, 0.0) for size in shape)
        self.factors = nn.ModuleList(_embedding(size, rank, _INITIAL_DEVIATION) for size in shape if product)

    def forward(self, pairs: Tensor) -> Tensor:
        """Return a score for each pair of ids."""
        total = sum(bias(ids) for bias, ids in zip(self.biases, pairs.unbind(1), strict=True))
        if len(self.factors):
            person, item = (factor(ids) for factor, ids in zip(self.factors, pairs.unbind(1), strict=True))
            total = total + (person * item).sum(dim=1, keepdim=True)
        return total


class NeuralCollaborativeFiltering(nn.Module):
    """The sum of matrix factorization and of layers on a second embedding of person and item (He et al. 2017)."""

    def __init__(self, shape: Sequence[int], rank: int, width: int, dropout: float, product: bool) -> None:
        super().__init__()
        self.matrix_factorization = MatrixFactorization(shape, rank, product)
        self.embeddings = nn.ModuleList(_embedding(size, rank, _INITIAL_DEVIATION) for size in shape)
        last = nn.Linear(width, 1, bias=False)
        nn.init.normal_(last.weight, 0.0, 0.01)  # the initial output of the layers is small
        self.layers = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * rank, width), nn.ReLU(), last)

    def forward(self, pairs: Tensor) -> Tensor:
        """Return a score for each pair of ids."""
        embedded = [embedding(ids) for embedding, ids in zip(self.embeddings, pairs.unbind(1), strict=True)]
        return self.matrix_factorization(pairs) + self.layers(torch.cat(embedded, dim=1))


def mf(shape: Sequence[int], rank: int = 8) -> tuple[nn.Module, int]:
    """Matrix factorization: a bias and `rank` factors for each person and each item."""
    return MatrixFactorization(shape, rank), 1


def ncf(
    shape: Sequence[int], rank: int = 8, width: int = 64, dropout: float = 0.5, product: bool = True
) -> tuple[nn.Module, int]:
    """Neural collaborative filtering: layers on embeddings, plus biases and, with `product`, factors."""
    return NeuralCollaborativeFiltering(shape, rank, width, dropout, product), 1


def order_head(head: nn.Linear) -> None:
    """Initialize a head so that a higher score raises later classes."""
    with torch.no_grad():
        head.weight.copy_(torch.linspace(-2.0, 2.0, head.out_features)[:, None])
        head.bias.zero_()


def _embedding(size: int, width: int, deviation: float) -> nn.Embedding:
    embedding = nn.Embedding(size, width)
    nn.init.normal_(embedding.weight, 0.0, deviation)
    return embedding
