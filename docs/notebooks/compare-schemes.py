# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Compare schemes under privacy
#
# You have a hundred clients, and every one of them holds a few images. Which scheme gives the best model for the bytes that it
# sends, and what does privacy cost? Two minutes on a laptop; `pip install 'sottovoce[png]'`.

# %%
import matplotlib.pyplot as plt

import sottovoce as sv

# %% [markdown]
# ## One run
#
# `simulate` plays a whole federation on this machine. The data set `digits` comes with the package: 1,797 handwritten digits, 8 x 8 pixels.

# %%
training = {"clients": 100, "sample_rate": "1/5", "client_lr": 0.215, "rounds": 40, "evaluate_every": 5}

plain = sv.simulate("digits", "mlp", "fl-std", **training)
plain

# %% [markdown]
# ## The same with a promise
#
# `epsilon` bounds what anybody can learn about one *client* from everything that the run publishes. `epsilon_server` is the bound for the server
# itself, which knows whom it asked. The second is always the larger one.

# %%
private = sv.simulate("digits", "mlp", "fl-std", sv.Privacy(epsilon=8, delta=1e-3), **training)
print("accuracy ", plain["accuracy_final"], "->", private["accuracy_final"])
print("epsilon  ", private["epsilon"], "against outsiders,", round(private["epsilon_server"], 1), "against the server")

# %% [markdown]
# ## Four schemes and their private twins
#
# FL-STD sends every weight, FL-SIGN one bit of each, FL-CS random combinations of them, FL-TOP a fixed tenth.

# %%
rows = []
for scheme, keys in {"fl-std": {}, "fl-sign": {}, "fl-cs": {"ratio": 0.1}, "fl-top": {"ratio": 0.1}}.items():
    for promise in (None, sv.Privacy(epsilon=8, delta=1e-3)):
        result = sv.simulate("digits", "mlp", scheme, promise, scheme_keys=keys, **training)
        rows.append(
            (scheme, promise is not None, result["bytes_up_per_client_round"], result["accuracy_final"], result)
        )
        print(
            f"{scheme:8} {'private' if promise else 'plain':8} {rows[-1][2]:8.0f} B up a round   accuracy {rows[-1][3]:.3f}"
        )

# %% [markdown]
# ## Accuracy against bytes
#
# Further left is fewer bytes, higher is better. A filled point is private.

# %%
figure, axes = plt.subplots(figsize=(7, 4))
for scheme, is_private, size, accuracy, _ in rows:
    axes.scatter(size, accuracy, color="teal", facecolors="teal" if is_private else "none")
    axes.annotate(scheme, (size, accuracy), textcoords="offset points", xytext=(6, 3))
axes.axhline(0.1, color="grey", linestyle=":")
axes.text(axes.get_xlim()[0], 0.11, " chance", color="grey")
axes.set(xscale="log", xlabel="bytes up, a client and round", ylabel="accuracy, final round")
plt.show()

# %% [markdown]
# One seed is an anecdote. `seeds=5` (or `sottovoce run FILE --seeds 5`) plays five and gives mean and spread; on records of real people each of them
# is charged. The next step: [a scheme of your own](own-scheme.ipynb).
