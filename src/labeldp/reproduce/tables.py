"""The printed results of papers and the recipe of each row. Accuracies are in percent.

Ghazi et al. (2021): tables 1 and 2, figures 1a and 1b (without printed numbers, so there is no comparison). Malek et
al. (2021): tables 1 and 2. Tang et al. (2022): tables 2, 3, 4, 6 and 9, and a result of section 6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from labeldp.core.errors import InputError

# None where the paper prints no number.
AccuracyByEpsilon = Mapping[float, float | None]


@dataclass(frozen=True)
class ExperimentRow:
    """One method of a table: its name in the paper, the recipe, and the paper's results.

    For this many images with an encoder, `auto` selects `refine`. Rows name `refine`, so that trials with few images
    use it, too.

    Args:
        method: The name of the row in the paper.
        recipe: The recipe by name.
        paper: The accuracies of the paper by epsilon.
        options: The options of the recipe.
        model: The network by name.
        encoder: Whether the recipe uses a label-free encoder.
        measures: "test" for the accuracy of the model on test images; "labels" for that of the released labels of the
            training images (of the student, if teachers vote).
        audited: The intervals of epsilon that the paper reports. A row with such intervals is trained with canaries and
            audited.
    """

    method: str
    recipe: str
    paper: AccuracyByEpsilon
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str = "resnet18"
    encoder: bool = False
    measures: Literal["test", "labels"] = "test"
    audited: Mapping[float, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table of a paper."""

    name: str
    title: str
    data: Literal["cifar10", "cifar100"]
    rows: tuple[ExperimentRow, ...]
    delta: float = 1e-5


# The papers mention no mixup. Weak augmentation had an accuracy 2 points lower at epsilon 1.
_ALIBI = {"augment": "strong", "mixup": 0.0}


def _make_row(
    method: str, recipe: str, epsilons: tuple[float, ...], *figures: float | None, **options: Any
) -> ExperimentRow:
    return ExperimentRow(method, recipe, dict(zip(epsilons, figures or [None] * len(epsilons), strict=True)), **options)


def _framework_rows(epsilons: tuple[float, ...], *figures: tuple[float, ...]) -> tuple[ExperimentRow, ...]:
    """Return the eight rows of Tang et al. for a data set, and `auto` with the best result of each column."""
    clusters, denoise, ssl, descent, pate, pate_denoise, pate_ssl, pate_descent = figures
    best = tuple(max(column) for column in zip(*figures, strict=True))
    # The paper uses SCAN clusters, which have a lower purity here.
    cluster_options = {"options": {"method": "balanced"}, "encoder": True}
    encoder_options = {"encoder": True}
    return (
        _make_row("NoiseCluster (SCAN)", "noise-cluster", epsilons, *clusters, **cluster_options),
        _make_row("RandRes, DenoiseSSL", "randres-denoise", epsilons, *denoise, **cluster_options),
        _make_row("RandRes, SSL", "randres-ssl", epsilons, *ssl),
        _make_row("RandRes, Aug-Descent", "randres-augdescent", epsilons, *descent),
        _make_row("PATE-FM", "pate-fm", epsilons, *pate, **encoder_options),
        _make_row("PATE-FM, DenoiseSSL", "pate-fm-denoise", epsilons, *pate_denoise, **encoder_options),
        _make_row("PATE-FM, SSL", "pate-fm-ssl", epsilons, *pate_ssl, **encoder_options),
        _make_row("PATE-FM, Aug-Descent", "pate-fm-augdescent", epsilons, *pate_descent, **encoder_options),
        _make_row("best of the table / auto", "refine", epsilons, *best, **encoder_options),
    )


def _architecture_rows() -> tuple[ExperimentRow, ...]:
    epsilons = (2.0, 3.0, 4.0)
    figures = {
        "resnet18": ((95.2, 96.2, 96.5), (81.9, 87.2, 89.6), (83.2, 89.5, 92.0)),
        "vgg16": ((94.5, 95.0, 95.4), (81.6, 86.0, 88.3), (83.5, 87.0, 91.8)),
        "wrn28-4": ((93.1, 94.1, 94.7), (73.0, 82.8, 86.9), (75.7, 88.7, 92.7)),
    }
    names = (("Aug-Descent", "randres-augdescent"), ("ALIBI", "alibi"), ("LP-1ST", "randres-mixup"))
    return tuple(
        _make_row(
            f"{method}, {model}", recipe, epsilons, *line, model=model, options=_ALIBI if recipe == "alibi" else {}
        )
        for model, lines in figures.items()
        for (method, recipe), line in zip(names, lines, strict=True)
    )


