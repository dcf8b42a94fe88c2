"""Every recipe on self-supervised embeddings of CIFAR-10: accuracy on the test images by epsilon, over seeds.

    python benchmarks/embeddings.py --data FOLDER [--epsilons 0.1,0.5,1,2,4] [--seeds 3] [--recipes auto,...] [--jobs 2]

FOLDER holds train-embeddings.npy, train-labels.npy, test-embeddings.npy and test-labels.npy (`benchmarks/encoder.py`
makes an encoder whose embeddings will do). The labels are public; each training protects them as if they were not, at
delta 1e-5. Finished cells are kept in benchmarks/results/embeddings-cells.jsonl, the table in embeddings.json.
"""

import numpy as np
from recipe_table import Problem, arguments, fill
from sklearn.linear_model import LogisticRegression

from labeldp.data import Embeddings


def main():
    parser = arguments(epsilons="0.1,0.5,1,2,4", seeds=3)
    chosen = parser.parse_args()
    arrays = {name: np.load(chosen.data / f"{name}.npy") for name in ("train-embeddings", "test-embeddings")}
    labels = {name: np.load(chosen.data / f"{name}.npy").astype(np.int64) for name in ("train-labels", "test-labels")}
    train = Embeddings(arrays["train-embeddings"]), labels["train-labels"]
    test = Embeddings(arrays["test-embeddings"]), labels["test-labels"]
    probe = LogisticRegression(max_iter=300).fit(arrays["train-embeddings"].astype("f4"), train[1])
    clean = {"logistic": float(probe.score(arrays["test-embeddings"].astype("f4"), test[1]))}
    fill(Problem("embeddings", train, test, classes=10, delta=1e-5, epochs=8), chosen, clean)


if __name__ == "__main__":
    main()
