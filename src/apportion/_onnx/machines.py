"""The machines as graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import hash
from scipy import sparse
from sklearn.kernel_approximation import Nystroem

from ..estimators import ApportionedSVC
from ..losses import PairVotes, PerClass
from ..tuning import ApportionedSVCCV
from .graph import Graph

KERNELS = ("rbf", "laplacian", "linear", "poly", "sigmoid")


def declare_outputs(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    from skl2onnx._parse import parse_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType

    averaged = isinstance(model, ApportionedSVCCV)
    if averaged:  # one input a machine: the rows as that machine scales them
        known: dict[str, Any] = {}  # machines that scale alike share the nodes
        for machine in model.machines_:
            if hash(machine[0]) not in known:
                known[hash(machine[0])] = parse_sklearn(scope, machine[0], inputs, custom_parsers)[0]
        for variable in known.values():
            variable.init_status(is_leaf=False)  # no output of the graph
        inputs = [known[hash(machine[0])] for machine in model.machines_]
    operator = scope.declare_local_operator(f"Apportion{type(model).__name__}", model)
    operator.inputs = inputs
    operator.outputs.append(scope.declare_local_variable("label", Int64TensorType()))
    second = "probabilities" if averaged else "scores"
    operator.outputs.append(scope.declare_local_variable(second, DoubleTensorType()))
    return operator.outputs


def shape_of_outputs(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType

    classes = operator.raw_operator.classes_
    kind = Int64TensorType if classes.dtype.kind in "iub" else StringTensorType
    operator.outputs[0].type = kind([None])
    operator.outputs[1].type = DoubleTensorType([None, len(classes)])


def convert_machine(scope: Any, operator: Any, container: Any) -> None:
    machine = operator.raw_operator
    graph = Graph(scope, container)
    if isinstance(machine, ApportionedSVCCV):
        shown, scores = _averaged(graph, machine, [graph.double([scaled]) for scaled in operator.inputs])
    else:
        raw = _raw_scores(graph, machine, graph.double(operator.inputs))
        shown = scores = _class_scores(graph, machine.table_.decide, raw)
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
    graph.add("Identity", shown, out=operator.outputs[1].full_name)


def _averaged(graph: Graph, model: ApportionedSVCCV, inputs: list[str]) -> tuple[str, str]:
    """(probabilities, what deciding each class saves), both (n, k), as `ApportionedSVCCV` computes them."""
    parts = []
    for machine, factor, X in zip(model.machines_, model._factors, inputs, strict=True):
        if len(machine) == 3:
            X = _nystroem(graph, machine[1], X)
        table, raw = machine[-1].table_, _raw_scores(graph, machine[-1], X)
        scores = (
            _margins(graph, table.decide, raw)
            if isinstance(table.decide, PairVotes)
            else _class_scores(graph, table.decide, raw)
        )
        if table.n_classes == 2:
            scores = graph.times(scores, [[0.5, -0.5], [-0.5, 0.5]])
        parts.append(graph.add("Mul", scores, graph.constant(np.full(table.n_classes, factor / len(inputs)))))
    calibration = model.calibration_
    k = len(model.classes_)
    average = graph.add("Mul", graph.add("Sum", *parts), graph.constant(np.full(k, calibration.slope)))
    P = graph.add("Softmax", graph.plus(average, calibration.offset - np.log(calibration.theta)), axis=1)
    costs = model._checked_costs()
    if costs.theta is not None:
        return P, graph.add("Mul", P, graph.constant(costs.theta))
    return P, graph.times(P, -costs.matrix)


def _raw_scores(graph: Graph, machine: Any, X: str) -> str:
    if not isinstance(machine, ApportionedSVC):
        return graph.plus(graph.times(X, machine.coef_.T), machine.intercept_)
    Z: Any = machine.support_vectors_
    Z = np.asarray(Z.toarray() if sparse.issparse(Z) else Z, dtype=float)  # (s, d)
    values = _kernel(graph, X, Z, machine.kernel, machine._gamma, machine.coef0, machine.degree)
    return graph.plus(graph.times(values, machine.dual_coef_), machine.intercept_)


def _nystroem(graph: Graph, features: Nystroem, X: str) -> str:
    values = _kernel(graph, X, features.components_, features.kernel, features.gamma)
    return graph.times(values, features.normalization_.T)


def _kernel(
    graph: Graph, X: str, Z: Any, kernel: Any, gamma: float, coef0: float = 0.0, degree: float = 3.0
) -> str:
    """(n, s) kernel values with the rows of Z (s, d), by the formulas of `apportion.kernels.cross_kernel`."""
    if not isinstance(kernel, str) or kernel not in KERNELS:
        raise ValueError(
            f"kernel={kernel!r} has no ONNX graph; machines with the kernels {', '.join(KERNELS)} do."
        )
    if kernel in ("rbf", "laplacian"):  # they depend on differences only; centred data lose fewer digits
        centre = Z.mean(axis=0)
        X, Z = graph.plus(X, -centre), Z - centre
    if kernel == "laplacian":
        scaled = graph.add("Mul", X, graph.constant(gamma))
        return graph.add("Exp", _negative_distances(graph, scaled, gamma * Z))
    # gamma goes into Z: a runtime may join a scalar factor and a product, and keep the factor as a float32
    factor = {"linear": 1.0, "rbf": 2 * gamma}.get(kernel, gamma)
    product = graph.times(X, factor * Z.T)
    if kernel == "rbf":  # 2 g x.z - g |x|^2 - g |z|^2
        square = graph.add("ReduceSumSquare", X, graph.constant([1]), keepdims=1)
        product = graph.add("Sub", product, graph.add("Mul", square, graph.constant(gamma)))
        return graph.add("Exp", graph.plus(product, -gamma * np.einsum("ij,ij->i", Z, Z)))
    if kernel == "linear":
        return product
    product = graph.plus(product, float(coef0))
    if kernel == "sigmoid":
        return graph.add("Tanh", product)
    return graph.add("Pow", product, graph.constant(float(degree)))


def _negative_distances(graph: Graph, X: str, Z: Any) -> str:
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


def _class_scores(graph: Graph, decide: Any, raw: str) -> str:
    """(n, k), as `decide` makes them of the raw scores (n, m)."""
    if isinstance(decide, PerClass):
        return graph.plus(graph.add("Mul", raw, graph.constant(decide.scale)), decide.offset)
    if isinstance(decide, PairVotes):
        return _votes(graph, decide, raw)
    raise ValueError(
        f"a loss table that decides by {type(decide).__name__} has no ONNX graph; PerClass and PairVotes have one."
    )


def _lead(graph: Graph, decide: PairVotes, raw: str) -> tuple[str, Any]:
    """((n, pairs) positive where the first class of a pair wins, (pairs, k) +1 at its first class and -1 at its second)."""
    k, share = len(decide.reach), 1 / decide.ratio
    first, second = np.triu_indices(k, 1)
    slope = share[first] / decide.reach[first] + share[second] / decide.reach[second]
    lead = graph.plus(graph.add("Mul", raw, graph.constant(slope)), share[second] - share[first])
    return lead, np.eye(k)[first] - np.eye(k)[second]


def _votes(graph: Graph, decide: PairVotes, raw: str) -> str:
    from onnx import TensorProto

    lead, sides = _lead(graph, decide, raw)
    won = graph.add("Cast", graph.add("Greater", lead, graph.constant(0.0)), to=TensorProto.DOUBLE)
    votes = graph.plus(graph.times(won, sides), (sides < 0).sum(axis=0).astype(float))
    margins = graph.times(lead, sides)
    size = graph.add("Mul", graph.plus(graph.add("Abs", margins), 1.0), graph.constant(3.0))
    return graph.add("Add", votes, graph.add("Div", margins, size))


def _margins(graph: Graph, decide: PairVotes, raw: str) -> str:
    """`PairVotes.soft`"""
    lead, sides = _lead(graph, decide, raw)
    bound = 1.5
    cut = graph.add("Max", graph.add("Min", lead, graph.constant(2 * bound)), graph.constant(-2 * bound))
    return graph.times(cut, sides / (2 * (len(decide.reach) - 1)))
