"""Every recipe on Fashion-MNIST: accuracy on the test images by epsilon, over seeds.

    python benchmarks/fashion.py --data FOLDER [--epsilons 0.5,1,2,4] [--seeds 1] [--recipes auto,...] [--rows 20000]

FOLDER holds the official idx files. On the CPU the pictures are rows of pixels for a small network (the full table
with convolutions is for a GPU): 784 columns, from which linear queries and clusters take the principal directions. The
labels are public; each training protects them as if they were not, at delta 1e-5. Finished cells are kept in
benchmarks/results/fashion-ROWS-cells.jsonl, the table in fashion-ROWS.json.
"""

import torch
from recipe_table import Problem, arguments, fill
from sklearn.linear_model import LogisticRegression

from labeldp.data import Embeddings
from labeldp.data.loaders import load


def main():
    parser = arguments(epsilons="0.5,1,2,4", seeds=1)
    parser.add_argument("--rows", type=int, default=60_000)
    chosen = parser.parse_args()

    def read(split, most=None):
        images, labels = load("fashion-mnist", chosen.data, split)
        rows = torch.arange(len(images))[:most]
        return Embeddings(images.batch(rows).flatten(1).numpy()), labels[:most]

    train, test = read("train", chosen.rows), read("test")
    pixels = [part.batch(torch.arange(len(part))).numpy() for part in (train[0], test[0])]
    clean = {"logistic": float(LogisticRegression(max_iter=30).fit(pixels[0], train[1]).score(pixels[1], test[1]))}
    fill(Problem(f"fashion-{len(train[1])}", train, test, classes=10, delta=1e-5, epochs=8), chosen, clean)


if __name__ == "__main__":
    main()
