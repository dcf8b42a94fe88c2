"""Train on tumour diagnoses without learning any patient's: `labeldp train` at several epsilons.

The data ship with scikit-learn: 569 patients, 30 measurements each; the diagnosis is the secret. A quarter of the
patients is kept aside with true diagnoses, which is fair here because this data set is public. Everything is
written to the folder demo/.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labeldp.runs import read_report

EPSILONS = ["0.5", "1", "2", "4"]
OUT = Path("demo")


def labeldp(*words: str) -> None:
    print("$ labeldp", *(f'"{w}"' if "," in w else w for w in words), flush=True)
    subprocess.run([sys.executable, "-m", "labeldp", *words], check=True)


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    data = load_breast_cancer()
    diagnosis = data.target_names[data.target]
    frame = pl.DataFrame(data.data, schema=[str(name) for name in data.feature_names])
    frame = frame.with_columns(pl.Series("diagnosis", diagnosis))
    known, new = train_test_split(frame, test_size=0.25, random_state=0)
    known.write_parquet(OUT / "patients.parquet")
    new.drop("diagnosis").write_parquet(OUT / "new.parquet")

    table = Table(box=SIMPLE_HEAD, title="Accuracy by epsilon", title_justify="left")
    for name in ("epsilon", "measured privately", "95 % interval", "on new patients"):
        table.add_column(name, justify="right")
    for epsilon in EPSILONS:
        run = OUT / f"epsilon-{epsilon}"
        labels = ["--label", "diagnosis", "--classes", "malignant,benign"]
        labeldp("train", f"{OUT}/patients.parquet", *labels, "--epsilon", epsilon, "--budget", "8", "--out", str(run))
        labeldp("predict", str(run), f"{OUT}/new.parquet", "--out", f"{run}/predictions.csv")
        right = (pl.read_csv(run / "predictions.csv")["prediction"] == new["diagnosis"]).mean()
        score = read_report(run)["estimate"]
        interval = f"{score['low']:.0%} to {score['high']:.0%}"
        table.add_row(epsilon, f"{score['accuracy']:.1%}", interval, f"{right:.1%}")
    clean = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    clean.fit(known.drop("diagnosis").to_numpy(), known["diagnosis"].to_numpy())
    right = (clean.predict(new.drop("diagnosis").to_numpy()) == new["diagnosis"].to_numpy()).mean()
    table.add_row("no privacy", "", "", f"{right:.1%}")
    Console().print(table)
    print("The four runs used the same diagnoses, so what they cost adds up:")
    labeldp("ledger", "show", f"{OUT}/patients.parquet")


if __name__ == "__main__":
    main()
