"""The papers' pipelines as short compositions of mechanisms and learners, by name."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.recipes.held_out import all_rows as all_rows
    from labeldp.recipes.registry import Recipe as Recipe
    from labeldp.recipes.registry import get_recipe as get_recipe
    from labeldp.recipes.registry import recipe as recipe
    from labeldp.recipes.request import Request as Request
    from labeldp.recipes.request import Reserve as Reserve
    from labeldp.recipes.result import TrainingResult as TrainingResult
    from labeldp.recipes.task import Task as Task
    from labeldp.recipes.task import default_training as default_training
    from labeldp.recipes.training import train as train
    from labeldp.recipes.training import train_best as train_best

__all__, __getattr__, __dir__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.recipes",
    {
        "held_out": ["all_rows"],
        "registry": ["Recipe", "get_recipe", "recipe"],
        "request": ["Request", "Reserve"],
        "result": ["TrainingResult"],
        "task": ["Task", "default_training"],
        "training": ["train", "train_best"],
    },
)
