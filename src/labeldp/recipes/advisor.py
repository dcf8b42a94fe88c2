"""Which recipe to take, from public facts alone: rows, classes, epsilon, delta, kind of features, device.

There are no labels, no data and no randomness here: every figure comes from `arithmetic`, which knows the laws that the
mechanisms sample from. What data alone could tell is one assumption, `purity`: the share of rows that belong to the
largest class of their cluster, the other classes being even.

`choices` has the order in which recipes are considered. A recipe that would take more than a day on the device is
passed over while another one holds. Teacher ensembles are listed and never chosen: what they cost depends on how far
teachers agree, which is no public fact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import numpy as np

from labeldp.accounting.calibration import last_good
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta, check_epsilon
from labeldp.privacy.mechanisms.base import in_parts
from labeldp.recipes.arithmetic import (
    SURVIVES,
    Device,
    Features,
    Setting,
    agreed_right,
    agreed_share,
    count_vote_from,
    gaussian_information,
    laplace_information,
    laplace_right,
    most_clusters,
    noise_deviation,
    noisy_argmax,
    prior_response_right,
    rare_worth,
    response_information,
    response_right,
    response_vote_from,
    response_vote_right,
    widest_noise,
)
from labeldp.recipes.budget_split import (
    FEW_CLASSES,
    KINDS_BELOW,
    composed_steps,
    ratio_to_noise,
    refine_shares,
    share_of_sums,
    shares_with_crosses,
    split_epsilon,
    usual_crosses,
)
from labeldp.recipes.choices import choices, what_accuracy_means
from labeldp.recipes.polls import (
    ANSWERS_PER_CLASS,
    QUERIES_PER_ANSWER,
    agreed_by_all,
    confident_teachers,
    confident_votes,
    most_teachers,
    stable_teachers,
    stable_votes,
)

PRIOR_SHARE = 0.2  # of epsilon, for the counts that `cluster-prior` begins with
_PATIENCE = 24 * 60.0  # minutes

# Rows a second through a network, forward and backward: orders of magnitude, for two cores and for a recent card.
_RATES = {
    ("table", "cpu"): 1e5,
    ("table", "cuda"): 1e6,
    ("embeddings", "cpu"): 1e5,
    ("embeddings", "cuda"): 1e6,
    ("images", "cpu"): 50.0,
    ("images", "cuda"): 1e4,
}
# Passes over all rows that a part of a recipe takes: epochs times the work for a row, plain training being 1.
_PASSES = {
    "supervised": 100,
    "fixmatch": 600,
    "augdescent": 800,
    "coteaching": 200,
    "gan": 200,
    "encoder": 1000,
    "kmeans": 20,
    "bins": 20,
    "softmax": 50,
}


class Use(NamedTuple):
    """One use of labels: a mechanism, its privacy, and the share of rows that it touches."""

    mechanism: str
    epsilon: float
    delta: float = 0.0
    rows: float = 1.0


@dataclass(frozen=True)
class Line:
    """What one recipe would do. A figure is None where public facts do not give it.

    `right` is the share of right labels after the mechanism, `agreed` that among the labels which agree with the
    cluster vote, `kept` the share of labels that do; `nats` is the information of a label's release about a uniform
    label, `worth` the number of clean labels a class that hold as much; the cluster vote survives from epsilon
    `survives_from`. `reason` says why a recipe cannot run here, and is empty where it can.
    """

    recipe: str
    uses: tuple[Use, ...]
    minutes: float
    right: float | None = None
    agreed: float | None = None
    kept: float | None = None
    nats: float | None = None
    worth: float | None = None
    survives_from: float | None = None
    teachers: int | None = None
    reason: str = ""

    @property
    def cost(self) -> str:
        """The time in words: no more is known."""
        limits = {"seconds": 1.0, "minutes": 40.0, "an hour": 100.0, "hours": 20 * 60.0, "days": 14 * 24 * 60.0}
        return next((word for word, limit in limits.items() if self.minutes < limit), "weeks")


@dataclass(frozen=True)
class Advice:
    """A line for each recipe, the one to take, and why. `auto` has no line: it is the choice itself."""

    setting: Setting
    lines: tuple[Line, ...]
    recommended: str
    why: str
    nats: dict[str, float]  # of each mechanism that acts row by row, the most informative first
    most_clusters: int  # whose votes would survive at this epsilon, were they as pure

    def line(self, recipe: str) -> Line:
        """Return the line of one recipe."""
        return next(line for line in self.lines if line.recipe == recipe)


def _lines(at: Setting, nats: dict[str, float]) -> Iterator[Line]:
    """Say what each recipe would do, in the order of the documentation."""
    epsilon, delta, classes = at.epsilon, at.delta, at.classes
    right, response = response_right(epsilon, classes), nats["RandomizedResponse"]
    per_nat = at.rows / math.log(classes) / classes
    if at.positives is not None:
        per_nat = at.positives * at.rows * rare_worth(epsilon, at.positives) / response
    noisy_labels = (Use("RandomizedResponse", epsilon),)
    groups = "encoder" if at.features == "images" else "kmeans"

    def plain(recipe: str, part: str) -> Line:
        return Line(recipe, noisy_labels, _minutes(at, part), right, nats=response, worth=response * per_nat)

    yield plain("randres", "supervised")
    yield plain("randres-mixup", "supervised")
    # Half of the rows for each of two stages: a row is used once, so epsilon is spent once. With an honest prior
    # the second stage is right at least as often as the first; how much oftener depends on the first stage's model.
    stages = (Use("RandomizedResponse", epsilon, rows=0.5), Use("RRWithPrior", epsilon, rows=0.5))
    yield Line("lp-mst", stages, _minutes(at, "supervised", "supervised"), right)
    yield _cluster_prior(at, groups)
    best = max((name for name in nats if name.startswith("OneHot")), key=nats.__getitem__)
    gaussian = best == "OneHotGaussian"
    yield Line(
        "alibi",
        (Use(best, epsilon, delta if gaussian else 0.0),),
        _minutes(at, "supervised"),
        noisy_argmax("gaussian", noise_deviation(epsilon, delta), 1, classes)
        if gaussian
        else laplace_right(epsilon, classes),
        nats=nats[best],
        worth=nats[best] * per_nat,
    )
    vote = noisy_argmax("laplace", 2 / epsilon, at.margin, classes)
    yield Line(
        "noise-cluster",
        (Use("GroupHistogram", epsilon),),
        _minutes(at, groups),
        _voted(at, vote),
        survives_from=count_vote_from(at, 0.0),
    )
    yield Line("moments", (Use("LinearQuery", epsilon, delta),), _minutes(at, groups), survives_from=sums_from(at))
    yield _additive(at)
    yield _log_linear(at, groups)
    yield _smooth_moments(at, groups)
    yield _refine(at, groups)
    yield plain("randres-ssl", "fixmatch")
    yield plain("randres-augdescent", "augdescent")
    quality = _voted(at, response_vote_right(at, epsilon))
    yield Line(
        "randres-denoise",
        noisy_labels,
        _minutes(at, groups, "fixmatch"),
        right,
        agreed_right(epsilon, quality),
        agreed_share(epsilon, classes, quality),
        response,
        response * per_nat,
        response_vote_from(at),
    )
    yield from _teachers(at, groups)


def _cluster_prior(at: Setting, groups: str) -> Line:
    share, survives = PRIOR_SHARE * at.epsilon, count_vote_from(at, 0.0)
    vote = noisy_argmax("laplace", 2 / share, at.margin, at.classes)
    uses = (Use("GroupHistogram", share), Use("RRWithPrior", at.epsilon - share))
    right = prior_response_right(at.epsilon - share, at.classes, _voted(at, vote))
    return Line("cluster-prior", uses, _minutes(at, groups, "supervised"), right, survives_from=survives / PRIOR_SHARE)


def _additive(at: Setting) -> Line:
    """Plan counts of bins, and the crosses that are usual for a table of so many columns as are assumed."""
    if at.features != "table":
        return Line("additive", (), math.inf, reason="needs a table")
    crosses = usual_crosses(ratio_to_noise(at.rows, at.classes, at.columns, at.epsilon, at.delta))
    shares = shares_with_crosses(0, crosses, at.delta)
    try:
        parts = composed_steps(at.epsilon, at.delta, shares) if crosses else [(at.epsilon, at.delta)]
    except InputError:  # a part is below the smallest epsilon
        return Line("additive", (), math.inf, reason="needs a larger epsilon")
    mechanisms = ["LinearQuery"] + ["LargestResiduals", "LinearQuery"] * crosses
    uses = tuple(Use(name, *part) for name, part in zip(mechanisms, parts, strict=True))
    return Line("additive", uses, _minutes(at, "bins"), survives_from=sums_from(at))


def _log_linear(at: Setting, groups: str) -> Line:
    uses, right = [Use("LinearQuery", at.epsilon, at.delta)], None
    share = share_of_sums(at.epsilon, at.features == "table" and at.classes <= FEW_CLASSES)
    if share < 1:
        first, second = split_epsilon(at.epsilon, share)
        among_all = at.classes <= FEW_CLASSES
        uses = [Use("LinearQuery", first, at.delta), Use("RandomizedResponse" if among_all else "RRWithPrior", second)]
        right = response_right(second, at.classes) if among_all else None  # what the sums make of a prior is not public
    encoding = (groups,) if at.features == "images" else ()
    minutes = _minutes(at, *encoding, "softmax")
    return Line("log-linear", tuple(uses), minutes, right, survives_from=sums_from(at))


def _smooth_moments(at: Setting, groups: str) -> Line:
    rowless = "needs embeddings or images" if at.features == "table" else ""
    return Line("smooth-moments", (Use("LinearQuery", at.epsilon, at.delta),), _minutes(at, groups), reason=rowless)


def _refine(at: Setting, groups: str) -> Line:
    rows_a_class = at.rows / at.classes
    sums, answers = refine_shares(at.epsilon, rows_a_class)
    asked = [Use("LinearQuery", epsilon, in_parts(at.delta, len(sums))) for epsilon in sums]
    if at.epsilon * rows_a_class < KINDS_BELOW:
        asked = [Use("GroupHistogram", at.epsilon)]
    asked += [Use("RRInformative", answers)] if answers else []
    # A network from each of two encoders by guesses, one by beliefs, and a last one: in part with fewer epochs.
    minutes = _minutes(at, groups, "fixmatch", "supervised", "supervised", "supervised")
    elsewhere = "" if at.features == "images" else "needs images"
    return Line("refine", tuple(asked), minutes, survives_from=sums_from(at), reason=elsewhere)


def sums_from(at: Setting) -> float:
    """Return the epsilon from which noisy sums of rows by class tell classes apart as clusters do.

    A row of length 1 scores a class by the noisy sum of that class's rows: noise of deviation sigma on each column is
    noise of deviation sigma on the score, and a label moves the sums as it would move counts of classes. So Gaussian
    noise asks for what counts need, with one cluster for each class. Laplace noise answers to a row's magnitudes' sum,
    at most the root of the number of columns: its deviation is sqrt(2) * 2 * sqrt(columns) / epsilon.
    """
    by_class = replace(at, clusters=at.classes)
    if at.delta:
        return count_vote_from(by_class, at.delta)
    widest = widest_noise("gaussian", by_class)
    return 2 * math.sqrt(2 * at.columns) / widest if widest else math.inf


def _teachers(at: Setting, groups: str) -> Iterator[Line]:
    """Plan teacher ensembles by the accounting that holds whatever the teachers say: as many as the recipes take.

    For a vote to survive its noise, so many teachers must agree as a cluster's rows would; `purity` stands for the
    share of teachers that are right. Stable votes ask for a distance: half of the winner's lead.
    """
    parts = {
        "pate-fm": (groups, "fixmatch"),  # teachers are heads on the rows that clusters look at: they cost nothing
        "pate-fm-ssl": (groups, "fixmatch", "fixmatch"),
        "pate-fm-augdescent": (groups, "fixmatch", "augdescent"),
        "pate-fm-denoise": (groups, "fixmatch", "fixmatch"),
        "pate": (groups, "gan"),
        "pate-coteaching": (groups, "gan", "gan"),
        "pate-plus": (groups, "gan", "gan"),
        "pate-plus-plus": (groups, "gan", "gan", "gan", "gan"),
        "stable-vote": (groups, "fixmatch"),
    }
    if not at.delta:
        for recipe in parts:
            yield Line(recipe, (), math.inf, reason="needs delta above 0")
        return
    answers = min(ANSWERS_PER_CLASS * at.classes, at.rows)
    queries, most = min(QUERIES_PER_ANSWER * answers, at.rows), most_teachers(at.rows, at.classes)
    confident = confident_votes(at.epsilon, at.delta, queries, answers)
    stable = stable_votes(at.epsilon, at.delta, queries)
    few = last_good(lambda few: noisy_argmax("gaussian", 1000.0, 1000 / few, at.classes) >= SURVIVES, 1e-3, 1e3)
    lead = at.purity - at.spread
    teachers = {  # that are taken, and that are needed
        "ConfidentGNMax": (confident_teachers(confident, most), confident.sigma2 / few / lead),
        "StableVote": (stable_teachers(stable, most), agreed_by_all(stable) / lead),
    }
    for recipe, work in parts.items():
        votes = "StableVote" if recipe == "stable-vote" else "ConfidentGNMax"
        taken, needed = teachers[votes]
        answer = Use(votes, at.epsilon, at.delta, min(1.0, answers / at.rows))
        starved = f"needs {math.ceil(needed):,} teachers by worst-case accounting, too many for these rows"
        reason = starved if most < needed else ""
        yield Line(recipe, (answer,), _minutes(at, *work), teachers=taken, reason=reason)


def _voted(at: Setting, vote: float) -> float:
    """Return the share of rows that carry their cluster's label, where it is the right one with probability `vote`."""
    return vote * at.purity + (1 - vote) * at.spread


