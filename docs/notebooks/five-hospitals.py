# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Five hospitals with CSV files: one patient is protected
#
# Five hospitals cannot hide one among five. What they must promise is about *a patient*, and there are thousands. So the unit of privacy is the
# record: every hospital clips what each patient contributes, adds everything up, and the noise is added once.
#
# The tables here are **synthetic**: made from a seed, so that the notebook runs anywhere.

# %%
import csv
from pathlib import Path

import numpy as np

import sottovoce as sv

# %% [markdown]
# ## Five files

# %%
rng = np.random.default_rng(7)


def patients(count):
    """Yield rows: age, pulse, sex, diabetes, died."""
    for _ in range(count):
        age, pulse = rng.integers(18, 95), rng.normal(80, 15)
        sex, diabetes = rng.choice(["female", "male"]), rng.choice(["no", "yes"], p=[0.8, 0.2])
        risk = 0.07 * (age - 70) + 0.04 * (pulse - 80) + 0.4 * (sex == "male") + 0.9 * (diabetes == "yes")
        yield (
            age,
            round(float(np.clip(pulse, 30, 200))),
            sex,
            diabetes,
            "yes" if rng.random() < 1 / (1 + np.exp(-risk)) else "no",
        )


header = ["age", "pulse", "sex", "diabetes", "died"]
for site in range(1, 6):
    with Path(f"hospital_{site}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *patients(2000)])
with Path("elsewhere.csv").open("w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([header, *patients(3000)])
print(Path("hospital_1.csv").read_text()[:120])

# %% [markdown]
# ## A schema
#
# Ranges and categories are written down by people who know medicine, not read off the patients: a range that is read off the records tells who is
# oldest. `sottovoce start hospital_*.csv --label died` drafts such a file.

# %%
Path("schema.toml").write_text(
    """
[label]
classes = ["no", "yes"]
[columns.age]
kind = "number"
minimum = 0
maximum = 110
[columns.pulse]
kind = "number"
minimum = 30
maximum = 200
[columns.sex]
kind = "category"
categories = ["female", "male"]
[columns.diabetes]
kind = "category"
categories = ["no", "yes"]
""",
    encoding="utf-8",
)

# %% [markdown]
# ## Plan, then train
#
# The promise to ask for is `epsilon_server`: it holds against the server that adds everything up. The model is measured on the patients of a sixth
# hospital, which takes no part: epsilon does not cover them. On patients who take part a measurement would be charged.

# %%
common = {
    "label": "died",
    "schema": "schema.toml",
    "test": "elsewhere.csv",
    "rounds": 30,
    "client_lr": 1.0,
    "local_steps": 1,
    "server": {"lr": 4.0, "momentum": 0.5},
}
sites = [f"hospital_{site}.csv" for site in range(1, 6)]
patient = sv.Privacy(unit="record", epsilon_server=1, delta=1e-5, clip_norm=1.0)

private = sv.simulate(sites, "logistic", privacy=patient, **common)
private

# %%
for name in ("unit", "epsilon", "epsilon_server", "epsilon_site", "delta"):
    print(f"{name:16} {private[name]}")

# %% [markdown]
# `epsilon` holds against anybody who reads the model, `epsilon_server` against the server, `epsilon_site` against another hospital.
#
# ## What would it be without privacy?

# %%
plain = sv.simulate(
    sites,
    "logistic",
    **{**common, "local_steps": 50, "batch_size": 100, "client_lr": 0.3, "sample_rate": 1, "server": {}},
)
for name, result in {"private": private, "plain": plain}.items():
    print(f"{name:8} accuracy {result['accuracy_final']:.3f}   AUROC {result['auroc_final']:.3f}")

# %% [markdown]
# ## Use the model

# %%
new = {"age": [84, 35], "pulse": [95, 70], "sex": ["male", "female"], "diabetes": ["yes", "no"]}
print(private.predict(new), private.predict_scores(new).round(2))

# %% [markdown]
# A simulation draws its noise from a seed and protects nobody: it is the rehearsal. The same file runs between real machines with `sottovoce serve`
# and `sottovoce join`, where every hospital keeps its own table and its own ledger: [the medical case](../medical.md). A person with several rows needs
# `unit = "person"`.
