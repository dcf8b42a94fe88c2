"""CIFAR-10 with private labels to the end: one release, the surest rows by it, and a semi-supervised finish.

    python benchmarks/cifar10_finish.py --data DIR [--epsilons 0.5,0.1] [--epochs N] [--start guesses|rows]

DIR holds the official `cifar-10-batches-py`. What is public: pictures, and the encoder in benchmarks/artifacts, which
never saw a label (encoder.py). What is released: noisy sums of the encodings by label, once, for the whole budget at
delta 1e-5. All that follows is free. A ridge model of the sums guesses every row. The surest rows, so many of each
class and spread over 100 clusters, are labelled. The network starts from the encoder, with a head that learnt all
guesses or, with `--start rows`, from a short training on the labelled rows; then it learns from all rows (`SoftMatch`).

Test labels are for the final figure. Settings were chosen by the true labels of the last 10,000 training pictures
(`--watch N` prints the accuracy there after every N epochs): that is a benchmark's licence, a label owner would choose
by a private score. Seeds are of the training: the noise has none. Writes benchmarks/results/<name>.json.
"""

import argparse
import time
from pathlib import Path

import torch
from results import HERE, Clock, save

import labeldp as ldp
from labeldp.features import Embeddings
from labeldp.features.loaders import load
from labeldp.learn import Model, SoftMatch, Supervised, Training
from labeldp.learn.encoded import members, with_head
from labeldp.recipes.votes import chances, surest
from labeldp.represent.clusters import kmeans
from labeldp.represent.lift import Lift

DELTA, CLUSTERS, CONFIDENCE, DECLARED = 1e-5, 100, 0.95, slice(40_000, None)


class Watched(SoftMatch):
    """Keeps hold of the network in training, so that it can be looked at between epochs."""

    def _train(self, network, *others, **hooks):
        self.training.progress.slow = network[0]
        return super()._train(network, *others, **hooks)


def share(predicted, labels, rows=slice(None)):
    """The share of right predictions."""
    return float((predicted[rows] == labels[rows]).mean())


def begin(pictures, points, guessed, marked, encoder, chosen):
    """A model to start from: a head on the encoder for all guesses, or the whole network for the labelled rows."""
    if chosen.start == "rows":
        short = Training(epochs=12, batch=128, rate=0.02, warmup=0.2, device=chosen.device, seed=chosen.seed)
        return Supervised(training=short).fit(pictures, marked, encoder)
    line = Training(epochs=8, batch=512, rate=0.02, decay=1e-4, device=chosen.device, seed=chosen.seed)
    return with_head(encoder, Supervised("linear", line).fit(points, guessed))


def run(epsilon, pictures, labels, test, test_labels, chosen):
    """Release, choose rows, finish; return figures."""
    began = time.perf_counter()
    encoder = members(Model.load(HERE / "artifacts" / "cifar10-encoder", chosen.device))[0]
    points = Embeddings(encoder.embed(pictures))
    lifted = Lift.fit(points, columns=256)(points)
    vault = ldp.Vault(labels, ldp.LabelSpace(list(range(10))), ldp.Budget(epsilon, DELTA))
    sums = vault.release(ldp.LinearQuery(lifted, epsilon, DELTA))
    likely = chances(sums)
    marked = sums.relabel(surest(likely, kmeans(lifted, CLUSTERS, chosen.seed), chosen.rows_a_class), CONFIDENCE)
    start = begin(pictures, points, sums.relabel(likely.argmax(axis=1)), marked, encoder, chosen)

    def watch(epoch, loss):
        if chosen.watch and epoch % chosen.watch == 0:
            found = share(Model(clock.slow, sums.space).predict(pictures), labels, DECLARED)
            print(f"  epoch {epoch}: {clock.epoch:.3f} s, loss {loss:.4f}, declared {found:.2%}", flush=True)

    clock = Clock(watch)
    training = Training(
        epochs=chosen.epochs,
        batch=chosen.batch,
        rate=chosen.rate,
        compile=chosen.device == "cuda",
        device=chosen.device,
        seed=chosen.seed,
        progress=clock,
    )
    model = Watched(training=training, inertia=chosen.inertia).fit(pictures, marked, start)
    figures = {"epsilon": epsilon, "delta": DELTA, "seed": chosen.seed, "labelled rows": int(marked.active.sum())}
    figures["right among them"] = share(marked.labels(), labels, marked.active)
    for name, stage in (("start", start), ("accuracy", model)):
        figures[f"{name}, declared"] = share(stage.predict(pictures), labels, DECLARED)
        figures[f"{name}, test"] = share(stage.predict(test), test_labels)
    return figures | clock.figures() | {"minutes": round((time.perf_counter() - began) / 60, 2)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilons", default="0.5,0.1")
    parser.add_argument("--start", choices=["guesses", "rows"], default="guesses")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--inertia", type=float, default=0.998)
    parser.add_argument("--rows-a-class", type=int, default=1000)
    parser.add_argument("--watch", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, help="only so many pictures, for a trial")
    parser.add_argument("--name", default="cifar10_finish", help="of the file of results")
    chosen = parser.parse_args()
    sets = [load("cifar10", chosen.data, split) for split in ("train", "test")]
    (pictures, labels), (test, test_labels) = (
        (x.select(range(chosen.rows or len(x))).to(chosen.device), y[: chosen.rows]) for x, y in sets
    )
    settings = {key: value for key, value in vars(chosen).items() if key not in ("data", "device", "name", "rows")}
    results = []
    for epsilon in map(float, chosen.epsilons.split(",")):
        results.append(run(epsilon, pictures, labels, test, test_labels, chosen))
        if not chosen.rows:
            save(chosen.name, {"settings": settings, "runs": results})
        found = results[-1]
        print(
            f"epsilon {epsilon}: start {found['start, test']:.2%}, finish {found['accuracy, test']:.2%}, "
            f"{found['minutes']} minutes, seed {chosen.seed}",
            flush=True,
        )


if __name__ == "__main__":
    main()
