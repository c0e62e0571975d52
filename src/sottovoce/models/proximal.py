"""Hold clients near the round's model: FedProx.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020: a client minimises its loss plus
mu / 2 |w - w_t|^2, with w_t the model it was sent. Every torch trainer adds the gradient of that term here to its own.
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["proximal_gradient"]


def proximal_gradient(params: Tensor, start: Tensor, mu: float) -> Tensor:
    """Return mu (w - w_t), the gradient of the proximal term; `params` is w and `start` is w_t.

    It belongs into the gradient, before momentum or Adam see it. For plain SGD it may also be subtracted, times the
    learning rate, after the step of the loss, if it was computed before that step.
    """
    return params.detach().sub(start).mul_(mu)
