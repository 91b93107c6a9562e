"""A fitted machine as an ONNX graph in double precision: skl2onnx writes the steps of a pipeline, this package the machines.

    raw scores     X @ coef.T + intercept,  or  kernel(X, support vectors) @ dual_coef + intercept      (n, m)
    class scores   what the loss table decides by: PerClass or PairVotes                                 (n, k)
    label          the class of the largest score                                                        (n,)

ApportionedSVCCV sums up the class scores of its machines, calibrates them, and decides by the least expected cost. Float32 would
flip decisions that lie close to a boundary, so inputs are double: float32 rows are to be widened first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..estimators import _ApportionedClassifier
from ..tuning import ApportionedSVCCV
from .machines import convert_machine, declare_outputs, shape_of_outputs
from .steps import CONVERTERS, SHAPES


def convert(model: BaseEstimator, X_sample: Any) -> Any:
    """The `onnx.ModelProto` of a fitted machine or pipeline; see `apportion.persist.to_onnx`."""
    try:
        import onnxruntime  # noqa: F401
        from skl2onnx import convert_sklearn
    except ImportError as error:
        raise ImportError(
            f"to_onnx needs skl2onnx and onnxruntime ({error}): pip install apportion[persist]"
        ) from None
    model = getattr(model, "best_estimator_", model)  # of a search
    check_is_fitted(model)
    first: Any = model
    last: Any = model
    while isinstance(first, Pipeline):
        first = first[0]
    while isinstance(last, Pipeline):
        last = last[-1]
    if not isinstance(last, (_ApportionedClassifier, ApportionedSVCCV)):
        raise ValueError(
            f"to_onnx exports machines of this package and pipelines that end in one; got {type(last).__name__}."
        )
    machine = type(last)
    try:
        graph = convert_sklearn(
            model,
            name="apportion",
            initial_types=_input_types(X_sample, by_name=isinstance(first, ColumnTransformer)),
            custom_parsers={machine: declare_outputs},
            custom_shape_calculators={machine: shape_of_outputs, **SHAPES},
            custom_conversion_functions={machine: convert_machine, **CONVERTERS},
        )
    except ValueError:
        raise
    except Exception as error:  # MissingConverter, NotImplementedError, RuntimeError, ...
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"skl2onnx cannot export a step of this pipeline: {reason}") from error
    _check(graph, model, X_sample)
    return graph


def _check(graph: Any, model: Any, X_sample: Any) -> None:
    """The graph must decide on `X_sample` as `predict` does: not every converter of skl2onnx is right in double precision."""
    import onnxruntime
    from onnx import TensorProto

    columns = {entry.name: entry.type.tensor_type.elem_type for entry in graph.graph.input}
    if list(columns) == ["X"]:
        feed = {"X": np.asarray(X_sample.toarray() if sparse.issparse(X_sample) else X_sample, dtype=float)}
    else:
        whole = X_sample.select_dtypes(exclude="number").notna().all(axis=1)  # ONNX has no missing string
        X_sample = X_sample[whole]
        feed = {
            name: X_sample[[column]].to_numpy(dtype=float if kind == TensorProto.DOUBLE else object)
            for (name, kind), column in zip(
                columns.items(), X_sample.columns, strict=True
            )  # names may be changed
        }
    if not X_sample.shape[0]:
        return
    try:
        session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        (labels,) = session.run(["label"], feed)
    except Exception as error:  # onnxruntime has kinds of its own
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"skl2onnx made a graph of this pipeline that does not run: {reason}") from error
    wrong = np.flatnonzero(labels != np.asarray(model.predict(X_sample)))
    if len(wrong):
        raise ValueError(
            f"the graph that skl2onnx made of this pipeline decides otherwise on {len(wrong)} rows of X_sample, the first is row "
            f"{wrong[0]}; a step of it is not exact in ONNX."
        )


def _input_types(X: Any, by_name: bool) -> list[tuple[str, Any]]:
    """One input "X" (n, d); for a ColumnTransformer one a column (n, 1), so that they may differ in type."""
    from skl2onnx.common.data_types import DoubleTensorType, StringTensorType

    if by_name and hasattr(X, "columns"):
        numbers = set(X.select_dtypes(include="number").columns)
        return [
            (str(name), (DoubleTensorType if name in numbers else StringTensorType)([None, 1]))
            for name in X.columns
        ]
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(f"X_sample has shape {shape}; it must be rows of the data, of shape (n, d).")
    return [("X", DoubleTensorType([None, shape[1]]))]
