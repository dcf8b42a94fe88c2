"""The registry of recipes: their names, requirements and options."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from numbers import Integral, Real
from pkgutil import iter_modules
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.core.lazy import require_torch
from labeldp.learn.backbone_names import is_backbone
from labeldp.recipes import pipelines
from labeldp.recipes.request import Steps


@dataclass(frozen=True)
class Recipe:
    """A pipeline with its name and requirements.

    Attributes:
        name: The name of the recipe.
        summary: One sentence that describes the pipeline.
        steps: The generator function of the pipeline. Its parameters after the task are the recipe's options.
        has_several_candidates: Whether the pipeline returns several models for a task and options.
        uses_teachers: Whether the pipeline trains teachers, which can vote on public rows.
        labels: The labels that the pipeline can learn.
        needs: What the pipeline requires besides labels and features.
        takes_model: Whether the pipeline trains the task's model. Otherwise it trains a linear model of its own.
        networks: When the pipeline trains a network, which requires torch.
    """

    name: str
    summary: str
    steps: Callable[..., Steps]
    has_several_candidates: Callable[..., bool] = lambda task, **options: False
    uses_teachers: bool = False
    labels: Literal["classes", "numbers", "any"] = "classes"
    needs: Literal["nothing", "delta", "encoder"] = "nothing"
    takes_model: bool = True
    networks: Literal["by default", "if named", "never"] = "if named"

    def check(
        self,
        space: LabelSpace | None,
        options: Mapping[str, Any],
        *,
        delta: float = 0.0,
        encoder: bool = False,
        model: Any = "auto",
    ) -> None:
        """Check labels, options, model and requirements before the first charge.

        Args:
            space: The declared labels, or None if they are not known yet.
            options: The recipe's options by name.
            delta: The delta of the training.
            encoder: Whether there is an encoder of images.
            model: The model to train, as for a task, or None if it is not known yet.

        Raises:
            InputError: The recipe cannot run with these labels, options, model or requirements.
            MissingExtra: The recipe trains networks, and torch is not installed.
        """
        if space is not None:
            self._check_labels(space)
        if self.needs == "delta" and not delta:
            raise InputError(f"The recipe {self.name!r} needs a delta above 0: 1e-6 for example.", parameter="delta")
        if self.needs == "encoder" and not encoder:
            raise InputError(
                f"The recipe {self.name!r} begins from an encoder of images: give one.", parameter="encoder"
            )
        if not self.takes_model and not (model is None or (isinstance(model, str) and model == "auto")):
            raise InputError(
                f"The recipe {self.name!r} trains a linear model of its own: leave the model out.", parameter="model"
            )
        if self._trains_networks(model):
            require_torch(f"Training a network by the recipe {self.name!r}")
        parameters = dict(list(_parameters(self.steps).items())[1:])
        for name, value in options.items():
            if name not in parameters:
                accepted = f"it takes {', '.join(parameters)}" if parameters else "it takes none"
                raise InputError(f"The recipe {self.name!r} has no option {name!r}: {accepted}.")
            _check_value(name, value, parameters[name].annotation)
            is_negative = isinstance(value, Real) and not float(value) >= 0
            if is_negative and self.steps.__module__.startswith("labeldp."):  # a user's recipe may define it
                raise InputError(f"The option {name!r} must not be below zero, as {value!r} is.")

    def _trains_networks(self, model: Any) -> bool:
        if self.networks == "never" or hasattr(model, "fit"):
            return False
        if isinstance(model, str):
            return is_backbone(model) or (model == "auto" and self.networks == "by default")
        return callable(model)

    def _check_labels(self, space: LabelSpace) -> None:
        label_type = "classes" if space.step is None else "numbers"
        if self.labels not in (label_type, "any"):
            suitable = sorted(name for name, recipe in RECIPES.items() if recipe.labels in (label_type, "any"))
            raise InputError(
                f"The recipe {self.name!r} learns {self.labels}, and these labels are {label_type}: choose one of "
                f"{', '.join(suitable)}."
            )


def _parameters(steps: Callable[..., Steps]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(steps, eval_str=True).parameters
    except NameError:  # annotations that are imported for type checkers only
        return inspect.signature(steps).parameters


def _check_value(name: str, value: Any, annotation: Any) -> None:
    """Raise an error if an option is not the number, text or name that its annotation requires.

    Options with other annotations are not checked.
    """
    if get_origin(annotation) is Literal:
        if value not in get_args(annotation):
            names = ", ".join(map(str, get_args(annotation)))
            raise InputError(f"The option {name!r} must be one of {names}, not {value!r}.")
        return
    types = set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}
    value_types = types - {NoneType}
    if not (value_types <= {int, float} or value_types == {str}) or not value_types:
        return
    is_number = not isinstance(value, bool) and isinstance(value, Real if float in types else Integral)
    is_valid = is_number if str not in value_types else isinstance(value, str)
    if not is_valid and not (value is None and NoneType in types):
        expected = "a number" if float in types else "a whole number" if int in types else "a text"
        raise InputError(f"The option {name!r} must be {expected}, not {value!r}.")


RECIPES: dict[str, Recipe] = {}


def recipe(name: str, summary: str, **attributes: Any) -> Callable[[Callable[..., Steps]], Callable[..., Steps]]:
    """Return a decorator that registers a pipeline.

    Args:
        name: The name of the recipe.
        summary: One sentence that describes the pipeline.
        attributes: Further attributes of `Recipe`.

    Returns:
        The decorator. It returns the pipeline unchanged.

    Raises:
        InputError: Another pipeline has this name.
    """

    def register(steps: Callable[..., Steps]) -> Callable[..., Steps]:
        existing = RECIPES.get(name)
        if existing is not None and (existing.steps.__module__, existing.steps.__qualname__) != (
            steps.__module__,
            steps.__qualname__,
        ):
            raise InputError(f"There is a recipe {name!r} already: choose another name.")
        RECIPES[name] = Recipe(name, summary, steps, **attributes)
        return steps

    return register


def get_recipe(name: str) -> Recipe:
    """Return a recipe by name.

    Args:
        name: The name of the recipe.

    Returns:
        The recipe.

    Raises:
        InputError: There is no recipe of this name.
    """
    for module in iter_modules(pipelines.__path__, f"{pipelines.__name__}."):
        import_module(module.name)
    if name not in RECIPES:
        raise InputError(f"There is no recipe {name!r}: choose one of {', '.join(sorted(RECIPES))}.")
    return RECIPES[name]
