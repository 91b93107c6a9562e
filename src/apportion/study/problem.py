"""A training set, and what methods share on it: inner folds, scaled features, kernels, out-of-fold probabilities.

One split of one data set is judged by many methods under many costs. Whatever does not depend on the method or on the costs is
computed once and remembered here, so that a study costs little more than its solvers do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from ..relevance import relevance

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

FOLDS = 5
REMEMBERED = 400e6  # bytes of kernel values that a problem keeps


class _Memo:
    """What was computed is remembered under a key."""

    def __init__(self) -> None:
        self._memo: dict[Hashable, Any] = {}

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """`compute()`, remembered under `key`."""
        if key not in self._memo:
            self._memo[key] = compute()
        return self._memo[key]


class Part(_Memo):
    """Rows to train on and rows to decide on, scaled by the former; kernels on both."""

    def __init__(self, X: Array, y: Codes, X_held: Array) -> None:
        super().__init__()
        scaler = StandardScaler().fit(X)
        self.X, self.y, self.X_held = scaler.transform(X), y, scaler.transform(X_held)
        self._distances: dict[str, tuple[Array, Array]] = {}
        self._kernels: dict[tuple[str, float], tuple[Array, Array]] = {}

    def kernel(self, kind: str, width: float) -> tuple[Array, Array]:
        """(n, n) and (n_held, n): exp(-width / d * distance), squared Euclidean (rbf) or L1 (laplacian).

        "rbf weighed" and "laplacian weighed" multiply each column by what it tells about the classes, as ours may.
        """
        if (kind, width) not in self._kernels:
            if kind not in self._distances:
                name, _, weighed = kind.partition(" ")
                metric = {"rbf": "sqeuclidean", "laplacian": "cityblock"}[name]
                w = self.once("weights", lambda: relevance(self.X, self.y)) if weighed else 1.0
                X, X_held = self.X * w, self.X_held * w
                self._distances[kind] = (cdist(X, X, metric), cdist(X_held, X, metric))
            gamma = width / self.X.shape[1]
            own, held = (np.exp(-gamma * distance) for distance in self._distances[kind])
            if sum(a.nbytes + b.nbytes for a, b in self._kernels.values()) > REMEMBERED / (FOLDS + 1):
                self._kernels.clear()
            self._kernels[kind, width] = own, held
        return self._kernels[kind, width]


class Problem(_Memo):
    """A training set (X, y) with its inner folds.

    Parameters
    ----------
    X : array of shape (n, d)
        Numbers, not scaled.
    y : array of shape (n,)
        Classes as 0 .. k - 1, each there.
    seed : int, default=0
        Of the inner folds and of every method that draws.
    """

    def __init__(self, X: Array, y: Codes, seed: int = 0) -> None:
        super().__init__()
        self.X, self.y, self.seed = X, y, seed
        self.k = int(y.max()) + 1
        folds = max(2, min(FOLDS, int(np.bincount(y).min())))
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
        self.inner = [(train, held) for train, held in splitter.split(X, y)]
        self._judged: tuple[Array, Part] | None = None

    @property
    def parts(self) -> list[Part]:
        """One part for each inner fold."""
        return self.once(
            "parts", lambda: [Part(self.X[train], self.y[train], self.X[held]) for train, held in self.inner]
        )

    def whole(self, X: Array) -> Part:
        """All rows to train on, `X` to decide on; remembered for the last X."""
        # compared by value with a copy: the caller may change X in place, as permutation_importance does
        if self._judged is None or not np.array_equal(self._judged[0], X):
            self._judged = X.copy(), Part(self.X, self.y, X)
        return self._judged[1]

    def out_of_fold(self, decide: Callable[[Part], NDArray[Any]]) -> NDArray[Any]:
        """What `decide` says on the held rows of each part, put together: (n, ...)."""
        first = np.asarray(decide(self.parts[0]))
        out = np.empty((len(self.y), *first.shape[1:]), dtype=first.dtype)
        out[self.inner[0][1]] = first
        for part, (_, held) in zip(self.parts[1:], self.inner[1:], strict=True):
            out[held] = decide(part)
        return out
