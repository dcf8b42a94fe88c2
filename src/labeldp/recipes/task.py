"""The public side of a private training: features, budget and models of a recipe, and the learners for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter

from labeldp.accounting.costs import RowMask as RowMask
from labeldp.core.atomic_files import cached_array
from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.core.lazy import has_torch, require_torch
from labeldp.data.base import Features, choose_device
from labeldp.data.embeddings import Embeddings
from labeldp.data.row_normalizer import CONSTANT_WEIGHT, RowNormalizer
from labeldp.evaluate.criteria import Criterion
from labeldp.learn.boosting import Boosting, require_lightgbm
from labeldp.learn.predictor import Predictor
from labeldp.learn.sklearn_learner import SklearnLearner, StandardizedFeatures
from labeldp.learn.training import Training
from labeldp.recipes.models import find_model
from labeldp.recipes.progress import Progress
from labeldp.representation.balanced import balanced_kmeans
from labeldp.representation.clusters import kmeans
from labeldp.representation.smooth import smooth_rows

if TYPE_CHECKING:
    from labeldp.learn.base import Backbone, Learner
    from labeldp.learn.model import Model

# Learners of networks by their names in `labeldp.learn`. Recipes use names, so that they load without torch.
LearnerName = Literal["AugDescent", "Bayes", "FixMatch", "SemiGAN", "SoftMatch", "Supervised"]
# Principal directions of smoothed rows in which balanced clusters are found.
_CLUSTER_COLUMNS = 32


@dataclass(frozen=True)
class Task:
    """The public side of a private training: features, and the budget of the labels of some rows.

    Attributes:
        features: The features of all rows.
        space: The declared labels.
        row_mask: The rows whose labels are released.
        epsilon: The epsilon of each privacy unit. Where users own the rows, all labels of a user share it.
        delta: The delta of each privacy unit.
        model: A backbone by name, a function that builds a network, `Boosting`, or a scikit-learn estimator.
        training: The schedule of every network whose learner has no entry in `schedules`.
        encoder: A model that was trained without labels. Clusters and linear queries use its embeddings of images, and
            networks start from it.
        seed: The seed of splits, clusters and trainings. It is public, and independent of the noise.
        users: The owner of each row; None where each label is a privacy unit.
        public: Features of other people, on which teachers vote. Their student then sees nothing of `features`.
        choose_by: The criterion of the private selection among several models (see `evaluate.choose`).
        folder: The folder in which slow intermediate results are cached for other runs on the same rows.
        schedules: Schedules of learners that need one of their own.
        reused_seconds: The training times of the networks that were loaded from the cache, in seconds.
        progress: The planned and completed steps of the recipe.
        notes: Notes for the user about the training.
        sampled_from: In a rehearsal on some rows, the task that is rehearsed.
    """

    features: Features
    space: LabelSpace
    row_mask: RowMask
    epsilon: float
    delta: float = 0.0
    model: Backbone | Any = "auto"
    training: Training | None = None
    encoder: Model | None = None
    seed: int = 0
    users: NDArray[Any] | None = field(default=None, repr=False)
    public: Features | None = field(default=None, repr=False)
    choose_by: Criterion = "auto"
    folder: Path | None = None
    schedules: Mapping[type[Learner], Training] = field(default_factory=dict)
    reused_seconds: list[float] = field(default_factory=list, repr=False)
    progress: Progress = field(default_factory=Progress, repr=False, compare=False)
    notes: list[str] = field(default_factory=list, repr=False)
    sampled_from: Task | None = field(default=None, repr=False)

    def learner(self, kind: LearnerName | type[Learner], **options: Any) -> Any:
        """Return a learner for this task's model and training.

        Args:
            kind: The learner of networks. Boosted trees or a scikit-learn model replace `Supervised` and `Bayes`.
            options: The learner's own settings, which only networks use.

        Returns:
            A learner of networks; `Boosting` for boosted trees; `SklearnLearner` for a scikit-learn model. The last two
            need no torch.

        Raises:
            InputError: The learner does not suit the model or the features.
            MissingExtra: A network is to be trained, and torch is not installed.
        """
        model = find_model(self.model, self.seed, len(self.features.shape))
        name = kind if isinstance(kind, str) else kind.__name__
        if self.features.kind == "pairs" and name not in ("Supervised", "Bayes", "FixMatch"):
            raise InputError(f"{name} augments or mixes rows, which ids do not allow: take lp-mst or randres.")
        if hasattr(model, "fit"):
            if isinstance(model, type):
                raise InputError(f"The model is the class {model.__name__}: give an instance, {model.__name__}().")
            model_name = "boosted trees" if isinstance(model, Boosting) else type(model).__name__
            if name not in ("Supervised", "Bayes"):
                raise InputError(f"{name} trains networks: choose a backbone, not {model_name}.", parameter="model")
            if isinstance(model, Boosting):
                if self.encoder is not None:
                    raise InputError("Boosted trees cannot begin from an encoder: give its embeddings as features.")
                require_lightgbm()
                return model
            if not has_fit_parameter(model, "sample_weight"):
                raise InputError(f"{model_name} takes no sample weights: choose logistic, trees or another that does.")
            if not hasattr(model, "predict_proba"):
                raise InputError(f"{model_name} gives no probabilities: choose logistic, trees or another that does.")
            if self.encoder is not None:
                raise InputError(
                    f"{model_name} cannot begin from an encoder: give the encoder's embeddings as features."
                )
            return SklearnLearner(model, standardized=self._standardized)
        require_torch("Training a network")
        learner_class: type[Learner] = getattr(import_module("labeldp.learn"), kind) if isinstance(kind, str) else kind
        return learner_class(
            model, self.schedules.get(learner_class) or self.training or default_training(self), **options
        )

    @property
    def trains_networks(self) -> bool:
        """Whether networks can be trained: a model "auto" requires torch, and a named model was checked already."""
        return has_torch() or self.model != "auto"

    def with_installed_model(self) -> Task:
        """Return this task, with logistic regression as the model "auto" if torch is not installed."""
        return self if self.trains_networks else replace(self, model=LogisticRegression(C=0.1, max_iter=300))

    @cached_property
    def _standardized(self) -> StandardizedFeatures:
        """The standardized rows for classifiers of scikit-learn, shared by all learners of this task."""
        return StandardizedFeatures.of(
            self.features, find_model(self.model, self.seed, len(self.features.shape)), self.row_mask
        )

    def with_rows(self, row_mask: RowMask) -> Task:
        """Return the same task on other rows, with the encoded features of all rows, which are slow to compute."""
        other = replace(self, row_mask=row_mask)
        if "encoded_features" in vars(self):
            vars(other)["encoded_features"] = self.encoded_features
        return other

    @property
    def full_task(self) -> Task:
        """The task on which a recipe bases its decisions: in a rehearsal on some rows, the task that is rehearsed."""
        return self if self.sampled_from is None else self.sampled_from

    def resolve_mixup(self, requested: float | None, default: float = 4.0) -> float:
        """Return the strength of mixup: the default if none is requested, and 0 for pairs of ids."""
        if requested is not None and not (isinstance(requested, int | float) and 0 <= requested < np.inf):
            raise InputError(
                f"mixup is 0, for rows as they are, or a number above 0, 4 for example: not {requested!r}."
            )
        if self.features.kind != "pairs":
            return default if requested is None else requested
        if requested:
            raise InputError("A mixture of two ids is nobody: leave mixup out, or set it to 0.")
        return 0.0

    @cached_property
    def labels_per_user(self) -> int:
        """The most labels of one user among the rows of the task; 1 where each label is a privacy unit."""
        if self.users is None:
            return 1
        return int(np.unique(self.users[self.row_mask], return_counts=True)[1].max(initial=1))

    @property
    def label_epsilon(self) -> float:
        """The approximate epsilon of a single label, from which recipes estimate the noise."""
        return self.epsilon / self.labels_per_user

    @cached_property
    def encoded_features(self) -> Features:
        """The features for clusters and linear queries: the embeddings of images if there is an encoder."""
        if self.features.kind == "pairs":
            raise InputError("Ids cannot be added up or clustered: take lp-mst, randres or alibi.")
        if self.features.kind == "images" and self.encoder is not None:
            return Embeddings(self.encoder.embed(self.features))
        return self.features

    def signal_strength(self, epsilon: float) -> float:
        """Return the signal-to-noise ratio of sums by class: epsilon of a label times rows per class."""
        return epsilon / self.labels_per_user * int(self.row_mask.sum()) / len(self.space)

    @cached_property
    def n_columns(self) -> int:
        """The number of principal directions of dense rows. Noise at delta 0 grows with it, and weak sums need few."""
        if self.features.kind == "table":
            return 256
        return int(np.clip(self.signal_strength(self.epsilon) / 3, 16, 256)) if self.delta else 32

    @cached_property
    def normalizer(self) -> RowNormalizer:
        """The map to rows of norm 1."""
        return RowNormalizer.fit(self.encoded_features, n_columns=self.n_columns)

    @cached_property
    def normalized(self) -> NDArray[np.float32]:
        """All rows, normalized."""
        return self.normalizer(self.encoded_features)

    @cached_property
    def sum_normalizer(self) -> RowNormalizer:
        """The map to rows for sums. Short rows of a table stay short, as values near the mean hold less information."""
        if self.encoded_features.kind != "table":
            return self.normalizer
        return RowNormalizer.fit(self.encoded_features, n_columns=self.n_columns, clip=True, constant=CONSTANT_WEIGHT)

    @cached_property
    def normalized_for_sums(self) -> NDArray[np.float32]:
        """All rows, normalized for sums."""
        return self.sum_normalizer(self.encoded_features) if self.encoded_features.kind == "table" else self.normalized

    def with_encoder(self, model: Predictor) -> Predictor:
        """Return a model of the encoded features as a model of the features."""
        if self.encoded_features is self.features or self.encoder is None:
            return model
        from labeldp.learn.encoded import EncodedModel

        return EncodedModel(self.encoder, model)

    def find_clusters(self, n_clusters: int, method: str = "kmeans") -> NDArray[np.signedinteger]:
        """Cluster the rows without labels.

        Args:
            n_clusters: The number of clusters.
            method: "kmeans", "balanced" for clusters of about equal size, or "scan" from the encoder.

        Returns:
            The cluster of each row.

        Raises:
            InputError: There is no such method, or SCAN has no encoder.
        """
        if method == "kmeans":
            return kmeans(
                self.normalized, min(n_clusters, len(self.features)) if n_clusters > 0 else n_clusters, self.seed
            )
        if method == "balanced":
            return self.cluster_memberships(n_clusters).argmax(axis=1)
        if method != "scan":
            raise InputError(f"There is no clustering {method!r}: choose kmeans, balanced or scan.")
        if self.encoder is None:
            raise InputError("SCAN starts from an encoder: train one with labeldp.representation, or choose kmeans.")
        if self.sampled_from is not None:  # SCAN is slow, and the training runs it before the first charge
            return self.find_clusters(n_clusters)
        return cached_array(
            self._cluster_cache_path(f"scan-{n_clusters}"), partial(self._find_scan_clusters, n_clusters, self.encoder)
        )

    def _find_scan_clusters(self, n_clusters: int, encoder: Model) -> NDArray[np.signedinteger]:
        from labeldp.representation.scan import SCAN

        scan = SCAN(n_clusters)
        device = (self.training or Training()).device
        training = replace(scan.training, device=device, seed=self.seed)
        return SCAN.assign(replace(scan, training=training).fit(self.features, encoder), self.features)

    def cluster_memberships(self, n_clusters: int) -> NDArray[np.float32]:
        """Return the membership of each row in each of several balanced clusters, found without labels."""
        path = self._cluster_cache_path(f"balanced-{n_clusters}")
        return cached_array(
            path, lambda: balanced_kmeans(smooth_rows(self.encoded_features, _CLUSTER_COLUMNS), n_clusters, self.seed)
        )

    def _cluster_cache_path(self, name: str) -> Path | None:
        """Return the cache file for clusters of these rows; its name does not depend on the last bits of embeddings."""
        if self.folder is None:
            return None
        encoder = "" if self.encoder is None else self.encoder.digest()[:16]
        return self.folder / f"{name}-{self.seed}-{self.features.digest()[:16]}-{encoder}.npy"

    def assign_pseudo_labels(self, probabilities: NDArray[np.floating]) -> Codes:
        """Return the most probable class of each row of the task, and none for others, which may be held out."""
        return np.where(self.row_mask, probabilities.argmax(axis=1), MISSING).astype(np.int32)

    def split_row_masks(self, fractions: Sequence[float]) -> list[RowMask]:
        """Split the rows at random into disjoint parts; all rows of a user fall into one part."""
        from labeldp.evaluate import split_rows

        row_ids = np.flatnonzero(self.row_mask)
        users = None if self.users is None else self.users[row_ids]
        row_masks = [np.zeros(len(self.row_mask), bool) for _ in fractions]
        for row_mask, positions in zip(row_masks, split_rows(len(row_ids), fractions, self.seed, users), strict=True):
            row_mask[row_ids[positions]] = True
        return row_masks


def default_training(task: Task, **changes: Any) -> Training:
    """Return a schedule for the size of the task: about a million rows in total, so fewer epochs for more rows.

    Images on a GPU are trained on for six times as many rows, for which compiling the training pays off.
    """
    n_rows, is_images = max(1, int(task.row_mask.sum())), task.features.kind == "images"
    on_gpu = is_images and choose_device(changes.get("device", "auto")).type == "cuda"
    n_rows_seen, max_epochs = (6_000_000, 120) if on_gpu else (1_000_000, 60 if is_images else 30)
    epochs = min(max(n_rows_seen // n_rows, 10), max_epochs)
    settings: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": 128 if n_rows < 20_000 else 256,
        "learning_rate": 0.1,
        "seed": task.seed,
    }
    settings |= {"compile": on_gpu and n_rows * changes.get("epochs", epochs) >= 1_000_000}
    if task.features.kind == "pairs":
        # The prior is weighed against the likelihood of the labels, so that it suits clean and noisy labels alike.
        # Without a prior, factors memorize the noise.
        settings |= {"optimizer": "adam", "learning_rate": 0.01, "prior_deviation": 0.2, "epochs": 20}
        settings |= {"batch_size": min(max(n_rows // 64, 64), 1024)}
    return Training(**settings | changes)
