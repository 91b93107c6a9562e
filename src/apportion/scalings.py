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
    """The scalings of rows X of classes y, each learned when it is asked for; what two of them start from is learned once."""

    def __init__(self, X: Any, y: NDArray[Any]) -> None:
        self.X, self.y = X, y

    def fitted(self, scaling: str) -> TransformerMixin:
        """The transformer. Sparse data keep their zeros: they are divided by their spread and nothing else."""
        if scaling == "none":
            return FunctionTransformer(accept_sparse=True).fit(self.X)
        if sparse.issparse(self.X):
            return StandardScaler(with_mean=False).fit(self.X)
        if scaling == "quantile":
            # ranks, spread as a normal distribution is; then variance 1, so that kernel widths mean the same under every scaling
            n_quantiles = min(QUANTILES, len(self.y))
            ranks = QuantileTransformer(n_quantiles=n_quantiles, output_distribution="normal", random_state=0)
            return make_pipeline(ranks, StandardScaler()).fit(self.X)
        scale = StandardScaler().fit(self.X)
        if scaling == "relevance":
            scale.scale_ /= self.weights
        if scaling == "directions":
            # of which only the transform is wanted: X @ components_.T
            turn = TruncatedSVD(self.X.shape[1])
            turn.components_ = directions(scale.transform(self.X), self.y, self.weights)
            return make_pipeline(scale, turn)
        return scale

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        return relevance(StandardScaler().fit_transform(self.X), self.y)