def _minutes(at: Setting, *parts: str) -> float:
    return sum(_PASSES[part] for part in parts) * at.rows / _RATES[at.features, at.device] / 60


def advise(
    rows: int,
    classes: int,
    epsilon: float,
    delta: float = 0.0,
    features: Features = "table",
    device: Device = "cpu",
    clusters: int | None = None,
    purity: float | None = None,
    positives: float | None = None,
) -> Advice:
    """Say what each recipe would do and which to take.

    `clusters` is the number of classes by default, as in the papers. `purity` is the share of rows in the largest class
    of their cluster, by default half way between chance and perfection. `positives` is the share of the rarer of two
    classes, if you know it without a look at labels.
    """
    for name, value, least in (
        ("rows", rows, 1),
        ("classes", classes, 2),
        ("clusters", 1 if clusters is None else clusters, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= 10**12:
            raise InputError(f"{name} must be a whole number from {least}, not {value!r}.")
    if features not in get_args(Features):
        raise InputError(f"features must be one of {', '.join(get_args(Features))}.")
    if device not in get_args(Device):
        raise InputError("device must be cpu or cuda.")
    if purity is not None and not (isinstance(purity, int | float) and 1 / classes < purity <= 1):
        raise InputError(
            f"purity must be above {1 / classes:.3g}, which is chance with {classes} classes, and at most 1."
        )
    if positives is not None and not (classes == 2 and isinstance(positives, int | float) and 0 < positives <= 0.5):
        raise InputError("positives is the share of the rarer of two classes: above 0 and at most 0.5, with 2 classes.")
    at = Setting(
        int(rows),
        int(classes),
        check_epsilon(epsilon),
        check_delta(delta),
        features,
        device,
        int(clusters or classes),
        (1 + 1 / classes) / 2 if purity is None else float(purity),
        None if positives is None else float(positives),
    )
    nats = {
        "RandomizedResponse": response_information(at.epsilon, at.classes),
        "OneHotLaplace": laplace_information(at.epsilon, at.classes),
    }
    if at.delta:
        nats["OneHotGaussian"] = gaussian_information(noise_deviation(at.epsilon, at.delta), at.classes)
    lines = {line.recipe: line for line in _lines(at, nats)}
    holding = list(choices(at, lines))
    recommended, why = next((c for c in holding if lines[c[0]].minutes <= _PATIENCE), holding[0])
    if lines[recommended].minutes > _PATIENCE:
        why += f" It takes {lines[recommended].cost} on this device."
        if features == "images":
            why += (
                " Features of a public encoder, computed once, are quick to learn from: plan with features embeddings."
            )
    why += "" if at.positives is None else what_accuracy_means(at)
    ranked = dict(sorted(nats.items(), key=lambda item: -item[1]))
    return Advice(at, tuple(lines.values()), recommended, why, ranked, most_clusters(at))
