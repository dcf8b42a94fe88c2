"""The configuration of a training run, and the task that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.core.lazy import require_torch
from labeldp.data.base import Features, check_device
from labeldp.data.feature_reader import FeatureReader, check_kind
from labeldp.data.files import TableFile
from labeldp.evaluate import Criterion, check_criterion
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes.feature_crosses import CROSSING_RECIPES, check_crosses
from labeldp.recipes.models import find_model
from labeldp.recipes.registry import get_recipe
from labeldp.recipes.task import RowMask, Task, default_training
from labeldp.recipes.training import check_encoder_without_labels
from labeldp.runs.feature_files import find_image_column, read_columns, read_features

if TYPE_CHECKING:
    from labeldp.learn.model import Model


# The number of axes of one row, by kind of features.
_ROW_NDIM = {"table": 1, "embeddings": 1, "pairs": 2, "images": 3}


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a training and its privacy parameters.

    Args:
        epsilon: The epsilon of the training.
        delta: The delta of the training.
        recipe: The recipe by name.
        options: The options of the recipe.
        features: "table", "embeddings", "images" or "pairs".
        model: The model by name.
        encoder: For images: the folder of an encoder that was trained without labels.
        flip: Whether a mirrored image has the same label.
        epochs: The epochs of networks; None for a number that depends on the data.
        device: "auto", "cpu" or "cuda".
        seed: The seed of the training and of the held-out rows. Privacy noise has none.
        progress: Whether trainings show their progress.
        public: A table of public rows that teachers vote on.
        labels_per_user: The maximum number of labels of each user.
        choose_by: The criterion of model selection.
    """

    epsilon: float
    delta: float = 0.0
    recipe: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    features: str = "table"
    model: str = "auto"
    encoder: Path | None = None
    flip: bool = False
    epochs: int | None = None
    device: str = "auto"
    seed: int = 0
    progress: bool = False
    public: Path | None = None
    labels_per_user: int | None = None
    choose_by: Criterion = "auto"

    def check(self, space: LabelSpace | None = None, table: SecretTable | None = None) -> None:
        """Raise an error if the settings are invalid, also for this label space and table, before any charge."""
        recipe = get_recipe(self.recipe)
        recipe.check(space, self.options, delta=self.delta, encoder=self.encoder is not None, model=self.model)
        if self.features not in _ROW_NDIM:
            raise InputError(
                'Features must be "table", "embeddings", "images" or "pairs": choose one of these.',
                parameter="features",
            )
        if table is not None and self.public is not None and self.public.resolve() == table.file.path.resolve():
            raise InputError(
                "The public rows are those with the private labels: use a table of other people, or none.",
                parameter="public",
            )
        if self.encoder is not None and self.features != "images":
            raise InputError(
                "An encoder is for images: leave it out, or declare the features as images.", parameter="features"
            )
        if space is not None:
            check_criterion(self.choose_by, space)
        is_numeric = space is not None and space.step is not None
        find_model(self.model, n_axes=_ROW_NDIM[self.features], is_numeric=is_numeric)
        check_kind(self.features)
        check_device(self.device)
        if self.features != "table" and self.recipe in CROSSING_RECIPES and self.options.get("cross"):
            raise InputError(
                "Crosses are for tables: leave them out, or declare the features as a table.", parameter="features"
            )
        if table is not None:
            table.file.frame_schema(table.feature_columns)
            check_crosses(self.recipe, self.options, table.feature_columns)
        if table is not None and self.features == "images":
            find_image_column(table.file, table.feature_columns)
        if self.encoder is not None:
            _check_encoder(_load_encoder(self.encoder, "cpu"), self.model)

    def with_recipe(self, recipe: str, **changes: Any) -> TrainConfig:
        """Return the settings for another recipe, without a model or crosses if it does not take them."""
        model = self.model if get_recipe(recipe).takes_model else "auto"
        options = {name: value for name, value in self.options.items() if name != "cross" or recipe in CROSSING_RECIPES}
        return replace(self, recipe=recipe, model=model, options=options, **changes)

    def read(self, table: SecretTable, n_rows: int) -> tuple[FeatureReader, Features, Features | None]:
        """Read the features and the public rows, if any. The feature reader is then fitted to public rows only."""
        if self.public is None:
            return *read_features(table, self.features, n_rows, self.flip), None
        frame = read_columns(TableFile(self.public), table.feature_columns)
        reader, public = FeatureReader.fit(frame, self.features, self.flip)  # type: ignore[arg-type]
        return reader, reader(read_columns(table.file, list(reader.columns), reader.text_columns)), public

    def make_task(
        self,
        features: Features,
        space: LabelSpace,
        row_mask: RowMask,
        checkpoints: Path | None = None,
        **task_fields: Any,
    ) -> Task:
        """Return the task of a training on the rows of a mask, without labels."""
        model = find_model(self.model, self.seed, _ROW_NDIM[self.features], space.step is not None)
        encoder = None if self.encoder is None else _load_encoder(self.encoder, self.device)
        task_fields |= {"encoder": encoder, "seed": self.seed, "choose_by": self.choose_by}
        task = Task(features, space, row_mask, self.epsilon, self.delta, model, **task_fields)
        changes = {"device": self.device, "progress": self.progress, "checkpoint": checkpoints}
        return replace(
            task, training=default_training(task, **changes | ({"epochs": self.epochs} if self.epochs else {}))
        )


def _load_encoder(folder: Path, device: str) -> Model:
    require_torch("An encoder")
    from labeldp.learn.model import Model

    return Model.load(folder, device)


def _check_encoder(encoder: Model, model: str) -> None:
    """Raise an error if networks that start from the encoder cannot have the architecture `model`."""
    from labeldp.learn.encoded import split_encoder

    check_encoder_without_labels(encoder)
    backbone = getattr(split_encoder(encoder)[0].network, "config", {}).get("name")
    if model not in ("auto", backbone):
        raise InputError(
            f"Networks start from the encoder, which is a {backbone}, not a {model}: do not choose a model."
        )
