"""Ridge regression on noisy sums of public rows: the label moments A'Y are all that is released."""

from labeldp.learn.ridge import Ridge
from labeldp.mechanisms import LinearQuery
from labeldp.recipes.base import Ask, Steps, Task, recipe


@recipe(
    "moments", "noisy sums of the features by label, then ridge regression with the penalty that the noise asks for"
)
def moments(task: Task) -> Steps:
    """One query for the whole budget; a label moves it as little as one row among all."""
    sums = yield Ask(LinearQuery(task.lifted, task.epsilon, task.delta))
    return task.on_points(Ridge(task.lift).fit(task.points, sums))
