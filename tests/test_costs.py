"""Every form of costs means what it says, whatever the labels; every mistake is named."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from apportion import expected_cost
from apportion.costs import check_costs

ABC = np.array(["a", "b", "c"])
positive = st.floats(1e-3, 1e3)
label_sets = st.one_of(
    st.lists(st.text(max_size=5), min_size=2, max_size=6, unique=True),
    st.lists(st.integers(-50, 50), min_size=2, max_size=6, unique=True),
    st.just([False, True]),
)


@st.composite
def vectors(draw):
    """Sorted distinct labels and a cost for each."""
    labels = sorted(draw(label_sets))
    return labels, draw(st.lists(positive, min_size=len(labels), max_size=len(labels)))


@st.composite
def matrices(draw):
    """Sorted distinct labels and a cost matrix: zero diagonal, the rest positive."""
    labels = sorted(draw(label_sets))
    k = len(labels)
    entries = np.array(draw(st.lists(positive, min_size=k * k, max_size=k * k))).reshape(k, k)
    return labels, entries * (1 - np.eye(k))


# ---------------------------------------------------------------- the forms agree


@given(vectors(), st.randoms())
def test_forms_of_a_vector_agree(drawn, random):
    labels, theta = drawn
    from_array = check_costs(theta, labels)
    assert_array_equal(from_array.theta, theta)
    assert_array_equal(from_array.array, theta)
    for y in range(len(labels)):
        for j in range(len(labels)):
            assert from_array.matrix[y, j] == (0 if y == j else theta[y])

    order = list(range(len(labels)))
    random.shuffle(order)
    mixed = {labels[c]: theta[c] for c in order}
    frame = pd.DataFrame(from_array.matrix, index=labels, columns=labels).iloc[order, order[::-1]]
    for form in (
        mixed,
        pd.Series(theta, index=labels).iloc[order],
        frame,
        from_array.matrix,
        np.array(theta),
    ):
        costs = check_costs(form, np.array(labels))
        assert_array_equal(costs.theta, theta)
        assert_array_equal(costs.matrix, from_array.matrix)


@given(matrices(), st.randoms())
def test_a_frame_means_the_same_in_any_order(drawn, random):
    labels, matrix = drawn
    rows, cols = list(range(len(labels))), list(range(len(labels)))
    random.shuffle(rows)
    random.shuffle(cols)
    frame = pd.DataFrame(matrix, index=labels, columns=labels).iloc[rows, cols]
    assert_array_equal(check_costs(frame, labels).matrix, matrix)


@given(matrices(), st.randoms())
def test_permuting_the_classes_permutes_the_costs(drawn, random):
    labels, matrix = drawn
    order = list(range(len(labels)))
    random.shuffle(order)
    frame = pd.DataFrame(matrix, index=labels, columns=labels)
    for form, permuted_form in ((frame, frame), (matrix, matrix[np.ix_(order, order)])):
        costs = check_costs(form, labels)
        permuted = check_costs(permuted_form, [labels[c] for c in order])
        assert_array_equal(permuted.matrix, costs.matrix[np.ix_(order, order)])
        assert (permuted.theta is None) == (costs.theta is None)


@given(vectors())
def test_balanced_is_the_class_weight_of_scikit_learn(drawn):
    from sklearn.utils.class_weight import compute_class_weight

    labels, sizes = drawn
    counts = np.ceil(sizes).astype(int)
    y = np.repeat(np.arange(len(labels)), counts)
    expected = compute_class_weight("balanced", classes=np.arange(len(labels)), y=y)
    assert_allclose(check_costs("balanced", labels, class_counts=counts).theta, expected)


# ---------------------------------------------------------------- single facts


def test_none_is_the_error_rate():
    costs = check_costs(None, ABC)
    assert_array_equal(costs.theta, [1, 1, 1])
    assert_array_equal(costs.matrix, 1 - np.eye(3))


def test_costs_of_a_class_stand_in_its_row():
    assert check_costs({"c": 3, "a": 1, "b": 2}, ABC).matrix[2].tolist() == [3, 3, 0]


def test_a_matrix_with_unequal_rows_has_no_vector():
    matrix = [[0, 1, 2], [3, 0, 3], [1, 1, 0]]
    costs = check_costs(matrix, ABC)
    assert costs.theta is None
    assert_array_equal(costs.array, matrix)


def test_some_errors_may_be_free():
    assert check_costs([[0, 0, 2], [3, 0, 0], [1, 1, 0]], ABC).matrix[0, 1] == 0


def test_two_classes_always_have_a_vector():
    assert check_costs([[0, 5], [2, 0]], ["no", "yes"]).theta.tolist() == [5, 2]


def test_bool_labels_and_the_integers_they_equal():
    assert check_costs({0: 1, 1: 7}, np.array([False, True])).theta.tolist() == [1, 7]


def test_object_labels():
    classes = np.array([None, "b", 3], dtype=object)
    assert check_costs({3: 5, None: 1, "b": 2}, classes).theta.tolist() == [1, 2, 5]


@pytest.mark.parametrize("given_as", [[1.0, 2.0, 3.0], [[0.0, 1.0, 2.0], [3.0, 0.0, 3.0], [1.0, 1.0, 0.0]]])
def test_later_changes_to_the_users_array_change_nothing(given_as):
    users = np.array(given_as)
    costs = check_costs(users, ABC)
    before = costs.array.copy()
    users *= 2
    assert_array_equal(costs.array, before)


def test_integers_and_the_users_own_dict_are_left_alone():
    users = {"c": 3, "a": 1, "b": 2}
    assert check_costs(users, ABC).theta.dtype == np.float64
    assert users == {"c": 3, "a": 1, "b": 2}


# ---------------------------------------------------------------- mistakes

ZERO = np.zeros((3, 3))
FRAME = pd.DataFrame([[0, 1, 1], [2, 0, 2], [3, 3, 0]], index=list("abc"), columns=list("abc"))
BAD = [
    ("balance", "costs='balance' is not known: the only word allowed is 'balanced'"),
    ("balanced", "costs='balanced' needs training labels"),
    ({"a": 1, "b": 2}, "costs has no key for the class 'c'; the classes are ['a', 'b', 'c']"),
    ({"a": 1, "b": 2, "d": 4}, "costs has the key 'd', which is not a class"),
    ({"a": 1, "b": 0, "c": 3}, "the cost of class 'b' is 0.0; a cost must be a positive finite number"),
    ({"a": 1, "b": -2, "c": 3}, "the cost of class 'b' is -2.0"),
    ({"a": 1, "b": 2, "c": "dear"}, "holds something that is not a number"),
    ({"a": 1, "b": [2, 3], "c": 1}, "holds something that is not a number"),
    (pd.Series([1, 2, 3, 4], index=list("aabc")), "costs names a class twice: ['a', 'a', 'b', 'c']"),
    (pd.Series([1, 2, 3], index=list("abd")), "costs has the key 'd', which is not a class"),
    ([1, np.nan, 1], "the cost of class 'b' is nan"),
    ([1, 1, np.inf], "the cost of class 'c' is inf"),
    ([1, None, 1], "the cost of class 'b' is nan"),
    ([1, 2], "costs has shape (2,); with the 3 classes ['a', 'b', 'c'] it must have shape (3,) or (3, 3)"),
    (5.0, "costs has shape ()"),
    (np.ones((2, 3)), "costs has shape (2, 3)"),
    ([[1, 2], [3]], "holds something that is not a number"),
    ({"a", "b", "c"}, "holds something that is not a number"),
    (np.ones((3, 3)), "costs['a', 'a'] is 1.0; the diagonal must be zero"),
    ([[0, 1, 1], [1, np.nan, 1], [1, 1, 0]], "costs['b', 'b'] is nan; the diagonal must be zero"),
    ([[0, 1, 1], [-1, 0, 1], [1, 1, 0]], "costs['b', 'a'] is -1.0; an entry of a cost matrix must be"),
    ([[0, 1, np.inf], [1, 0, 1], [1, 1, 0]], "costs['a', 'c'] is inf"),
    ([[0, 1, np.nan], [1, 0, 1], [1, 1, 0]], "costs['a', 'c'] is nan"),
    (ZERO, "no error on class 'a' costs anything; each row of the cost matrix needs a positive entry"),
    (FRAME.rename(index={"a": "x"}), "costs has the row 'x', which is not a class"),
    (FRAME.rename(columns={"a": "x"}), "costs has the column 'x', which is not a class"),
    (FRAME.drop(index="b"), "costs has no row for the class 'b'"),
    (FRAME.drop(columns="b"), "costs has no column for the class 'b'"),
    (FRAME.loc[["a", "b", "b", "c"]], "costs names a class twice: ['a', 'b', 'b', 'c']"),
]


@pytest.mark.parametrize(("costs", "message"), BAD)
def test_bad_costs_are_named(costs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_costs(costs, ABC)


def test_labels_that_no_class_has_are_passed_over():
    """As in scikit-learn's class_weight: a fold may lack a rare class."""
    classes = np.array(["a", "c"])
    assert check_costs({"a": 1, "b": 2, "c": 3}, classes).theta.tolist() == [1, 3]
    assert check_costs(pd.Series([3, 2, 1], index=list("cba")), classes).theta.tolist() == [1, 3]
    assert check_costs(FRAME, classes).matrix.tolist() == [[0, 1], [3, 0]]


@pytest.mark.parametrize("counts", [[3, 0, 2], [3, np.nan, 2]])
def test_balanced_needs_every_class(counts):
    with pytest.raises(ValueError, match="there are none of class 'b'"):
        check_costs("balanced", ABC, class_counts=counts)


def test_long_lists_of_classes_are_cut():
    with pytest.raises(ValueError, match=re.escape("10, 11, ...] it must have shape (40,) or (40, 40)")):
        check_costs([1, 2], np.arange(40))


@pytest.mark.parametrize("unit", ["ns", "D"])
def test_days_as_labels(unit):
    days = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype=f"datetime64[{unit}]")
    np.testing.assert_array_equal(check_costs(dict(zip(days, [1, 2, 5], strict=True)), days).theta, [1, 2, 5])
    assert expected_cost(days, days[[0, 0, 1]], costs=dict(zip(days, [1, 2, 5], strict=True))) == 7 / 3
