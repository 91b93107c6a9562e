"""Every bad input gets an error that names the parameter, the value and what is allowed; odd but valid input just works."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import DataConversionWarning, NotFittedError

from apportion import ApportionedLinearSVC, ApportionedSVC, ApportionedSVCCV, LossTable
from apportion.losses import LOSSES

X = np.random.default_rng(0).standard_normal((30, 3))
Y = np.arange(30) % 3
NAMES = np.array(["cat", "dog", "emu"])[Y]
NAN, INF = X.copy(), X.copy()
NAN[3, 1], INF[4, 2] = np.nan, np.inf
MATRIX = [[0, 1, 2], [3, 0, 1], [1, 1, 0]]
Linear, Kernel = ApportionedLinearSVC, ApportionedSVC


def fit(machine, data=X, labels=Y, weight=None):
    return lambda: machine.fit(data, labels, sample_weight=weight)


def with_weight(value, at=0):
    weight = np.ones(30)
    weight[at] = value
    return weight


def table(**changes):
    parts = {
        "codes": np.ones((3, 2, 3)),
        "margins": np.ones((3, 2)),
        "weights": np.ones((3, 2)),
        "decide": abs,
    }
    return lambda: LossTable(**(parts | changes))


# what is wrong: (what to call, words the message must hold, as a regular expression)
BAD = {
    # costs
    "costs: a word": (fit(Linear("balance")), r"costs='balance' is not known.*'balanced'"),
    "costs: too few": (fit(Linear([1, 2])), r"costs has shape \(2,\).*3 classes.*\(3,\) or \(3, 3\)"),
    "costs: too many": (fit(Linear(np.ones((4, 4)))), r"costs has shape \(4, 4\).*must have shape"),
    "costs: three axes": (fit(Linear(np.ones((3, 3, 3)))), r"costs has shape \(3, 3, 3\)"),
    "costs: a number": (fit(Linear(5)), r"costs has shape \(\)"),
    "costs: zero": (fit(Linear([1, 0, 2])), r"cost of class 1 is 0\.0.*positive finite"),
    "costs: negative": (fit(Linear({0: 1, 1: -2, 2: 1})), r"cost of class 1 is -2\.0.*positive finite"),
    "costs: NaN": (fit(Linear([1, np.nan, 2])), r"cost of class 1 is nan.*positive finite"),
    "costs: infinite": (fit(Linear([np.inf, 1, 2])), r"cost of class 0 is inf.*positive finite"),
    "costs: too large": (fit(Linear([1e200, 1, 2])), r"cost of class 0 is 1e\+200.*1e-100 to 1e\+100"),
    "costs: too small": (fit(Linear([5e-324, 1, 2])), r"cost of class 0 is 5e-324.*1e-100 to 1e\+100"),
    "costs: words for numbers": (fit(Linear(["a", "b", "c"])), r"costs=.*not a number"),
    "costs: a class missing": (
        fit(Linear({0: 1, 1: 2})),
        r"no key for the class 2; the classes are \[0, 1, 2\]",
    ),
    "costs: no such class": (
        fit(Linear({"cat": 1, "dog": 1, "cow": 1}), labels=NAMES),
        r"key 'cow', which is not a class; the classes are \['cat', 'dog', 'emu'\]",
    ),
    "costs: a frame with a wrong column": (
        fit(Linear(pd.DataFrame(MATRIX, index=range(3), columns=[0, 1, 3]), loss="lee-lin-wahba")),
        r"costs has the column 3, which is not a class",
    ),
    "costs: a class twice": (
        fit(Linear(pd.Series([1, 1, 2, 2], index=[0, 1, 2, 2]))),
        r"costs names a class twice",
    ),
    "costs: diagonal": (fit(Linear(np.ones((3, 3)))), r"costs\[0, 0\] is 1\.0; the diagonal must be zero"),
    "costs: negative entry": (
        fit(Linear([[0, 1, 1], [-1, 0, 1], [1, 1, 0]])),
        r"costs\[1, 0\] is -1\.0.*finite number >= 0",
    ),
    "costs: a row of zeros": (
        fit(Linear([[0, 1, 1], [0, 0, 0], [1, 1, 0]])),
        r"no error on class 1 costs anything",
    ),
    "costs: a full matrix for a loss that takes none": (
        fit(Linear(MATRIX)),
        r"loss='apportioned' takes one cost a class.*lee-lin-wahba",
    ),
    "costs: a full matrix for a pair": (
        fit(Kernel(MATRIX, loss="pairwise")),
        r"loss='pairwise' takes one cost",
    ),
    # loss
    "loss: unknown": (
        fit(Linear(loss="hinge")),
        r"loss='hinge' is not known; allowed: \['apportioned'.*LossTable",
    ),
    "loss: no name": (fit(Linear(loss=3)), r"loss=3 is not known; allowed"),
    "loss: a table for two classes": (
        fit(Linear(loss=LossTable(np.ones((2, 1, 2)), np.ones((2, 1)), np.ones((2, 1)), abs))),
        r"table is for 2 classes and the data have 3",
    ),
    "loss: a table and a power": (
        fit(Linear(loss=table()(), margin_power=1)),
        r"margin_power and slack_power belong",
    ),
    "table: codes of two axes": (
        table(codes=np.ones((3, 2))),
        r"codes of a loss table must have shape \(k, R, m\)",
    ),
    "table: margins": (table(margins=np.ones((3, 3))), r"margins of a loss table must have shape \(3, 2\)"),
    "table: negative weight": (table(weights=-np.ones((3, 2))), r"weights of a loss table must be >= 0"),
    "table: NaN": (table(codes=np.full((3, 2, 3), np.nan)), r"codes of a loss table must be finite"),
    "table: codes of zeros": (table(codes=np.zeros((3, 2, 3))), r"codes of a loss table are zero"),
    "table: decide makes one row of many": (
        table(decide=lambda raw: np.zeros((1, 3))),
        r"decide of a loss table must",
    ),
    "table: decide makes NaN": (
        table(decide=lambda raw: raw * np.nan),
        r"decide of a loss table must .* finite",
    ),
    "max_iter: too large": (fit(Linear(max_iter=10**30)), r"max_iter=10+ is too large: at most 1e\+15"),
    "intercept_scaling: too large": (
        fit(Linear(intercept_scaling=1e200)),
        r"intercept_scaling=1e\+200 is too large",
    ),
    "C: too large": (fit(Kernel(C=1e308)), r"C=1e\+308 is too large: at most 1e\+100"),
    "gamma: too large": (fit(Kernel(gamma=1e308)), r"gamma=1e\+308 is too large"),
    "kernel: words": (
        fit(Kernel(kernel=lambda a, b: np.full((len(a), len(b)), "one"))),
        r"the callable kernel gave values of type .*real numbers",
    ),
    "X: too large for single precision": (
        fit(Linear(), X.astype(np.float32) * np.float32(1e37)),
        r"X holds .* in float32, which overflows",
    ),
    "sample_weight: one too large": (
        fit(Linear(), weight=with_weight(1e300, 4)),
        r"sample_weight\[4\]=1e\+300; it must hold finite numbers >= 0, of at most 1e\+100",
    ),
    "table: shared weights differ": (table(weights=[[1, 2]] * 3, shared=True), r"shared slack.*one weight"),
    "margin_power: for a loss without": (
        fit(Linear(loss="crammer-singer", margin_power=1)),
        r"margin_power=1.* has no meaning for loss='crammer-singer'",
    ),
    "margin_power: a word": (
        fit(Linear(margin_power="1")),
        r"margin_power='1' must be None or a finite number",
    ),
    "slack_power: NaN": (fit(Linear(slack_power=np.nan)), r"slack_power=nan must be None or a finite number"),
    # numbers
    "C: zero": (fit(Linear(C=0)), r"C=0 must be a number > 0"),
    "C: negative": (fit(Kernel(C=-1.0)), r"C=-1\.0 must be a number > 0"),
    "C: NaN": (fit(Linear(C=np.nan)), r"C=nan must be a number > 0"),
    "C: a word": (fit(Linear(C="1")), r"C='1' must be a number > 0"),
    "C: none": (fit(Linear(C=None)), r"C=None must be a number > 0"),
    "C: true": (fit(Linear(C=True)), r"C=True must be a number > 0"),
    "C: a list": (fit(Linear(C=[1.0])), r"C=\[1\.0\] must be a number > 0"),
    "C: infinite on data that overlap": (
        fit(Linear(C=np.inf, max_iter=50)),
        r"C=inf.*not separable.*finite C",
    ),
    "tol: zero": (fit(Linear(tol=0.0)), r"tol=0\.0 must be a number > 0"),
    "tol: infinite": (fit(Linear(tol=np.inf)), r"tol=inf must be a number > 0"),
    "max_iter: zero": (fit(Linear(max_iter=0)), r"max_iter=0 must be an integer >= 1"),
    "max_iter: a fraction": (fit(Linear(max_iter=1.5)), r"max_iter=1\.5 must be an integer >= 1"),
    "intercept: unknown": (
        fit(Linear(intercept=True)),
        r"intercept=True is not known.*'penalized', 'free', 'none'",
    ),
    "intercept: British": (
        fit(Linear(intercept="penalised")),
        r"intercept='penalised' is not known; allowed",
    ),
    "intercept: an array": (fit(Linear(intercept=np.ones(2))), r"intercept=array.* is not known; allowed"),
    "intercept_scaling: zero": (
        fit(Linear(intercept_scaling=0)),
        r"intercept_scaling=0 must be a number > 0",
    ),
    "n_jobs: zero": (fit(Linear(n_jobs=0)), r"n_jobs=0 must be None or an integer other than 0"),
    "n_jobs: a word": (fit(Kernel(n_jobs="two")), r"n_jobs='two' must be"),
    "n_jobs: one and a half": (fit(ApportionedSVCCV(n_jobs=1.5)), r"n_jobs=1.5 must be"),
    # kernel
    "kernel: unknown": (
        fit(Kernel(kernel="gauss")),
        r"kernel='gauss' is not known; allowed: rbf, laplacian.*callable",
    ),
    "kernel: none": (fit(Kernel(kernel=None)), r"kernel=None is not known; allowed"),
    "kernel: an array": (fit(Kernel(kernel=np.ones(2))), r"kernel=array.* is not known; allowed"),
    "kernel: a list": (fit(Kernel(kernel=["rbf"])), r"kernel=\['rbf'\] is not known; allowed"),
    "kernel: not square": (fit(Kernel(kernel="precomputed")), r"square matrix.*\(30, 3\)"),
    "kernel: not square, weights": (
        lambda: Kernel(kernel="precomputed").fit(X, Y, np.arange(len(Y)) > 0),
        r"square matrix.*\(30, 3\)",
    ),
    "kernel: precomputed and sparse": (
        fit(Kernel(kernel="precomputed"), sparse.csr_matrix(X @ X.T)),
        r"[Ss]parse",
    ),
    "kernel: a callable that returns a number": (
        fit(Kernel(kernel=lambda a, b: 1.0)),
        r"callable kernel gave shape \(\)",
    ),
    "kernel: a callable that returns NaN": (
        fit(Kernel(kernel=lambda a, b: a @ b.T * np.nan)),
        r"callable kernel gave NaN or infinity",
    ),
    "kernel: a callable that returns infinity, coupled outputs": (
        fit(Kernel(kernel=lambda a, b: a @ b.T + np.inf, loss="crammer-singer")),
        r"callable kernel gave NaN or infinity",
    ),
    "kernel: values that overflow": (
        fit(Kernel(kernel="poly", degree=10, gamma=1.0), X * 1e40),
        r"kernel='poly' overflow.*scale the features",
    ),
    "kernel: values that overflow, coupled outputs": (
        fit(Kernel(kernel="poly", degree=10, gamma=1.0, loss="crammer-singer"), X * 1e40),
        r"kernel='poly' overflow.*scale the features",
    ),
    "gamma: a word": (fit(Kernel(gamma="wide")), r"gamma='wide' is not known; allowed: 'scale', 'auto'"),
    "gamma: zero": (fit(Kernel(gamma=0)), r"gamma=0 must be a number > 0"),
    "gamma: none": (fit(Kernel(gamma=None)), r"gamma=None must be a number > 0"),
    "degree: negative": (fit(Kernel(kernel="poly", degree=-1)), r"degree=-1 must be an integer >= 0"),
    "degree: a fraction": (fit(Kernel(kernel="poly", degree=2.5)), r"degree=2.5 must be an integer >= 0"),
    "coef0: infinite": (fit(Kernel(kernel="poly", coef0=np.inf)), r"coef0=inf must be a number"),
    "cache_size: zero": (fit(Kernel(cache_size=0)), r"cache_size=0 must be a number > 0"),
    # data
    "X: NaN": (fit(Linear(), NAN), r"X contains NaN"),
    "X: infinite": (fit(Kernel(), INF), r"X contains infinity"),
    "X: NaN in CSR": (fit(Linear(), sparse.csr_matrix(NAN)), r"X contains NaN"),
    "X: 1e300": (fit(Linear(), X * 1e300), r"X holds .*e\+300.*scale the features"),
    "X: 1e300 in CSR": (fit(Kernel(), sparse.csr_matrix(X * 1e300)), r"X holds .*e\+300.*scale the features"),
    "X: no rows": (fit(Linear(), X[:0], Y[:0]), r"0 sample\(s\)"),
    "X: no columns": (fit(Linear(), X[:, :0]), r"0 feature\(s\)"),
    "X: one axis": (fit(Linear(), X[:, 0]), r"Expected 2D array, got 1D"),
    "X: three axes": (fit(Linear(), X[:, :, None]), r"dim 3"),
    "X: words": (fit(Linear(), np.full((30, 2), "a")), r"could not convert string to float|dtype='numeric'"),
    "X: objects": (
        fit(Linear(), np.array([[object()] * 2] * 30, dtype=object)),
        r"must be a string or a real number",
    ),
    "X: complex": (fit(Linear(), X + 1j), r"Complex data not supported"),
    "X: rows missing": (fit(Linear(), X[:29]), r"inconsistent numbers of samples: \[29, 30\]"),
    "X: ragged": (fit(Linear(), [[1, 2], [3]] * 15), r"inhomogeneous|sequence"),
    "X: none": (fit(Linear(), None), r"Expected 2D array"),
    "y: none": (fit(Linear(), X, None), r"requires y to be passed"),
    "y: one class": (fit(Linear(), X, np.zeros(30)), r"at least 2 classes.*1 class: 0\.0"),
    "y: one row": (fit(Linear(), X[:1], Y[:1]), r"at least 2 classes|1 sample"),
    "y: real numbers": (fit(Linear(), X, X[:, 0]), r"Unknown label type: continuous"),
    "y: NaN": (fit(Linear(), X, np.where(Y == 1, np.nan, Y)), r"y contains NaN"),
    "y: two columns": (fit(Linear(), X, np.column_stack([Y, Y])), r"y should be a 1d array|\(30, 2\)"),
    "y: words and numbers": (
        fit(Linear(), X, np.array([1, "a", 2] * 10, dtype=object)),
        r"[Ll]abel|str|type",
    ),
    # weights
    "sample_weight: negative": (
        fit(Linear(), weight=with_weight(-1)),
        r"sample_weight\[0\]=-1\.0; it must hold finite numbers >= 0",
    ),
    "sample_weight: NaN": (
        fit(Linear(), weight=with_weight(np.nan)),
        r"sample_weight\[0\]=nan; it must hold finite numbers",
    ),
    "sample_weight: infinite": (
        fit(Linear(), weight=with_weight(np.inf)),
        r"sample_weight\[0\]=inf; it must hold finite numbers",
    ),
    "sample_weight: too few": (
        fit(Linear(), weight=np.ones(29)),
        r"sample_weight has shape \(29,\).*\(30,\)",
    ),
    "sample_weight: two axes": (fit(Linear(), weight=np.ones((30, 1))), r"sample_weight has shape \(30, 1\)"),
    "sample_weight: all zero": (
        fit(Linear(), weight=np.zeros(30)),
        r"sample_weight is zero for every example",
    ),
    "sample_weight: one class left": (
        fit(Linear(), weight=(Y == 1) * 1.0),
        r"sample_weight leaves fewer than 2",
    ),
    "sample_weight: words": (fit(Linear(), weight=["a"] * 30), r"sample_weight.*number"),
    # prediction
    "predict: not fitted": (lambda: Linear().predict(X), r"not fitted yet"),
    "predict: other features": (
        lambda: Kernel().fit(X, Y).predict(X[:, :2]),
        r"X has 2 features.*expecting 3",
    ),
    "predict: NaN": (lambda: Linear().fit(X, Y).predict(NAN), r"X contains NaN"),
    "predict: one row as a vector": (lambda: Linear().fit(X, Y).predict(X[0]), r"Expected 2D array, got 1D"),
    "predict: kernel of other examples": (
        lambda: Kernel(kernel="precomputed").fit(X @ X.T, Y).predict(X @ X[:5].T),
        r"X has 5 features.*expecting 30",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gets_an_error_that_says_what_is_wrong(what):
    call, words = BAD[what]
    expected = NotFittedError if what == "predict: not fitted" else (ValueError, TypeError)
    with pytest.raises(expected, match=words) as caught:
        call()
    assert "Traceback" not in str(caught.value)


def test_most_of_them_are_value_errors():
    """TypeError only where scikit-learn raises it for every estimator."""
    kinds = {}
    for what, (call, _) in BAD.items():
        try:
            call()
        except Exception as error:
            kinds[what] = type(error)
    not_values = {what for what, kind in kinds.items() if not issubclass(kind, ValueError)}
    assert not_values <= {
        "X: objects",
        "X: none",
        "y: words and numbers",
        "kernel: precomputed and sparse",
        "X: ragged",
    }
    assert len(BAD) >= 40 and kinds.keys() == BAD.keys()


# ---------------------------------------------------------------- odd, and fine


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def unsorted_csr(index=np.int32):
    """Columns in falling order, and one entry given in two halves."""
    thin = sparse.csr_matrix(X)
    data, indices = thin.data.reshape(30, 3)[:, ::-1].copy(), thin.indices.reshape(30, 3)[:, ::-1].copy()
    data, indices = np.column_stack([data, data[:, :1] / 2]), np.column_stack([indices, indices[:, :1]])
    data[:, 0] /= 2
    parts = data.ravel(), indices.ravel().astype(index), np.arange(0, 121, 4).astype(index)
    return sparse.csr_matrix(parts, shape=(30, 3))


def large_indices():
    thin = sparse.csr_matrix(X)
    thin.indices, thin.indptr = thin.indices.astype(np.int64), thin.indptr.astype(np.int64)
    return thin


def memmap(folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


SAME = {  # other forms of the same data: the same machine
    "lists": lambda folder: (X.tolist(), Y.tolist()),
    "Fortran order": lambda folder: (np.asfortranarray(X), Y),
    "read-only": lambda folder: (read_only(X), read_only(Y)),
    "memmap": lambda folder: (memmap(folder), Y),
    "every other row of a larger array": lambda folder: (np.repeat(X, 2, axis=0)[::2], np.repeat(Y, 2)[::2]),
    "columns of a larger array": lambda folder: (np.column_stack([X, X])[:, :3], Y),
    "backwards": lambda folder: (X[::-1][::-1], Y),
    "other byte order": lambda folder: (X.astype(">f8"), Y.astype(">i8")),
    "objects that are numbers": lambda folder: (X.astype(object), Y),
    "a frame": lambda folder: (pd.DataFrame(X), pd.Series(Y)),
    "a nullable frame": lambda folder: (pd.DataFrame(X).astype("Float64"), pd.Series(Y)),
    "labels of 8 bits": lambda folder: (X, Y.astype(np.int8)),
    "labels as real numbers": lambda folder: (X, Y.astype(float)),
    "CSR": lambda folder: (sparse.csr_matrix(X), Y),
    "CSR array": lambda folder: (sparse.csr_array(X), Y),
    "CSC": lambda folder: (sparse.csc_matrix(X), Y),
    "COO": lambda folder: (sparse.coo_matrix(X), Y),
    "LIL": lambda folder: (sparse.lil_matrix(X), Y),
    "CSR with 64-bit indices": lambda folder: (large_indices(), Y),
    "CSR, unsorted, with duplicates": lambda folder: (unsorted_csr(), Y),
    "CSR, unsorted, with duplicates and 64-bit indices": lambda folder: (unsorted_csr(np.int64), Y),
}


@pytest.mark.parametrize("what", SAME)
@pytest.mark.parametrize(
    "machine", [Linear(tol=1e-6), Kernel(tol=1e-6), Kernel(kernel="laplacian", tol=1e-6)]
)
def test_the_form_of_the_data_does_not_matter(machine, what, tmp_path):
    data, labels = SAME[what](tmp_path)
    expected = machine.fit(X, Y).decision_function(X)
    scores = machine.fit(data, labels).decision_function(data)
    np.testing.assert_allclose(scores, expected, atol=5e-3)


def test_the_users_data_are_left_as_they_are():
    for make in (unsorted_csr, large_indices, X.copy):
        data, before = make(), make()
        for machine in (Linear(), Kernel()):
            machine.fit(data, Y).predict(data)
        if sparse.issparse(data):
            for part in ("data", "indices", "indptr"):
                assert_array_equal(getattr(data, part), getattr(before, part))
                assert getattr(data, part).dtype == getattr(before, part).dtype
        else:
            assert_array_equal(data, before)


def two_groups(n=24):
    return np.vstack([X[: n // 2], X[: n // 2]]), np.repeat([0, 1], n // 2)


ODD = {  # what: (X, y, sample_weight)
    "constant columns": (np.column_stack([X, np.ones(30), np.zeros(30)]), Y, None),
    "only constant columns": (np.ones((30, 2)), Y, None),
    "only zeros": (np.zeros((30, 2)), Y, None),
    "every row with both labels": (*two_groups(), None),
    "all rows equal": (np.ones((24, 3)), two_groups()[1], None),
    "a class with one example": (X, np.append(np.zeros(29, int), 1), None),
    "each class with one example": (X[:5], np.arange(5), None),
    "as many classes as rows": (X, np.arange(30), None),
    "two rows": (X[:2], [0, 1], None),
    "one feature": (X[:, :1], Y, None),
    "more features than rows": (np.random.default_rng(1).standard_normal((10, 300)), np.arange(10) % 2, None),
    "1e-300": (X * 1e-300, Y, None),
    "1e-300 in one column": (X * [1e-300, 1, 1], Y, None),
    "subnormal": (X * 1e-310, Y, None),
    "1e30": (X * 1e30, Y, None),
    "1e6 in one column": (X * [1e6, 1, 1], Y, None),
    "far from the origin": (X + 1e5, Y, None),
    "half precision": (X.astype(np.float16), Y, None),
    "single precision, 1e30": ((X * 1e30).astype(np.float32), Y, None),
    "integers": (np.round(10 * X).astype(int), Y, None),
    "true and false": (X > 0, Y, None),
    "true and false as labels": (X, Y > 0, None),
    "words as labels": (X, NAMES, None),
    "labels with spaces and accents": (X, np.array(["très bon", "", "κόστος "])[Y], None),
    "labels as objects": (X, NAMES.astype(object), None),
    "labels as a category": (X, pd.Series(NAMES, dtype="category"), None),
    "a category that does not occur": (
        X,
        pd.Categorical(NAMES, categories=["ant", "cat", "dog", "emu"]),
        None,
    ),
    "labels as strings of pandas": (X, pd.Series(NAMES, dtype="string"), None),
    "negative labels": (X, Y - 1, None),
    "labels far apart": (X, np.array([-(2**40), 7, 2**40])[Y], None),
    "empty rows in CSR": (sparse.csr_matrix(X * (np.arange(30) % 2)[:, None]), Y, None),
    "CSR of zeros": (sparse.csr_matrix((30, 4)), Y, None),
    "zeros stored in CSR": (
        sparse.csr_matrix((np.zeros(30), np.zeros(30, int), np.arange(31)), (30, 2)),
        Y,
        None,
    ),
    "a class of weight zero": (X, Y, (Y != 2) * 1.0),
    "weights that are far apart": (X, Y, np.logspace(-8, 4, 30)),
    "tiny weights": (X, Y, np.full(30, 1e-200)),
    "a single weight": (X, Y, 2.0),
    "integer weights": (X, Y, np.ones(30, dtype=int)),
}


@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:The number of unique classes"
)
@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("loss", ["apportioned", "pairwise", "crammer-singer", "lee-lin-wahba"])
def test_odd_input_works(what, loss):
    data, labels, weight = ODD[what]
    for Machine in (Linear, Kernel):
        for intercept in ("penalized", "free"):
            machine = Machine(loss=loss, intercept=intercept, max_iter=200).fit(
                data, labels, sample_weight=weight
            )
            scores = machine.decision_function(data)
            assert np.all(np.isfinite(scores))
            assert machine.dual_gap_ >= 0 and np.isfinite(machine.objective_)
            predicted = machine.predict(data)
            assert set(predicted) <= set(labels)
            if what == "a class of weight zero":
                assert len(machine.classes_) == 3


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", ["penalized", "free", "none"])
@pytest.mark.parametrize(
    "what", ["constant columns", "every row with both labels", "all rows equal", "only zeros", "tiny weights"]
)
def test_degenerate_data_are_solved_and_not_only_survived(what, intercept, loss):
    """ConvergenceWarning would be an error here."""
    data, labels, weight = ODD[what]
    for Machine in (Linear, Kernel):
        machine = Machine(loss=loss, intercept=intercept).fit(data, labels, sample_weight=weight)
        assert machine.dual_gap_ <= 1e-3


def test_costs_far_apart_are_fine():
    for Machine in (Linear, Kernel):
        for loss in LOSSES:
            machine = Machine({0: 1e-4, 1: 1, 2: 1e4}, loss=loss, C=1e-4, max_iter=5000).fit(X, Y)
            assert machine.dual_gap_ <= 1e-3
            assert np.all(np.isfinite(machine.decision_function(X)))


def test_labels_in_a_column_get_the_usual_warning():
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        machine = Linear().fit(X, Y[:, None])
    assert_array_equal(machine.predict(X), Linear().fit(X, Y).predict(X))
