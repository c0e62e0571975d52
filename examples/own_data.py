"""From a CSV file to a private model and a prediction; a client is a patient or two, and epsilon protects each."""

import csv
import os
from pathlib import Path

from sklearn.datasets import load_breast_cancer

import sottovoce as sv

ROUNDS = int(os.environ.get("ROUNDS", "60"))
COLUMNS = ["mean radius", "mean texture", "mean smoothness", "worst concave points"]
RANGES = [(5, 30), (5, 40), (0.05, 0.17), (0, 0.3)]  # known to every physician: nothing is taken from the patients

cancer = load_breast_cancer()
places = [list(cancer.feature_names).index(name) for name in COLUMNS]
with Path("patients.csv").open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow([*COLUMNS, "diagnosis"])
    rows.writerows([*record[places], cancer.target_names[kind]] for record, kind in zip(cancer.data, cancer.target))

schema = ['[label]\nclasses = ["benign", "malignant"]']
for name, (low, high) in zip(COLUMNS, RANGES):
    schema.append(f'[columns."{name}"]\nkind = "number"\nminimum = {low}\nmaximum = {high}\nmissing = "middle"')
Path("schema.toml").write_text("\n".join(schema), encoding="utf-8")

result = sv.simulate(
    "patients.csv", "logistic", privacy=sv.Privacy(epsilon=2, delta=1e-4), label="diagnosis", schema="schema.toml",
    clients=400, rounds=ROUNDS, sample_rate=0.25, local_steps=1, batch_size=2, client_lr=4.0, server={"momentum": 0.9},
)  # fmt: skip

print(result)
patient = {"mean radius": [20.6], "mean texture": [29.3], "mean smoothness": [0.12], "worst concave points": [0.26]}
print(f"a new patient: {result.predict(patient)[0]}, {result.predict_scores(patient).max():.0%} sure")
