"""A tour on data that ship with scikit-learn: compare recipes on digits, then protect tumor diagnoses.

First a benchmark: handwritten digits, whose labels are public, so that true labels can score. Then the real thing:
569 patients with 30 measurements each, whose diagnosis is the secret. A quarter of the patients is held out with true
diagnoses, to check the private estimate. Everything is written to the folder demo/.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from labeldp.runs.record import read_record

OUT = Path("demo")


def labeldp(*words: object) -> None:
    texts = [str(word) for word in words]
    print("\n$ labeldp", *(f'"{text}"' if "," in text else text for text in texts), flush=True)
    subprocess.run([sys.executable, "-m", "labeldp", *texts], check=True)


def compare_recipes() -> None:
    data = load_digits()
    digits = pl.DataFrame(data.data / 16, schema=[f"pixel{place}" for place in range(64)])
    digits.with_columns(pl.Series("digit", data.target)).write_parquet(OUT / "digits.parquet")
    labeldp("plan", "--rows", len(data.target), "--classes", 10, "--epsilon", 1, "--features", "embeddings")
    labels = ["--label", "digit", "--classes", ",".join(map(str, range(10))), "--features", "embeddings"]
    recipes = ["--recipes", "auto,moments,noise-cluster,cluster-prior,alibi,lp-mst,randres-mixup,randres"]
    where = ["--epsilons", "0.5,1,2,4", "--delta", "1e-5", "--out", OUT / "digits"]
    labeldp("compare", OUT / "digits.parquet", *labels, *recipes, *where, "--labels-public")


def protect_diagnoses() -> None:
    data = load_breast_cancer()
    frame = pl.DataFrame(data.data, schema=[str(name) for name in data.feature_names])
    frame = frame.with_columns(pl.Series("diagnosis", data.target_names[data.target]))
    known, new = train_test_split(frame, test_size=0.25, random_state=0)
    known.write_parquet(OUT / "patients.parquet")
    new.drop("diagnosis").write_parquet(OUT / "new.parquet")
    labels = ["--label", "diagnosis", "--classes", "malignant,benign"]
    for epsilon, budget in ((0.5, 2), (1, 2)):
        run = OUT / f"epsilon-{epsilon:g}"
        cost = ["--epsilon", epsilon, "--budget", budget, "--out", run]
        labeldp("train", OUT / "patients.parquet", *labels, *cost)
        labeldp("predict", run, OUT / "new.parquet", "--out", run / "predictions.csv")
        right = (pl.read_csv(run / "predictions.csv")["prediction"] == new["diagnosis"]).mean()
        low, high = read_record(run)["score"]["accuracy"][1:]
        said = f"the private interval said {low:.1%} to {high:.1%}"
        print(f"On {len(new)} new patients it is right for {right:.1%}; {said}.")
    print("\nBoth runs used the same diagnoses, so what they cost adds up:")
    labeldp("ledger", "show", OUT / "patients.parquet")


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    compare_recipes()
    protect_diagnoses()
    print(f"\nLook at {OUT}/digits/accuracy.png and {OUT}/epsilon-1/card.html.")


if __name__ == "__main__":
    main()
