"""Nodes and constants of an ONNX graph, by name."""

from __future__ import annotations

from typing import Any

import numpy as np


class Graph:
    """What skl2onnx collects, in fewer words; every method returns the name of what it adds."""

    def __init__(self, scope: Any, container: Any) -> None:
        self.scope, self.container = scope, container

    def add(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """A node of one output."""
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

    def scaled(self, left: str, right: Any) -> str:
        return self.add("Mul", left, self.constant(right))

    def plus(self, left: str, right: Any) -> str:
        return self.add("Add", left, self.constant(right))
