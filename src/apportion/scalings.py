"""How features are scaled before a machine sees them, learned from the rows that it is trained on."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import TransformerMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer, StandardScaler

from .directions import directions
from .relevance import relevance

SCALINGS = ("standard", "quantile", "relevance", "directions", "none")
SUPERVISED = ("relevance", "directions")  # learned from the classes, too
QUANTILES = 200


class Scalings:
    """The scalings of rows X of classes y, each learned when it is asked for; what two of them start from is learned once.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
    y : array of shape (n,)
    weight : array of shape (n,), optional
        Of the rows; ranks do not know it.
    rows : array of indices, optional
        Learn from these rows of all; they are not copied for longer than it takes.
    """

    def __init__(self, X: Any, y: NDArray[Any], weight: Any = None, rows: Any = slice(None)) -> None:
        self._all, self.y, self._rows = X, y[rows], rows
        self.weight = None if weight is None or np.ptp(weight[rows]) == 0 else weight[rows]

    @property
    def X(self) -> Any:
        return self._all[self._rows]

    def fitted(self, scaling: str) -> TransformerMixin:
        """The transformer, arrays to arrays. Sparse data keep their zeros: they are divided by their spread and nothing else."""
        scale = self._fitted(scaling)
        return scale.set_output(
            transform="default"
        )  # whatever the user has set for transformers of their own

    def _fitted(self, scaling: str) -> Any:
        if scaling == "none":
            return FunctionTransformer(accept_sparse=True).fit(self.X)
        if sparse.issparse(self._all):
            return StandardScaler(with_mean=False).fit(self.X, sample_weight=self.weight)
        if scaling == "quantile":
            # ranks, spread as a normal distribution is; then variance 1, so that kernel widths mean the same under every scaling
            n_quantiles = min(QUANTILES, len(self.y))
            ranks = QuantileTransformer(n_quantiles=n_quantiles, output_distribution="normal", random_state=0)
            return make_pipeline(ranks, StandardScaler()).set_output(transform="default").fit(self.X)
        scale = self._standard()
        if scaling == "relevance":
            scale.scale_ /= self.weights
        if scaling == "directions":
            # of which only the transform is wanted: X @ components_.T
            turn = TruncatedSVD(scale.n_features_in_)
            turn.components_ = directions(scale.transform(self.X), self.y, self.weights, self.weight)
            return make_pipeline(scale, turn)
        return scale

    def _standard(self) -> StandardScaler:
        return StandardScaler().set_output(transform="default").fit(self.X, sample_weight=self.weight)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """(d,) of the columns."""
        return relevance(self._standard().transform(self.X), self.y, self.weight)
