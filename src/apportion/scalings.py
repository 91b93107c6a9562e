"""How features are scaled before a machine sees them, learned from the rows that it is trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import TransformerMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer, StandardScaler

from .relevance import relevance

SCALINGS = ("standard", "quantile", "relevance", "none")
QUANTILES = 200


def fitted_scaler(scaling: str, X: Any, y: NDArray[Any], weight: Any = None) -> TransformerMixin:
    """The transformer learned from rows X of classes y, arrays to arrays whatever the user has set for transformers of their own.

    `weight` (n,) is that of the rows, None: 1 each; ranks do not know it. Sparse data keep their zeros: they are divided by their
    spread and nothing else.
    """
    if weight is not None and np.ptp(weight) == 0:
        weight = None
    if scaling == "none":
        return _plain(FunctionTransformer(accept_sparse=True)).fit(X)
    if sparse.issparse(X):
        return _plain(StandardScaler(with_mean=False)).fit(X, sample_weight=weight)
    if scaling == "quantile":
        # ranks, spread as a normal distribution is; then variance 1, so that kernel widths mean the same under every scaling
        n_quantiles = min(QUANTILES, len(y))
        ranks = QuantileTransformer(n_quantiles=n_quantiles, output_distribution="normal", random_state=0)
        return _plain(make_pipeline(ranks, StandardScaler())).fit(X)
    scale = _plain(StandardScaler()).fit(X, sample_weight=weight)
    if scaling == "relevance":
        scale.scale_ /= relevance(scale.transform(X), y, weight)
    return scale


def _plain(transformer: Any) -> Any:
    return transformer.set_output(transform="default")
