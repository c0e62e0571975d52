"""Federated training behind scikit-learn's interface: `fit`, `predict`, pipelines and cross-validation.

>>> import numpy as np, sottovoce as sv
>>> x = np.linspace(-1, 1, 40)[:, np.newaxis]
>>> model = sv.FederatedClassifier(rounds=20).fit(x, x[:, 0] > 0, groups=np.arange(40) % 4)
>>> bool(model.predict([[0.9]])[0])
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.api.privacy import Privacy
from sottovoce.api.simulate import simulate
from sottovoce.core.packages import require
from sottovoce.runs.saved_model import Prediction

require("an estimator", "sklearn", extra="sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets, type_of_target  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402


class _Federated(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: arguments by the names of `simulate`, and one run for each `fit`."""

    usual_model: ClassVar[str]
    usual_lr: ClassVar[float | None]  # None: less for more features

    def __init__(
        self,
        model: Any = None,
        *,
        scheme: Any = "fl-std",
        privacy: Privacy | Mapping[str, Any] | None = None,
        clients: int = 5,
        rounds: int = 60,
        sample_rate: float | str = 1,
        local_steps: int = 5,
        batch_size: int | str = "all",
        client_lr: float | None = None,
        keys: Mapping[str, Any] | None = None,
        random_state: int = 1,
    ) -> None:
        self.model = model
        self.scheme = scheme
        self.privacy = privacy
        self.clients = clients
        self.rounds = rounds
        self.sample_rate = sample_rate
        self.local_steps = local_steps
        self.batch_size = batch_size
        self.client_lr = client_lr
        self.keys = keys
        self.random_state = random_state

    def _train(self, x: NDArray[Any], y: NDArray[Any], groups: ArrayLike | None, **more: Any) -> None:
        """Play the run on all records: nothing is set aside, and nothing is measured."""
        shared: dict[str, Any] = {"clients": min(self.clients, len(y))}
        if groups is not None:
            shared = {"id": np.asarray(groups), "partition": "by-id"}
        usual = min(0.05, 1 / (1 + x.shape[1])) if self.usual_lr is None else self.usual_lr
        result = simulate(
            (x, y),
            self.usual_model if self.model is None else self.model,
            self.scheme,
            self.privacy,
            rounds=self.rounds,
            sample_rate=self.sample_rate,
            local_steps=self.local_steps,
            batch_size=self.batch_size,
            client_lr=usual if self.client_lr is None else self.client_lr,
            seed=int(self.random_state),
            **{"evaluation": "none", "workers": 1, **shared, **more, **(self.keys or {})},
        )
        # The result's folder is temporary; what is kept can be copied and pickled.
        self.saved_model_, self.summary_, self.n_iter_ = result.saved, result.summary, len(result.rounds)

    def _predict(self, x: ArrayLike) -> Prediction:
        check_is_fitted(self)
        return self.saved_model_.predict(validate_data(self, x, dtype=np.float32, reset=False))


class FederatedClassifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """Classifier of scikit-learn's kind that is trained by simulated sites.

    `fit(x, y, groups=site)` takes the owner of each record; without groups the records are dealt out to `clients`. The
    arguments are those of `simulate`, of which `keys` takes every other one. `summary_` holds epsilon, bytes and what
    else `summary.json` has.

    Guarantee: with `privacy` that of `simulate`, for the model alone: `score` on the sites' records is not covered. The
    classes are published, so a private fit needs them in `classes`; they are not read off the labels.
    """

    usual_model = "logistic"
    usual_lr = 0.5

    def __init__(
        self,
        model: Any = None,
        *,
        scheme: Any = "fl-std",
        privacy: Privacy | Mapping[str, Any] | None = None,
        classes: Sequence[Any] | None = None,
        clients: int = 5,
        rounds: int = 60,
        sample_rate: float | str = 1,
        local_steps: int = 5,
        batch_size: int | str = "all",
        client_lr: float | None = None,
        keys: Mapping[str, Any] | None = None,
        random_state: int = 1,
    ) -> None:
        super().__init__(
            model,
            scheme=scheme,
            privacy=privacy,
            clients=clients,
            rounds=rounds,
            sample_rate=sample_rate,
            local_steps=local_steps,
            batch_size=batch_size,
            client_lr=client_lr,
            keys=keys,
            random_state=random_state,
        )
        self.classes = classes

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train on records whose owners `groups` names, and return the estimator."""
        x, labels = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(labels)
        if self.classes is None and self.privacy is not None:
            self._train(x, labels, groups)  # refused: the classes would be read off the sites' labels
        self.classes_ = np.unique(labels) if self.classes is None else np.asarray(self.classes)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}; a classifier needs at least two classes")
        order = np.argsort(self.classes_, kind="stable")
        place = np.minimum(np.searchsorted(self.classes_, labels, sorter=order), len(order) - 1)
        numbers = order[place]
        if (strange := labels[self.classes_[numbers] != labels]).size:
            raise ValueError(f"y has a label that is none of classes={list(self.classes_)!r}: {strange[0]!r}")
        self._train(x, numbers, groups, classes=len(self.classes_))
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each record, as `y` had it."""
        chosen = self._predict(X).answers
        return cast(NDArray[Any], self.classes_[chosen])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of `classes_`."""
        return self._predict(X).probabilities


class FederatedRegressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """Regressor of scikit-learn's kind that is trained by simulated sites; as `FederatedClassifier`.

    Guarantee: as of `FederatedClassifier`; a private fit needs `keys={"label_range": (low, high)}`.
    """

    usual_model = "linear"
    usual_lr = None

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train on records whose owners `groups` names, and return the estimator."""
        x, labels = validate_data(self, X, y, dtype=np.float32, y_numeric=True)
        if type_of_target(labels, input_name="y").endswith("-multioutput"):
            raise ValueError(f"y must hold one number a record, got shape {labels.shape}")
        self._train(x, np.asarray(labels, np.float64), groups, task="regression")
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the value of each record."""
        return np.asarray(self._predict(X).answers, np.float64).ravel()
