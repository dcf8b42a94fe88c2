"""What is compared on each problem, by name: recipes, perhaps with a model, the baseline, and clean learners."""

from grid.problems import PROBLEMS

BASELINE = "twenty lines"
CLEAN = ("clean trees", "clean linear")
_CLASSES = ("auto", "moments", "randres", "alibi", "cluster-prior", "noise-cluster", "lp-mst", "randres trees")
_FORMS = {
    "table": (*_CLASSES, BASELINE),
    "embeddings": (*_CLASSES, "randres logistic", "smooth-moments", BASELINE),
    "numbers": ("auto", "bins", "bins trees", "sums", "laplace"),
}
# Networks are slow: these train on some of the rows, and their cells say on how many.
NETWORKS = ("randres", "alibi", "cluster-prior", "noise-cluster", "lp-mst", "smooth-moments")
NETWORK_ROWS = 20_000
TREES_UP_TO = 20  # classes, for each of which trees are grown


def methods_for(name):
    """Return the private and the clean methods that suit a problem."""
    entry = PROBLEMS[name]

    def suits(method):
        return entry.classes <= TREES_UP_TO or not method.endswith(" trees")

    return [each for each in (*_FORMS[entry.form], *CLEAN) if suits(each)]
