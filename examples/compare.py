"""Compare four schemes with their private twins: accuracy against bytes and epsilon."""

import os

import sottovoce as sv

ROUNDS = int(os.environ.get("ROUNDS", "50"))
SCHEMES = ("fl-std", "fl-sign", "fl-cs", "fl-top")
TRAINING = {"clients": 100, "sample_rate": "1/5", "client_lr": 0.215, "rounds": ROUNDS, "evaluate_every": 5}

print(f"{'scheme':8} {'epsilon':>8} {'accuracy':>9} {'bytes up':>9} {'bytes down':>11}")
for scheme in SCHEMES:
    for privacy in (None, sv.Privacy(epsilon=8, delta=1e-3)):
        keys = {} if scheme in ("fl-std", "fl-sign") else {"ratio": 0.1}
        result = sv.simulate("digits", "mlp", scheme, privacy, scheme_keys=keys, **TRAINING)
        print(
            f"{scheme:8} {result['epsilon'] or float('inf'):8.2f} {result['accuracy_final']:9.4f} "
            f"{result['bytes_up_per_client_round']:9.0f} {result['bytes_down_per_client_round']:11.0f}"
        )
