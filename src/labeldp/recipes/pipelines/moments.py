"""Ridge regression on noisy sums of public rows: the label moments A'Y are all that is released."""

from labeldp.core.errors import InputError
from labeldp.learn.ridge import Ridge
from labeldp.privacy.mechanisms import LinearQuery
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.task import Task
from labeldp.representation.smooth import smooth_rows

_FAINT = 300.0  # what sums say (`Task.told`) below which rows had better be smoothed


@recipe(
    "moments",
    "noisy sums of the features by label, then ridge regression with the penalty that the noise asks for",
    takes_model=False,
)
def moments(task: Task) -> Steps:
    """One query for the whole budget; a label moves it as little as one row among all."""
    sums = yield Ask(LinearQuery(task.summed, task.epsilon, task.delta))
    return task.on_points(Ridge(task.sum_lift).fit(task.points, sums))


@recipe(
    "smooth-moments",
    "noisy sums of rows that were averaged with their neighbours; a network learns what they say",
    networks="by default",
)
def smooth_moments(task: Task) -> Steps:
    """For noise that drowns `moments`. New rows have no neighbours here, so a model of the rows as they are learns."""
    if task.points.kind == "table":
        raise InputError("Neighbours are found among embeddings and images: take moments for a table.")
    learner, query = task.learner("Supervised"), smooth_rows(task.points, task.columns)
    sums = yield Ask(LinearQuery(query, task.epsilon, task.delta))
    guesses = sums.relabel(task.likeliest(query @ sums.coefficients))
    return learner.fit(task.features, guesses, task.encoder)


def is_faint(task: Task) -> bool:
    """Whether smoothed rows give sums that say more than those of rows as they are."""
    return task.whole.told(task.epsilon) < _FAINT
