"""The papers' pipelines as short compositions of mechanisms and learners, by name."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.recipes.base import Recipe as Recipe
    from labeldp.recipes.base import Request as Request
    from labeldp.recipes.base import Reserve as Reserve
    from labeldp.recipes.base import get_recipe as get_recipe
    from labeldp.recipes.base import recipe as recipe
    from labeldp.recipes.runner import TrainingResult as TrainingResult
    from labeldp.recipes.runner import all_rows as all_rows
    from labeldp.recipes.runner import train as train
    from labeldp.recipes.runner import train_best as train_best
    from labeldp.recipes.task import Task as Task
    from labeldp.recipes.task import default_training as default_training

__all__, __getattr__, __dir__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.recipes",
    {
        "base": ["Ask", "Recipe", "Reserve", "find", "recipe"],
        "runner": ["TrainingResult", "all_rows", "train", "train_best"],
        "task": ["Task", "default_training"],
    },
)
