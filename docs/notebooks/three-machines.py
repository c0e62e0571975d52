# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Deploy to three machines, on one
#
# A federation has a broker, a server and nodes; each is a process with keys of its own, and all connections are encrypted on both sides. `serve --local`
# plays all of them on this machine with real processes, a real broker, real keys and real secure sums. Nothing is simulated but the distance.
# `pip install 'sottovoce[federation]'`.

# %% [markdown]
# ## Four nodes, a broker and a server

# %%
# !sottovoce examples get quickstart
# !sottovoce serve quickstart.toml --local 4 --out trial --quiet --set data.clients=4 --set cohort.sample_rate=1 --set experiment.rounds=5

# %% [markdown]
# ## What the run folder says
#
# The folder of a federation is that of a simulation: the same files, read by the same commands.

# %%
# !sottovoce report trial

# %%
import sottovoce as sv

result = sv.result("trial")
print("accuracy", result["accuracy_final"], " bytes up", result["bytes_up_total"], " down", result["bytes_down_total"])

# %% [markdown]
# ## The same on three real machines
#
# The steps are the same, by hand. On the server's machine, once:
#
# ```sh
# sottovoce keys init fed --broker broker.example.org
# sottovoce keys node fed north
# sottovoce keys node fed south
# sottovoce keys roster fed
# ```
#
# Each node gets its own folder `fed/nodes/NAME`, the experiment file and the broker's address, and keeps its records:
#
# ```sh
# sottovoce join mqtts://broker.example.org:8883 --run experiment.toml --keys north --data hospital.csv
# ```
#
# The server starts with `sottovoce serve experiment.toml --keys fed --broker ...`. [Three laptops, step by step](../deploy.md) has every line, with what
# each party can do and cannot.
