"""Networks for pairs of a person and an item: matrix factorisation, and neural collaborative filtering.

Both end in one score, and the head turns it into a score for each class. So the classes should have an order, or be
two: a pair that leans towards the last class leans away from the first. A free head, with as many scores as it likes,
learns the same from clean labels and more noise from noisy ones.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_INITIAL_DEVIATION = 0.1  # deviation of the first weights: a product of two factors that begin at zero would stay there


class MatrixFactorization(nn.Module):
    """What each person and each item adds to the score, and the product of their factors."""

    def __init__(self, shape: Sequence[int], rank: int, product: bool = True) -> None:
        super().__init__()
        self.biases = nn.ModuleList(_embedding(size, 1, 0.0) for size in shape)
        self.factors = nn.ModuleList(_embedding(size, rank, _INITIAL_DEVIATION) for size in shape if product)

    def forward(self, pairs: Tensor) -> Tensor:
        """Return a score for each row of places."""
        total = sum(bias(ids) for bias, ids in zip(self.biases, pairs.unbind(1), strict=True))
        if len(self.factors):
            person, item = (factor(ids) for factor, ids in zip(self.factors, pairs.unbind(1), strict=True))
            total = total + (person * item).sum(dim=1, keepdim=True)
        return total


class NeuralCollaborativeFiltering(nn.Module):
    """Factors, and beside them layers that see a second embedding of person and item (He et al. 2017)."""

    def __init__(self, shape: Sequence[int], rank: int, width: int, dropout: float, product: bool) -> None:
        super().__init__()
        self.matrix_factorization = MatrixFactorization(shape, rank, product)
        self.embeddings = nn.ModuleList(_embedding(size, rank, _INITIAL_DEVIATION) for size in shape)
        last = nn.Linear(width, 1, bias=False)
        nn.init.normal_(last.weight, 0.0, 0.01)  # the layers begin by saying next to nothing
        self.layers = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * rank, width), nn.ReLU(), last)

    def forward(self, pairs: Tensor) -> Tensor:
        """Return a score for each row of places."""
        embedded = [embedding(ids) for embedding, ids in zip(self.embeddings, pairs.unbind(1), strict=True)]
        return self.matrix_factorization(pairs) + self.layers(torch.cat(embedded, dim=1))


def mf(shape: Sequence[int], rank: int = 8) -> tuple[nn.Module, int]:
    """Matrix factorisation: a bias and `rank` factors for each person and each item."""
    return MatrixFactorization(shape, rank), 1


def ncf(
    shape: Sequence[int], rank: int = 8, width: int = 64, dropout: float = 0.5, product: bool = True
) -> tuple[nn.Module, int]:
    """Neural collaborative filtering: layers over embeddings, beside the biases and, with `product`, the factors."""
    return NeuralCollaborativeFiltering(shape, rank, width, dropout, product), 1


def order_head(head: nn.Linear) -> None:
    """Let a higher score speak for a later class, to begin with."""
    with torch.no_grad():
        head.weight.copy_(torch.linspace(-2.0, 2.0, head.out_features)[:, None])
        head.bias.zero_()


def _embedding(size: int, width: int, deviation: float) -> nn.Embedding:
    embedding = nn.Embedding(size, width)
    nn.init.normal_(embedding.weight, 0.0, deviation)
    return embedding
