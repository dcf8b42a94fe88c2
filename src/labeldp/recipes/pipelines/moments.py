"""Ridge regression on noisy sums of public rows: the label moments A'Y are all that is released."""

from labeldp.core.errors import InputError
from labeldp.learn.ridge import Ridge
from labeldp.privacy.mechanisms import LinearQuery
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task
from labeldp.representation.smooth import smooth_rows

_SMOOTHING_BELOW = 300.0  # what sums say (`Task.told`) below which rows had better be smoothed


@recipe(
    "moments",
    "noisy sums of the features by label, then ridge regression with the penalty that the noise asks for",
    takes_model=False,
)
def moments(task: Task) -> Steps:
    """One query for the whole budget; a label moves it as little as one row among all."""
    sums = yield Request(LinearQuery(task.normalized_for_sums, task.epsilon, task.delta))
    return task.with_encoder(Ridge(task.sum_normalizer).fit(task.encoded_features, sums))


@recipe(
    "smooth-moments",
    "noisy sums of rows that were averaged with their neighbours; a network learns what they say",
    networks="by default",
)
def smooth_moments(task: Task) -> Steps:
    """For noise that drowns `moments`. New rows have no neighbours here, so a model of the rows as they are learns."""
    if task.encoded_features.kind == "table":
        raise InputError("Neighbours are found among embeddings and images: take moments for a table.")
    learner, query_rows = task.learner("Supervised"), smooth_rows(task.encoded_features, task.n_columns)
    sums = yield Request(LinearQuery(query_rows, task.epsilon, task.delta))
    pseudo_labels = sums.relabel(task.assign_pseudo_labels(query_rows @ sums.coefficients))
    return learner.fit(task.features, pseudo_labels, task.encoder)


def needs_smoothing(task: Task) -> bool:
    """Whether smoothed rows give sums that say more than those of rows as they are."""
    return task.full_task.signal_strength(task.epsilon) < _SMOOTHING_BELOW
