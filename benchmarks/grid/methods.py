"""What is compared on each problem, by name: recipes, perhaps with a model, the baseline, and clean learners."""

from grid.problems import PROBLEMS

BASELINE = "twenty lines"
CLEAN = ("clean trees", "clean linear")
_FAST = ("auto", "log-linear", "moments", "randres trees")
_NETWORKS = ("randres", "alibi", "cluster-prior", "noise-cluster", "lp-mst")
_FORMS = {
    "table": (*_FAST, "additive", *_NETWORKS, BASELINE),
    "embeddings": (*_FAST, "randres logistic", *_NETWORKS, "smooth-moments", BASELINE),
    "numbers": ("auto", "bins", "bins trees", "sums", "laplace"),
}
# Networks and rounds over evidence are slow: these train on some of the rows, and their cells say on how many.
SLOW = (*_NETWORKS, "smooth-moments", "bins", "bins trees")
SLOW_ROWS = 20_000
FEW_CLASSES = 20  # above, trees for each class and rounds of logistic regression take more than five minutes


def methods_for(name):
    """Return the private and the clean methods that suit a problem."""
    entry = PROBLEMS[name]

    def suits(method):
        return entry.classes <= FEW_CLASSES or not method.endswith((" trees", " logistic"))

    return [each for each in (*_FORMS[entry.form], *CLEAN) if suits(each)]
