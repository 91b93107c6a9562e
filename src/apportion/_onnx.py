"""A fitted machine as an ONNX graph in double precision: skl2onnx writes the steps of a pipeline, this file the machines.

    raw scores     X @ coef.T + intercept,  or  kernel(X, support vectors) @ dual_coef + intercept      (n, m)
    class scores   what the loss table decides by: PerClass or PairVotes                                 (n, k)
    label          the class of the largest score                                                        (n,)

Float32 would flip decisions that lie close to a boundary, so inputs are double: float32 rows are to be widened first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .estimators import ApportionedSVC, _ApportionedClassifier
from .losses import PairVotes, PerClass

KERNELS = ("rbf", "laplacian", "linear", "poly", "sigmoid")


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
    last: Any = model
    while isinstance(last, Pipeline):
        last = last[-1]
    if not isinstance(last, _ApportionedClassifier):
        raise ValueError(
            f"to_onnx exports machines of this package and pipelines that end in one; got {type(last).__name__}."
        )
    machine = type(last)
    try:
        graph = convert_sklearn(
            model,
            name="apportion",
            initial_types=_input_types(X_sample),
            custom_parsers={machine: _declare_outputs},
            custom_shape_calculators={machine: _shape_of_outputs, SimpleImputer: _shape_of_imputed},
            custom_conversion_functions={machine: _convert_machine, SimpleImputer: _convert_imputer},
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

    if hasattr(X_sample, "columns"):  # a missing string has no place in ONNX
        X_sample = X_sample[X_sample.select_dtypes(exclude="number").notna().all(axis=1)]
        feed = {
            entry.name: X_sample[[entry.name]].to_numpy(
                dtype=float if entry.type.tensor_type.elem_type == TensorProto.DOUBLE else object
            )
            for entry in graph.graph.input
        }
    else:
        feed = {"X": np.asarray(X_sample.toarray() if sparse.issparse(X_sample) else X_sample, dtype=float)}
    if not len(X_sample):
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


def _input_types(X: Any) -> list[tuple[str, Any]]:
    """One input "X" (n, d) of an array; of a DataFrame one input (n, 1) a column, so that columns may differ in type."""
    from skl2onnx.common.data_types import DoubleTensorType, StringTensorType

    if hasattr(X, "columns"):
        numbers = set(X.select_dtypes(include="number").columns)
        return [
            (str(name), (DoubleTensorType if name in numbers else StringTensorType)([None, 1]))
            for name in X.columns
        ]
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(f"X_sample has shape {shape}; it must be rows of the data, of shape (n, d).")
    return [("X", DoubleTensorType([None, shape[1]]))]


# ---------------------------------------------------------------- what skl2onnx asks of a converter


def _declare_outputs(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType

    operator = scope.declare_local_operator(f"Apportion{type(model).__name__}", model)
    operator.inputs = inputs
    operator.outputs.append(scope.declare_local_variable("label", Int64TensorType()))
    operator.outputs.append(scope.declare_local_variable("scores", DoubleTensorType()))
    return operator.outputs


def _shape_of_outputs(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType

    classes = operator.raw_operator.classes_
    kind = Int64TensorType if classes.dtype.kind in "iub" else StringTensorType
    operator.outputs[0].type = kind([None])
    operator.outputs[1].type = DoubleTensorType([None, len(classes)])


def _convert_machine(scope: Any, operator: Any, container: Any) -> None:
    machine = operator.raw_operator
    graph = _Graph(scope, container)
    scores = _class_scores(
        graph, machine.table_.decide, _raw_scores(graph, machine, graph.double(operator.inputs))
    )
    classes = machine.classes_
    if classes.dtype.kind in "iub":
        names = graph.constant(classes.astype(np.int64))
    elif all(isinstance(label, str) for label in classes.tolist()):
        names = graph.constant(classes.astype(str))
    else:
        raise ValueError(
            f"labels of an ONNX graph are integers or strings; the classes are {classes.tolist()!r}."
        )
    best = graph.add("ArgMax", scores, axis=1, keepdims=0)
    graph.add("Gather", names, best, out=operator.outputs[0].full_name, axis=0)
    graph.add("Identity", scores, out=operator.outputs[1].full_name)


# ---------------------------------------------------------------- the machines as graphs


class _Graph:
    """Nodes and constants, by name."""

    def __init__(self, scope: Any, container: Any) -> None:
        self.scope, self.container = scope, container

    def add(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """A node of one output; returns the name of that."""
        name = out or self.scope.get_unique_variable_name(op.lower())
        unique = self.scope.get_unique_operator_name(op)
        self.container.add_node(op, list(inputs), [name], name=unique, **attributes)
        return name

    def constant(self, values: Any) -> str:
        from onnx import numpy_helper
        from onnx.helper import make_tensor, np_dtype_to_tensor_dtype

        values = np.asarray(values)
        name = self.scope.get_unique_variable_name("constant")
        if values.dtype.kind == "U":
            tensor = make_tensor(
                name,
                np_dtype_to_tensor_dtype(np.dtype(object)),
                values.shape,
                [str(v).encode() for v in values],  # type: ignore[misc]
            )
            self.container.initializers.append(tensor)
        else:
            self.container.add_initializer(
                name, None, None, numpy_helper.from_array(np.ascontiguousarray(values), name)
            )
        return name

    def double(self, inputs: Any) -> str:
        """The inputs as one double matrix (n, d)."""
        from onnx import TensorProto

        parts = [self.add("Cast", variable.full_name, to=TensorProto.DOUBLE) for variable in inputs]
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)

    def times(self, left: str, right: Any) -> str:
        return self.add("MatMul", left, self.constant(right))

    def plus(self, left: str, right: Any) -> str:
        return self.add("Add", left, self.constant(right))


def _raw_scores(graph: _Graph, machine: Any, X: str) -> str:
    if isinstance(machine, ApportionedSVC):
        return graph.plus(graph.times(_kernel(graph, machine, X), machine.dual_coef_), machine.intercept_)
    return graph.plus(graph.times(X, machine.coef_.T), machine.intercept_)


def _kernel(graph: _Graph, machine: ApportionedSVC, X: str) -> str:
    """(n, n_support) kernel values, by the formulas of `apportion.kernels.cross_kernel`."""
    kernel, gamma, support = machine.kernel, machine._gamma, machine.support_vectors_
    if not isinstance(kernel, str) or kernel not in KERNELS:
        raise ValueError(
            f"kernel={kernel!r} has no ONNX graph; machines with the kernels {', '.join(KERNELS)} do."
        )
    Z = np.asarray(support.toarray() if hasattr(support, "toarray") else support, dtype=float)  # (s, d)
    if kernel in ("rbf", "laplacian"):  # they depend on differences only; centred data lose fewer digits
        centre = Z.mean(axis=0)
        X, Z = graph.plus(X, -centre), Z - centre
    if kernel == "laplacian":
        return graph.add(
            "Exp", _negative_distances(graph, graph.add("Mul", X, graph.constant(gamma)), gamma * Z)
        )
    # gamma goes into Z: a runtime may join a scalar factor and a product, and keep the factor as a float32
    factor = {"linear": 1.0, "rbf": 2 * gamma}.get(kernel, gamma)
    product = graph.times(X, factor * Z.T)
    if kernel == "rbf":  # 2 g x.z - g |x|^2 - g |z|^2
        square = graph.add("ReduceSumSquare", X, graph.constant([1]), keepdims=1)
        product = graph.add("Sub", product, graph.add("Mul", square, graph.constant(gamma)))
        return graph.add("Exp", graph.plus(product, -gamma * np.einsum("ij,ij->i", Z, Z)))
    if kernel == "linear":
        return product
    product = graph.plus(product, float(machine.coef0))
    if kernel == "sigmoid":
        return graph.add("Tanh", product)
    return graph.add("Pow", product, graph.constant(float(machine.degree)))


def _negative_distances(graph: _Graph, X: str, Z: Any) -> str:
    """(n, s) of -sum_t |x_t - z_t|, a row of X at a time: all at once would take n s d numbers."""
    from onnx import TensorProto, helper

    row, distances = (
        graph.scope.get_unique_variable_name("row"),
        graph.scope.get_unique_variable_name("distances"),
    )
    points, axis = graph.constant(Z), graph.constant([1])
    steps = [graph.scope.get_unique_variable_name("step") for _ in range(3)]
    body = helper.make_graph(
        [
            helper.make_node("Sub", [points, row], [steps[0]]),
            helper.make_node("Abs", [steps[0]], [steps[1]]),
            helper.make_node("ReduceSum", [steps[1], axis], [steps[2]], keepdims=0),
            helper.make_node("Neg", [steps[2]], [distances]),
        ],
        "distances_of_a_row",
        [helper.make_tensor_value_info(row, TensorProto.DOUBLE, [Z.shape[1]])],
        [helper.make_tensor_value_info(distances, TensorProto.DOUBLE, [Z.shape[0]])],
    )
    return graph.add("Scan", X, body=body, num_scan_inputs=1)


def _class_scores(graph: _Graph, decide: Any, raw: str) -> str:
    """(n, k), as `decide` makes them of the raw scores (n, m)."""
    if isinstance(decide, PerClass):
        return graph.plus(graph.add("Mul", raw, graph.constant(decide.scale)), decide.offset)
    if isinstance(decide, PairVotes):
        return _votes(graph, decide, raw)
    raise ValueError(
        f"a loss table that decides by {type(decide).__name__} has no ONNX graph; PerClass and PairVotes have one."
    )


def _votes(graph: _Graph, decide: PairVotes, raw: str) -> str:
    from onnx import TensorProto

    k, share = len(decide.reach), 1 / decide.ratio
    first, second = np.triu_indices(k, 1)
    won_by_first, won_by_second = np.eye(k)[first], np.eye(k)[second]  # (pairs, k)
    slope = share[first] / decide.reach[first] + share[second] / decide.reach[second]
    lead = graph.plus(graph.add("Mul", raw, graph.constant(slope)), share[second] - share[first])
    won = graph.add("Cast", graph.add("Greater", lead, graph.constant(0.0)), to=TensorProto.DOUBLE)
    votes = graph.plus(graph.times(won, won_by_first - won_by_second), won_by_second.sum(axis=0))
    margins = graph.times(lead, won_by_first - won_by_second)
    size = graph.add("Mul", graph.plus(graph.add("Abs", margins), 1.0), graph.constant(3.0))
    return graph.add("Add", votes, graph.add("Div", margins, size))


# ---------------------------------------------------------------- missing numbers: skl2onnx imputes in float32


def _is_text(operator: Any) -> bool:
    from skl2onnx.common.data_types import StringTensorType

    return any(isinstance(variable.type, StringTensorType) for variable in operator.inputs)


def _shape_of_imputed(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType
    from skl2onnx.shape_calculators.imputer import calculate_sklearn_imputer_output_shapes

    if _is_text(operator):
        calculate_sklearn_imputer_output_shapes(operator)
    else:
        operator.outputs[0].type = DoubleTensorType(
            [None, len(operator.raw_operator.get_feature_names_out())]
        )


def _convert_imputer(scope: Any, operator: Any, container: Any) -> None:
    from onnx import TensorProto
    from skl2onnx.operator_converters.imputer_op import convert_sklearn_imputer

    if _is_text(operator):
        convert_sklearn_imputer(scope, operator, container)
        return
    imputer = operator.raw_operator
    if not (isinstance(imputer.missing_values, float) and np.isnan(imputer.missing_values)):
        raise ValueError(
            f"missing_values={imputer.missing_values!r} of an imputer has no ONNX graph; NaN has."
        )
    graph = _Graph(scope, container)
    X = graph.double(operator.inputs)
    missing = graph.add("IsNaN", X)
    fill = np.asarray(imputer.statistics_, dtype=float)
    kept = np.arange(len(fill)) if imputer.keep_empty_features else np.flatnonzero(~np.isnan(fill))
    parts = [
        graph.add(
            "Gather", graph.add("Where", missing, graph.constant(fill), X), graph.constant(kept), axis=1
        )
    ]
    if imputer.indicator_ is not None:
        flags = graph.add("Gather", missing, graph.constant(imputer.indicator_.features_), axis=1)
        parts.append(graph.add("Cast", flags, to=TensorProto.DOUBLE))
    graph.add("Concat", *parts, out=operator.outputs[0].full_name, axis=1)
