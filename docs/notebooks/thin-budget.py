# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What fits into 200 kB and 10 joules?
#
# A sensor may send 200 kB in a whole run and spend ten joules on it. `plan` tells what a run will cost before anybody trains, and `--solve` looks
# for settings that keep limits.

# %% [markdown]
# ## What the quickstart would cost
#
# A device profile says what a byte and a second of work cost; the plan compares several, and every number in them has a source
# (`sottovoce devices phone-lte`). Joules and
# hours are good to a factor of two to five: they are for comparing.

# %%
# !sottovoce examples get quickstart
# !sottovoce plan quickstart.toml --set privacy.epsilon=8 --set privacy.delta=1e-3 --set privacy.clip_norm=1

# %% [markdown]
# ## From Python, over schemes

# %%
import sottovoce as sv

changes = ["privacy.epsilon=8", "privacy.delta=1e-3"]
for scheme in ("fl-std", "fl-sign", "fl-rnd", "fl-basic"):
    bounded = [] if scheme == "fl-sign" else ["privacy.clip_norm=1"]  # signs are bounded already
    costs = sv.plan(sv.load("quickstart.toml", [*changes, *bounded, f"scheme.name={scheme}"]))
    phone = next(device for device in costs["devices"] if device["name"] == "phone-lte")["joules_per_client_run"]
    size = costs["bytes_up_per_client_round"] * costs["participations_per_client"] / 1000
    print(f"{scheme:9} {size:6.0f} kB up in the run of a client   phone: {phone['default']:.1f} J")

# %% [markdown]
# ## Let it solve
#
# Limits are written as you would say them. Each row that comes back keeps all of them.

# %%
# !sottovoce plan quickstart.toml --set privacy.delta=1e-3 --set privacy.clip_norm=1 --solve "epsilon<=8, up<=200kB, joules<=10"
