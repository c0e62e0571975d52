"""Learn a number with privacy, measure it by a function of your own, and export the model for other programs."""

import os

import numpy as np
from sklearn.datasets import load_diabetes

import sottovoce as sv

ROUNDS = int(os.environ.get("ROUNDS", "60"))

diabetes = load_diabetes()  # its columns come scaled over all patients; scale your own by public ranges (a schema)
x, y = (10 * diabetes.data).astype(np.float32), diabetes.target  # how far the disease went in a year


def within_50(values, labels):
    """Return the share of patients whose number is met by 50 or better."""
    return (abs(values - labels) < 50).mean()


# The last 100 patients are declared public: the model is measured on them without noise.
result = sv.simulate(
    (x[:342], y[:342]), "linear", privacy=sv.Privacy(epsilon=8, delta=1e-3), task="regression", label_range=(0, 350),
    test=(x[342:], y[342:]), test_public=True, metrics=[within_50], clients=342, rounds=ROUNDS, sample_rate=0.5,
    local_steps=1, batch_size=1, client_lr=1.0,
)  # fmt: skip

print(result)
print(f"off by {result['mae_final']:.0f} on average, within 50 for {result['within_50_final']:.0%}")
print(f"a new patient: {result.predict(x[342:343])[0]:.0f}; the model: {result.export('model.npz')}")
