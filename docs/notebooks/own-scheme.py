# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A scheme of your own, with memory
#
# A scheme says what travels. It is a frozen dataclass with pure methods: `encode` on the client, `decode` on the server. Clipping, noise, masks and
# engines live between the two, so a new scheme has all of them for nothing.

# %%
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

import sottovoce as sv
from sottovoce.checks import scheme_checks

# %% [markdown]
# ## One value for a block of weights
#
# Every client sends the mean of each block of four neighbouring weights; the four then move together. The server keeps a *momentum*: memory that
# `init` makes, `decode` updates, and the checkpoint stores.


# %%
@dataclass(frozen=True, eq=False, kw_only=True)
class Blocks(sv.Scheme):
    """One value for each block of `size` weights, with momentum at the server."""

    name: ClassVar[str] = "blocks"
    paper: ClassVar[str] = "yours"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up"
    size: int = 4
    memory: float = 0.5

    @property
    def length(self):
        return -(-self.dim // self.size)

    def init(self, params):
        return {**super().init(params), "velocity": np.zeros(self.length, np.float32)}

    def encode(self, update, seed, rng):
        padded = np.pad(update, (0, self.length * self.size - self.dim))
        return padded.reshape(-1, self.size).mean(1)

    def decode(self, mean, state, seed, rng):
        velocity = np.float32(self.memory) * state["velocity"] + mean
        return {"params": state["params"] + np.repeat(velocity, self.size)[: self.dim], "velocity": velocity}


# %% [markdown]
# ## Does it keep the contract?
#
# `scheme_checks` tries what every scheme promises: pure methods, the declared length, a division by the *expected* cohort, checkpoints, and more. A
# broken promise is one sentence.

# %%
scheme_checks(Blocks(size=3))
print("it does")

# %% [markdown]
# ## Run it, plain and private

# %%
training = {"clients": 100, "sample_rate": "1/5", "client_lr": 0.215, "rounds": 40, "evaluate_every": 10}
for size in (1, 2, 4):
    for promise in (None, sv.Privacy(epsilon=8, delta=1e-3)):
        result = sv.simulate("digits", "mlp", Blocks(size=size), promise, **training)
        kind = "private" if promise else "plain  "
        print(
            f"size {size}  {kind} {result['bytes_up_per_client_round']:7.0f} B up   accuracy {result['accuracy_final']:.3f}"
        )

# %% [markdown]
# Fewer values need less noise for the same promise: what a scheme loses by compressing, it may win back under privacy. That is the idea of FL-CS and
# FL-TOP. To use the scheme from an experiment file put the class into a module and write `[scheme] name = "my_module:Blocks"`.
