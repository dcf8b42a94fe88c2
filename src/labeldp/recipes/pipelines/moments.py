"""Ridge regression on noisy sums of public rows: the only release are the label moments A'Y."""

from labeldp.core.errors import InputError
from labeldp.learn.ridge import Ridge
from labeldp.privacy.mechanisms import LinearQuery
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task
from labeldp.representation.smooth import smooth_rows

# Signal of sums (`Task.signal_strength`) below which sums of smoothed rows are more informative.
_SMOOTHING_BELOW = 300.0


@recipe(
    "moments",
    "noisy sums of the features by label, then ridge regression with the penalty that the noise asks for",
    takes_model=False,
)
def moments(task: Task) -> Steps:
    """Release noisy sums of the rows of each class with the whole budget, then fit ridge regression."""
    sums = yield Request(LinearQuery(task.normalized_for_sums, task.epsilon, task.delta))
    return task.with_encoder(Ridge(task.sum_normalizer).fit(task.encoded_features, sums))


@recipe(
    "smooth-moments",
    "noisy sums of rows that were averaged with their neighbors; a network learns what they say",
    networks="by default",
)
def smooth_moments(task: Task) -> Steps:
    """Release noisy sums of smoothed rows, then train the task's model on their pseudo-labels.

    It suits noise at which `moments` fails. The trained model needs no neighbors of new rows.
    """
    if task.encoded_features.kind == "table":
        raise InputError("Neighbors are found among embeddings and images: take moments for a table.")
    learner, query_rows = task.learner("Supervised"), smooth_rows(task.encoded_features, task.n_columns)
    sums = yield Request(LinearQuery(query_rows, task.epsilon, task.delta))
    pseudo_labels = sums.relabel(task.assign_pseudo_labels(query_rows @ sums.coefficients))
    return learner.fit(task.features, pseudo_labels, task.encoder)


def needs_smoothing(task: Task) -> bool:
    """Whether sums of smoothed rows are more informative than sums of the rows themselves."""
    return task.full_task.signal_strength(task.epsilon) < _SMOOTHING_BELOW