_CIFAR10_EPSILONS, _CIFAR100_EPSILONS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0), (3.0, 4.0, 5.0, 6.0, 8.0)
_LOW_EPSILONS, _COMPARISON_EPSILONS = (0.5, 1.0, 2.0, 4.0), (0.5, 1.0, 2.0, 3.0, 4.0)

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "ghazi-table-1",
            "LP-1ST and LP-2ST on CIFAR-10",
            "cifar10",
            (
                _make_row("LP-1ST", "randres-mixup", _CIFAR10_EPSILONS, 59.96, 82.38, 89.89, 92.58, 93.58, 94.70),
                _make_row(
                    "LP-2ST",
                    "lp-mst",
                    _CIFAR10_EPSILONS,
                    63.67,
                    86.05,
                    92.19,
                    93.37,
                    94.26,
                    94.52,
                    options={"stages": 2},
                ),
            ),
            delta=0.0,
        ),
        Experiment(
            "ghazi-table-2",
            "LP-1ST and LP-2ST on CIFAR-100",
            "cifar100",
            (
                _make_row("LP-1ST", "randres-mixup", _CIFAR100_EPSILONS, 20.96, 46.28, 61.38, 68.34, 73.59),
                _make_row(
                    "LP-2ST", "lp-mst", _CIFAR100_EPSILONS, 28.74, 50.15, 63.51, 70.58, 74.14, options={"stages": 2}
                ),
            ),
            delta=0.0,
        ),
        Experiment(
            "ghazi-figure-1a",
            "Stages of LP-MST on CIFAR-10",
            "cifar10",
            tuple(
                _make_row(f"{n} stage{'s' if n > 1 else ''}", "lp-mst", (1.0, 2.0, 4.0), options={"stages": n})
                for n in (1, 2, 3, 4)
            ),
            delta=0.0,
        ),
        Experiment(
            "ghazi-figure-1b",
            "RRWithPrior with priors from clusters of self-supervised embeddings, CIFAR-10",
            "cifar10",
            (_make_row("cluster priors", "cluster-prior", (0.1, 0.5, 1.0, 2.0, 4.0), encoder=True),),
            delta=0.0,
        ),
        Experiment(
            "antipodes-table-1",
            "PATE-FM and ALIBI on CIFAR-10, by accuracy",
            "cifar10",
            (
                _make_row(
                    *("PATE-FM", "pate-fm", (0.18, 0.29, 1.6), 73.4, 86.9, 93.7),
                    encoder=True,
                    audited={0.18: (0.0, 0.4), 0.29: (0.0, 0.6), 1.6: (0.0, 0.9)},
                ),
                _make_row(
                    *("ALIBI", "alibi", (1.0, 2.1, 8.0), 71.0, 84.2, 94.0),
                    options=_ALIBI,
                    audited={1.0: (0.0, 2.2), 2.1: (1.0, 2.2), 8.0: (2.9, 4.0)},
                ),
            ),
        ),
        Experiment(
            "antipodes-table-2",
            "ALIBI and LP-2ST on CIFAR-100",
            "cifar100",
            (
                _make_row("ALIBI", "alibi", _CIFAR100_EPSILONS, 55.0, 65.0, 69.0, 71.5, 74.4, options=_ALIBI),
                _make_row("LP-2ST", "lp-mst", _CIFAR100_EPSILONS, 28.7, 50.2, 63.5, 70.6, 74.1, options={"stages": 2}),
            ),
            delta=0.0,
        ),
        Experiment(
            "tang-table-2",
            "Private labels of the training images of CIFAR-10",
            "cifar10",
            (
                _make_row("RandRes", "randres", _LOW_EPSILONS, 15.5, 23.2, 45.2, 85.9, measures="labels"),
                _make_row("PATE-FM", "pate-fm", _LOW_EPSILONS, 93.2, 93.7, 94.9, 94.9, encoder=True, measures="labels"),
            ),
        ),
        Experiment(
            "tang-table-3",
            "The framework on CIFAR-10",
            "cifar10",
            _framework_rows(
                _LOW_EPSILONS,
                (88.3, 88.3, 88.3, 88.3),
                (90.7, 90.8, 91.2, 93.6),
                (36.2, 61.9, 84.6, 92.7),
                (37.7, 94.1, 95.2, 96.5),
                (94.1, 94.5, 95.1, 95.1),
                (93.3, 93.6, 93.7, 93.7),
                (93.4, 94.2, 94.5, 94.5),
                (94.6, 95.0, 95.1, 95.1),
            ),
        ),
        Experiment(
            "tang-table-4",
            "The framework on CIFAR-100",
            "cifar100",
            _framework_rows(
                (1.0, 2.0, 4.0, 6.0),
                (34.5, 34.5, 34.5, 34.5),
                (8.3, 25.5, 43.3, 50.2),
                (1.8, 3.5, 51.4, 70.5),
                (2.6, 10.8, 75.3, 79.5),
                (31.9, 55.1, 59.0, 68.1),
                (30.7, 34.7, 40.3, 42.8),
                (41.2, 47.4, 54.0, 58.1),
                (46.0, 55.0, 60.1, 65.3),
            ),
        ),
        Experiment(
            "tang-table-6",
            "Comparison on CIFAR-10",
            "cifar10",
            (
                _make_row(
                    "their best / auto", "refine", _COMPARISON_EPSILONS, 94.6, 95.0, 95.2, 96.2, 96.5, encoder=True
                ),
                _make_row("ALIBI", "alibi", _COMPARISON_EPSILONS, 33.8, 70.0, 81.9, 87.2, 89.6, options=_ALIBI),
                _make_row("LP-1ST", "randres-mixup", _COMPARISON_EPSILONS, 38.4, 61.4, 83.2, 89.5, 92.0),
            ),
        ),
        Experiment(
            "tang-section-6",
            "The smallest epsilons on CIFAR-10; the text of the paper has one result",
            "cifar10",
            (
                _make_row(
                    *("NoiseCluster (SCAN)", "noise-cluster", (0.003,), 88.3),
                    options={"method": "balanced"},
                    encoder=True,
                ),
                _make_row("NoiseCluster / auto", "refine", (0.003, 0.01, 0.1), 88.3, None, None, encoder=True),
            ),
        ),
        Experiment("tang-table-9", "Architectures on CIFAR-10", "cifar10", _architecture_rows()),
    )
}


def get_experiment(name: str) -> Experiment:
    """Return a table by name; raise an error if there is none."""
    if name not in EXPERIMENTS:
        raise InputError(f"There is no table {name!r}: choose one of {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
