# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Attack it, and audit it
#
# Two questions that a promise must survive: what can malicious *clients* do to the model, and does the *build* keep the epsilon that it prints?

# %%
import sottovoce as sv

training = {"clients": 100, "sample_rate": "1/5", "client_lr": 0.215, "rounds": 40, "evaluate_every": 10}

# %% [markdown]
# ## A tenth of the clients is malicious
#
# `sottovoce attacks` lists the attacks. `gradient-ascent` climbs the loss instead of descending. FL-SIGN gives every client one vote a weight, FL-STD as much
# weight as it likes.

# %%
for scheme in ("fl-std", "fl-sign"):
    for attack in (None, {"attack": "gradient-ascent", "fraction": 0.1}):
        result = sv.simulate("digits", "mlp", scheme, threat=attack, **training)
        print(f"{scheme:8} {'10 % malicious' if attack else 'all honest':15} accuracy {result['accuracy_final']:.3f}")

# %% [markdown]
# ## A defence

# %%
defended = sv.simulate(
    "digits",
    "mlp",
    "fl-std",
    threat={"attack": "gradient-ascent", "fraction": 0.1},
    defence="median",
    sampling="fixed",
    **training,
)
print("fl-std with the median of each coordinate:", defended["accuracy_final"])

# %% [markdown]
# A defence looks at single updates, which a secure sum hides: robustness and privacy pull apart. [Secret ballots](../ballots.md) are our way to have both.
#
# ## Does the build keep its epsilon?
#
# `audit` puts canaries into the real pipeline and bounds epsilon from *below* by what it can tell apart. A correct build stays below the proven number;
# a build that forgets half of its noise is accused, with exit code 3.

# %%
# !sottovoce examples get quickstart
# !sottovoce audit quickstart.toml --quick --quiet --set privacy.epsilon=8 --set privacy.delta=1e-3 --set privacy.clip_norm=1
