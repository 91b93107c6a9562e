"""Steps of a pipeline that skl2onnx cannot export in double precision: missing numbers, and ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import QuantileTransformer

from .graph import Graph


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
    graph = Graph(scope, container)
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


# ---------------------------------------------------------------- ranks

# Wichura, Algorithm AS241, 1988: the quantile of the normal distribution, right to 16 digits; powers from the highest
CENTRE = (
    (
        *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4),
        *(1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    ),
    (
        *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4),
        *(5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
    ),
)
TAIL = (
    (
        *(
            7.74545014278341407640e-4,
            2.27238449892691845833e-2,
            2.41780725177450611770e-1,
            1.27045825246236838258e0,
        ),
        *(
            3.64784832476320460504e0,
            5.76949722146069140550e0,
            4.63033784615654529590e0,
            1.42343711074968357734e0,
        ),
    ),
    (
        *(
            1.05075007164441684324e-9,
            5.47593808499534494600e-4,
            1.51986665636164571966e-2,
            1.48103976427480074590e-1,
        ),
        *(6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
    ),
)
NEAR = 1e-7  # so close to 0 and 1 scikit-learn cuts ranks off


def _shape_of_ranks(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType

    operator.outputs[0].type = DoubleTensorType([None, operator.raw_operator.n_features_in_])


def _convert_ranks(scope: Any, operator: Any, container: Any) -> None:
    transformer = operator.raw_operator
    graph = Graph(scope, container)
    normal = transformer.output_distribution == "normal"
    ranks = _ranks(graph, transformer, graph.double(operator.inputs), NEAR if normal else 0.0)
    graph.add(
        "Identity", _normal_quantile(graph, ranks) if normal else ranks, out=operator.outputs[0].full_name
    )


def _ranks(graph: Graph, transformer: QuantileTransformer, X: str, near: float) -> str:
    """(n, d) shares of the training values below each value, interpolated between the quantiles.

    Where a value is that of several quantiles it has the mean of the first and the last of them. With c knots <= x, found by
    bisection in every column at once, the rank is level[c] + slope[c] (x - knot[c - 1]), and middle[c] where x is that knot.
    """
    d = transformer.n_features_in_
    columns = [np.unique(q, return_index=True, return_counts=True) for q in transformer.quantiles_.T]
    steps = int(np.ceil(np.log2(max(len(knots) for knots, _, _ in columns) + 1)))
    size = 2**steps  # c = 0 .. size - 1
    knots, origin, level, slope, middle = (np.zeros((d, size)) for _ in range(5))
    knots[:] = np.inf
    for j, (values, at, times) in enumerate(columns):
        u, first, last = len(values), transformer.references_[at], transformer.references_[at + times - 1]
        knots[j, :u] = values
        origin[j, 1 : u + 1], origin[j, 0] = values, values[0]
        level[j, 1 : u + 1], level[j, 0] = last, 0.0
        slope[j, 1:u] = (first[1:] - last[:-1]) / np.diff(values)
        middle[j, 1 : u + 1] = (first + last) / 2
        level[j, u] = middle[j, u] = 1.0
        middle[j, 1] = 0.0
    offset = graph.constant(np.arange(d, dtype=np.int64) * size)

    def taken(table: Any, index: str) -> str:
        return graph.add("Gather", graph.constant(table.ravel()), graph.add("Add", index, offset), axis=0)

    c = graph.add("Expand", graph.constant(np.zeros(1, dtype=np.int64)), graph.add("Shape", X))  # (n, d)
    for step in range(steps):
        further = graph.plus(c, np.int64(size >> (step + 1)))
        reached = graph.add("GreaterOrEqual", X, taken(np.roll(knots, 1, axis=1), further))
        c = graph.add("Where", reached, further, c)
    here = taken(origin, c)
    between = graph.add("Mul", taken(slope, c), graph.add("Sub", X, here))
    ranks = graph.add(
        "Where", graph.add("Equal", X, here), taken(middle, c), graph.add("Add", taken(level, c), between)
    )
    if near:
        least, most = transformer.quantiles_[0], transformer.quantiles_[-1]
        high = graph.add("Greater", graph.plus(X, near), graph.constant(most))
        low = graph.add("Less", graph.plus(X, -near), graph.constant(least))
        ranks = graph.add("Where", high, graph.constant(1.0), ranks)
        ranks = graph.add("Where", low, graph.constant(0.0), ranks)
    return ranks


def _normal_quantile(graph: Graph, p: str) -> str:
    bound = NEAR - np.spacing(1)
    p = graph.add("Max", graph.add("Min", p, graph.constant(1 - bound)), graph.constant(bound))
    q = graph.plus(p, -0.5)

    def ratio(r: str, polynomials: Any) -> str:
        values = []
        for powers in polynomials:
            value = graph.plus(graph.scaled(r, powers[0]), powers[1])
            for power in powers[2:]:
                value = graph.plus(graph.add("Mul", value, r), power)
            values.append(value)
        return graph.add("Div", *values)

    r = graph.add("Sub", graph.constant(0.180625), graph.add("Mul", q, q))
    centre = graph.add("Mul", q, ratio(r, CENTRE))
    end = graph.add("Min", p, graph.add("Sub", graph.constant(1.0), p))
    r = graph.plus(graph.add("Sqrt", graph.add("Neg", graph.add("Log", end))), -1.6)
    tail = graph.add("Mul", graph.add("Sign", q), ratio(r, TAIL))
    inside = graph.add("LessOrEqual", graph.add("Abs", q), graph.constant(0.425))
    return graph.add("Where", inside, centre, tail)


SHAPES = {SimpleImputer: _shape_of_imputed, QuantileTransformer: _shape_of_ranks}
CONVERTERS = {SimpleImputer: _convert_imputer, QuantileTransformer: _convert_ranks}
