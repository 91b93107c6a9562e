"""Models as files: loaded without pickle, the same decisions in another process; every bad file has its line. ONNX = predict."""

import io
import json
import os
import pickle
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, QuantileTransformer, StandardScaler

from apportion import (
    ApportionedLinearSVC,
    ApportionedSGDClassifier,
    ApportionedSVC,
    ApportionedSVCCV,
    LossTable,
    cost_scorer,
    loss_table,
)
from apportion.costs import check_costs

pytest.importorskip("skops", reason="skops is not installed: pip install apportion[persist]")
pytest.importorskip("skl2onnx", reason="skl2onnx is not installed: pip install apportion[persist]")
onnxruntime = pytest.importorskip(
    "onnxruntime", reason="onnxruntime is not installed: pip install apportion[persist]"
)
pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install apportion[cli]")

import apportion._onnx.machines  # noqa: E402
import apportion.tuning  # noqa: E402
from apportion.files import write_whole  # noqa: E402
from apportion.persist import FORMAT, HEADER, load, read_notes, save, to_onnx  # noqa: E402

LOADERS = {"iris": load_iris, "wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
COSTS = {"iris": [1, 2, 5], "wine": [5, 1, 2], "breast_cancer": [10, 1], "digits": np.linspace(1, 5, 10)}


SMALL = {"Cs": (0.5, 8.0), "cv": 2, "powers": ((0.5, 0.5),)}  # every kernel, loss and scaling all the same


def data(name):
    bunch = LOADERS[name]()
    y = bunch.target if name == "digits" else bunch.target_names[bunch.target]  # labels of both types
    return bunch.data, y


def fitted(machine, name="iris"):
    X, y = data(name)
    return make_pipeline(StandardScaler(), machine).fit(X, y)


# ---------------------------------------------------------------- save and load


def models():
    X, y = data("iris")
    sparse = X * (X > 2)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(word=np.where(X[:, 0] > 6, "long", "short"))
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["a", "b", "c"]),
        (OneHotEncoder(handle_unknown="ignore"), ["word"]),
        remainder="passthrough",
    )
    yield "linear", ApportionedLinearSVC([1, 2, 5]).fit(X, y), X
    yield "pairwise", ApportionedSVC([1, 2, 5], loss="pairwise", kernel="laplacian").fit(X, y), X
    yield (
        "matrix",
        ApportionedLinearSVC(np.array([[0, 1, 5], [1, 0, 2], [1, 1, 0]]), loss="lee-lin-wahba").fit(X, y),
        X,
    )
    yield "series", ApportionedSVC(pd.Series({"virginica": 5, "setosa": 1, "versicolor": 2})).fit(X, y), X
    yield "sparse", ApportionedSVC(kernel="poly", degree=2).fit(sparse, y), sparse
    yield "integers", ApportionedSVC(kernel="sigmoid").fit(X, np.unique(y, return_inverse=True)[1]), X
    yield (
        "moved",
        ApportionedSVC([1, 1, 1]).fit(X, y).reapportion({"setosa": 1, "versicolor": 9, "virginica": 1}),
        X,
    )
    yield (
        "columns",
        make_pipeline(columns, ApportionedSVC({"virginica": 5, "setosa": 1, "versicolor": 2})).fit(frame, y),
        frame,
    )
    yield "sgd", ApportionedSGDClassifier([1, 2, 5], C=0.1, random_state=0).fit(X, y), X
    yield "tuned", ApportionedSVCCV([1, 2, 5], **SMALL).fit(X, y), X
    grid = {"apportionedlinearsvc__C": [0.1, 1.0]}
    search = GridSearchCV(
        make_pipeline(StandardScaler(), ApportionedLinearSVC()), grid, scoring=cost_scorer([1, 2, 5])
    )
    yield "search", search.fit(X, y), X


def test_another_process_decides_the_same(tmp_path):
    """Every model, in one process that has never seen it."""
    for name, model, X in models():
        save(model, tmp_path / f"{name}.apportion")
        pd.DataFrame(X).to_pickle(tmp_path / f"{name}.rows")
        np.save(tmp_path / f"{name}.npy", model.decision_function(X))
        (tmp_path / f"{name}.labels").write_text("\n".join(map(str, model.predict(X))))
    code = """
import sys, pathlib, numpy as np, pandas as pd
import apportion._onnx.machines  # noqa: E402
import apportion.tuning  # noqa: E402
from apportion.persist import load
assert "pickle" not in pathlib.Path(sys.modules["apportion.persist"].__file__).read_text().split('\"\"\"')[2]
for file in sorted(pathlib.Path(sys.argv[1]).glob("*.apportion")):
    model, X = load(file), pd.read_pickle(file.with_suffix(".rows"))
    X = X if file.stem == "columns" else X.to_numpy()
    same = np.array_equal(model.decision_function(X), np.load(file.with_suffix(".npy")))
    print(file.stem, same, "\\n".join(map(str, model.predict(X))) == file.with_suffix(".labels").read_text())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")[:-1]
    assert len(lines) == 11
    assert all(line.split()[1:] == ["True", "True"] for line in lines), lines


def test_what_is_loaded_is_the_whole_estimator(tmp_path):
    machine = ApportionedSVC(pd.DataFrame(1 - np.eye(3)), loss="lee-lin-wahba").fit(
        *load_iris(return_X_y=True)
    )
    save(machine, tmp_path / "m", notes={"target": "kind"})
    again = load(str(tmp_path / "m"))
    assert isinstance(machine.costs, pd.DataFrame)  # what was saved is as it was
    assert np.array_equal(again.costs, 1 - np.eye(3))
    assert again.dual_gap_ == machine.dual_gap_ and again.get_params().keys() == machine.get_params().keys()
    assert isinstance(again.table_, LossTable)
    X, y = load_iris(return_X_y=True)
    assert (again.fit(X, y).predict(X) == machine.predict(X)).all()  # and can be fitted again
    assert read_notes(tmp_path / "m") == {"target": "kind"}


def test_costs_of_false_and_true_and_sparse_support_vectors(tmp_path):
    X, y = load_iris(return_X_y=True)
    machine = ApportionedSVC({True: 3, False: 1}).fit(sparse.csr_matrix(X), y > 0)
    save(machine, tmp_path / "m")
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.decision_function(X), machine.decision_function(X))
    assert again.fit(X, y > 0).costs_.tolist() == [1, 3]
    assert machine.costs == {True: 3, False: 1}


def test_costs_of_labels_that_are_no_class(tmp_path):
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "c", "d"])[y]
    costs = pd.DataFrame(1.0 - np.eye(4), index=list("abcd"), columns=list("abcd")) * 3
    machine = ApportionedLinearSVC(costs, loss="lee-lin-wahba").fit(X, names)
    save(machine, tmp_path / "m")
    again = load(tmp_path / "m", trusted=iter([]))
    assert (again.fit(X, names).predict(X) == machine.predict(X)).all()


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "m"
    save(fitted(ApportionedLinearSVC()), path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save(fitted(ApportionedLinearSVC(C=2)), path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m"]


def test_a_file_is_readable_by_those_the_umask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "f", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o644
    os.chmod(tmp_path / "f", 0o600)
    write_whole(tmp_path / "f", b"y")  # what was private stays private
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "f").read_bytes() == b"y" and os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("no estimator", {}, "'no estimator' is not an estimator"),
        (ApportionedSVC(kernel=lambda a, b: a @ b.T), {}, r"it holds .*<lambda>.*kernel is a function"),
        (ApportionedSVC(loss=LossTable(np.ones((2, 1, 2)), [[1], [1]], [[1], [1]], np.tanh)), {}, None),
        (ApportionedSVC(), {"notes": {"a": {1, 2}}}, "notes must hold what JSON can"),
        (SelectKBest(score_func=print), {}, "print"),
    ],
)
def test_what_cannot_be_saved_says_why(tmp_path, model, options, message):
    if message is None:  # numpy's own functions are known
        save(model, tmp_path / "m", **options)
        return
    with pytest.raises(ValueError, match=message):
        save(model, tmp_path / "m", **options)
    assert os.listdir(tmp_path) == []


def test_missing_folder_and_folder_in_place_of_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="make it first"):
        save(ApportionedSVC(), tmp_path / "none" / "m")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save(ApportionedSVC(), tmp_path)


# ---------------------------------------------------------------- files that are not what they should be


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("persist") / "good"
    save(fitted(ApportionedSVC([1, 2, 5])), path)
    return path.read_bytes()


def rewritten(data, changes):
    """The archive with some members replaced (None: left out)."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = changes.get(name, lambda content: content)(old.read(name))
            if content is not None:
                new.writestr(name, content)
    return out.getvalue()


def header(**entries):
    return {HEADER: lambda content: json.dumps({**json.loads(content), **entries})}


def schema(old, new):
    return {"schema.json": lambda content: content.decode().replace(old, new)}


BAD = {
    "empty": (lambda good: b"", "is empty"),
    "junk": (lambda good: bytes(range(256)) * 4, "no zip archive"),
    "text": (lambda good: b"a,b\n1,2\n", "no zip archive"),
    "pickle": (lambda good: pickle.dumps({"a": 1}), "no zip archive"),
    "cut off": (lambda good: good[: len(good) // 2], "damaged or cut off"),
    "cut off at its end": (lambda good: good[:-10], "damaged or cut off"),
    "only a signature": (lambda good: b"PK\x03\x04", "damaged or cut off"),
    "a byte changed": (lambda good: good[:2000] + bytes([good[2000] ^ 255]) + good[2001:], "damaged"),
    "foreign archive": (
        lambda good: rewritten(good, {HEADER: lambda _: None}),
        "apportion.json is not in it",
    ),
    "header is junk": (lambda good: rewritten(good, {HEADER: lambda _: b"\xff{"}), "not what save writes"),
    "header is a list": (lambda good: rewritten(good, {HEADER: lambda _: b"[1]"}), "not what save writes"),
    "format is a word": (lambda good: rewritten(good, header(format="1")), "not what save writes"),
    "no versions": (lambda good: rewritten(good, header(versions=None)), "not what save writes"),
    "future": (
        lambda good: rewritten(
            good, header(format=FORMAT + 1, versions={"apportion": "9.0", "scikit-learn": "3"})
        ),
        r"format 2, written by apportion 9\.0.*Update apportion",
    ),
    "no schema": (lambda good: rewritten(good, {"schema.json": lambda _: None}), "cannot be read"),
    "schema is junk": (lambda good: rewritten(good, {"schema.json": lambda _: b"{"}), "cannot be read"),
    "future skops": (
        lambda good: rewritten(good, schema('"protocol": 2', '"protocol": 99')),
        "cannot be read .*protocol 99",
    ),
    "foreign type": (
        lambda good: rewritten(good, schema('"ApportionedSVC"', '"Popen"')),
        r"is refused: it holds apportion\.estimators\.Popen",
    ),
    "a function": (
        lambda good: rewritten(good, schema('"apportion.losses"', '"subprocess"')),
        r"is refused: it holds subprocess\.LossTable, subprocess\.PerClass",
    ),
    "no estimator": (
        lambda good: rewritten(
            good,
            {
                "schema.json": lambda _: json.dumps(
                    {
                        "__class__": "str",
                        "__module__": "builtins",
                        "__loader__": "JsonNode",
                        "content": '"a"',
                        "is_json": True,
                        "protocol": 2,
                    }
                )
            },
        ),
        "no estimator but an object of type str",
    ),
    "an array is gone": (
        lambda good: rewritten(good, {zipfile.ZipFile(io.BytesIO(good)).namelist()[0]: lambda _: None}),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_clear_value_error(tmp_path, good, case):
    make, message = BAD[case]
    path = tmp_path / "bad.apportion"
    path.write_bytes(make(good))
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path.write_bytes(good)
        load(path)


def test_any_byte_may_be_lost(tmp_path, good):
    """Cut anywhere, or with any byte changed, a file is refused by a ValueError or was not touched where it matters."""
    rng = np.random.default_rng(0)
    path = tmp_path / "m"
    path.write_bytes(good)
    whole = load(path)
    X = rng.standard_normal((50, whole.n_features_in_))
    for _ in range(150):
        at = int(rng.integers(len(good)))
        cut = rng.random() < 0.3
        path.write_bytes(good[:at] if cut else good[:at] + bytes([rng.integers(256)]) + good[at + 1 :])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = load(path)
        except ValueError:
            continue
        np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_nothing_in_a_file_is_executed(tmp_path, good):
    """A file that names os.system where a loss table decides: refused before anything of it is imported or called."""
    change = rewritten(
        good,
        {
            "schema.json": lambda c: (
                c.decode().replace('"PerClass"', '"system"').replace('"apportion.losses"', '"antigravity"')
            )
        },
    )
    (tmp_path / "m").write_bytes(change)
    with pytest.raises(ValueError, match=r"antigravity\.system"):
        load(tmp_path / "m")
    assert "antigravity" not in sys.modules


def test_own_classes_are_named_on_both_sides(tmp_path):
    model = make_pipeline(Halved(), ApportionedLinearSVC()).fit(*load_iris(return_X_y=True))
    name = f"{__name__}.Halved"
    with pytest.raises(ValueError, match="Name classes of your own in trusted="):
        save(model, tmp_path / "m")
    save(model, tmp_path / "m", trusted=[name])
    with pytest.raises(ValueError, match=f"{name}, which no model of apportion needs"):
        load(tmp_path / "m")
    X = load_iris().data
    assert (load(tmp_path / "m", trusted=[name]).predict(X) == model.predict(X)).all()


class Halved(MinMaxScaler):
    def transform(self, X):
        return super().transform(X) / 2


def test_another_scikit_learn_only_warns(tmp_path, good):
    versions = {"apportion": "0.1.0", "scikit-learn": "99.1.0"}
    (tmp_path / "m").write_bytes(rewritten(good, header(versions=versions)))
    with pytest.warns(UserWarning, match=r"saved with scikit-learn 99\.1\.0 and is used with") as caught:
        load(tmp_path / "m")
    assert len(caught) == 1


# ---------------------------------------------------------------- ONNX


def decided(graph, second="scores", **inputs):
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["label", second], inputs)


def assert_equal_to_predict(model, X):
    label, scores = decided(to_onnx(model, X[:3]), X=np.asarray(X, dtype=float))
    assert (label == model.predict(X)).all()
    own = model.decision_function(X)
    if own.ndim == 1:
        scores = scores[:, 1] - scores[:, 0]
    # float32 only where the machine itself was trained with it: on more than a thousand rows
    np.testing.assert_allclose(
        scores, own, rtol=0, atol=(1e-3 if len(X) > 1000 else 1e-10) * np.abs(own).max()
    )


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "poly", "sigmoid", None])
def test_onnx_is_predict(name, kernel):
    options = {"C": 0.5, "tol": 1e-2, "coef0": 0.3} if kernel in ("poly", "sigmoid") else {"tol": 1e-2}
    costs = COSTS[name]
    machine = (
        ApportionedSVC(costs, kernel=kernel, **options) if kernel else ApportionedLinearSVC(costs, **options)
    )
    assert_equal_to_predict(fitted(machine, name), data(name)[0])


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
@pytest.mark.parametrize(
    "loss", ["one-vs-rest", "pairwise", "weston-watkins", "crammer-singer", "lee-lin-wahba", "reinforced"]
)
def test_onnx_decides_by_every_loss(name, loss):
    model = fitted(ApportionedSVC(COSTS[name], loss=loss, C=5), name)
    assert_equal_to_predict(model, data(name)[0])
    if loss in ("one-vs-rest", "pairwise", "lee-lin-wahba"):
        moved = model[-1].reapportion(np.linspace(1, 4, len(model.classes_)))
        assert_equal_to_predict(make_pipeline(model[0], moved), data(name)[0])


@pytest.mark.parametrize("name", LOADERS)
def test_onnx_of_an_average_of_machines_is_predict(name):
    X, y = data(name)
    fewer = (
        {
            "kernels": ("rbf", "laplacian"),
            "gammas": (1 / 64,),
            "Cs": (8.0,),
            "n_machines": 4,
            "losses": ("apportioned",),
        }
        if name == "digits"
        else {"n_machines": 1000 if name == "iris" else "auto"}  # on iris every machine of the search
    )
    model = ApportionedSVCCV(COSTS[name], **{**SMALL, **fewer}).fit(X, y)
    label, probabilities = decided(to_onnx(model, X), "probabilities", X=X)
    assert (label == model.predict(X)).all()
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-5 if name == "digits" else 1e-9)
    losses, kernels = (
        {m[-1].loss for m in model.machines_},
        {getattr(m[-1], "kernel", "linear") for m in model.machines_},
    )
    if name == "iris":  # all of them are in the graph
        assert losses == {"apportioned", "pairwise", "lee-lin-wahba"} and kernels == {
            "rbf",
            "laplacian",
            "linear",
        }
        assert set(model._scalings) == {"standard", "quantile", "relevance"}
        matrix = model.reapportion([[0, 1, 5], [2, 0, 1], [3, 3, 0]])
        pipeline = make_pipeline(
            StandardScaler(), ApportionedSVCCV(matrix.costs_, scaling="none", **SMALL)
        ).fit(X, y)
        for other in (matrix, pipeline):
            assert (decided(to_onnx(other, X), "probabilities", X=X)[0] == other.predict(X)).all()


def test_onnx_where_nystroem_features_stand_for_kernels(monkeypatch):
    monkeypatch.setattr(apportion.candidates, "KERNEL_ROWS", 100)
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UserWarning, match="Nystroem"):
        model = ApportionedSVCCV([1, 2, 5], **SMALL).fit(X, y)
    assert max(len(machine) for machine in model.machines_) == 3
    assert (decided(to_onnx(model, X), "probabilities", X=X)[0] == model.predict(X)).all()


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_onnx_of_ranks(distribution):
    """With ties, a constant column, and values between, at, next to and far beyond those of the training data."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType

    rng = np.random.default_rng(0)
    for n, n_quantiles in ((30, 30), (300, 200), (300, 7), (40, 2)):
        rounded = rng.exponential(size=n).round(1)
        X = np.column_stack(
            [rng.normal(size=n), rng.integers(0, 4, n), rounded, np.full(n, 3.0), rng.integers(0, 99, n)]
        )
        ranks = QuantileTransformer(n_quantiles=n_quantiles, output_distribution=distribution).fit(X)
        graph = convert_sklearn(
            ranks,
            initial_types=[("X", DoubleTensorType([None, 5]))],
            custom_shape_calculators=apportion._onnx.SHAPES,
            custom_conversion_functions=apportion._onnx.CONVERTERS,
        )
        new = np.vstack([X, X + rng.normal(size=X.shape), 100 * rng.normal(size=X.shape), X + 1e-9, X - 1e-9])
        session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"X": new})[0], ranks.transform(new), rtol=0, atol=1e-10)


def test_onnx_of_bare_and_longer_pipelines_with_gaps(tmp_path):
    X, y = load_iris(return_X_y=True)
    assert_equal_to_predict(ApportionedSVC([1, 2, 5], intercept="free").fit(X, y), X)
    assert_equal_to_predict(ApportionedSGDClassifier([1, 2, 5], C=0.1, random_state=0).fit(X, y), X)
    assert_equal_to_predict(
        ApportionedSVC(loss=loss_table("pairwise", check_costs([1, 2, 5], [0, 1, 2]))).fit(X, y), X
    )
    gaps = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    steps = (
        SimpleImputer(strategy="median", add_indicator=True),
        MinMaxScaler(),
        ApportionedSVC(kernel="laplacian"),
    )
    model = make_pipeline(*steps).fit(gaps, y)
    assert_equal_to_predict(model, gaps)
    graph = to_onnx(model, gaps, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == graph.SerializeToString()


def test_onnx_of_named_columns_with_words():
    X, y = data("wine")
    frame = pd.DataFrame(X, columns=[f"v{j}" for j in range(X.shape[1])])
    frame["word"] = np.where(frame["v0"] > 13, "strong", "mild")
    numbers, words = (StandardScaler(), ["v0", "v7", "v3"]), (OneHotEncoder(), ["word"])
    columns = make_column_transformer(words, (SimpleImputer(), ["v3", "v1", "v12"]), numbers)
    model = make_pipeline(columns, ApportionedSVC([5, 1, 2])).fit(frame, y)
    inputs = {name: frame[[name]].to_numpy() for name in frame}
    label, scores = decided(to_onnx(model, frame), **inputs)
    assert (label == model.predict(frame)).all()
    np.testing.assert_allclose(scores, model.decision_function(frame), atol=1e-12)


def test_onnx_of_columns_whose_names_are_no_identifiers():
    X, y = load_iris(return_X_y=True)
    frame = pd.DataFrame(X, columns=["sepal length (cm)", "petal.width", "2nd", "a-b"])
    columns = make_column_transformer(
        (StandardScaler(), ["a-b", "2nd", "sepal length (cm)"]), remainder="passthrough"
    )
    model = make_pipeline(columns, ApportionedSVC()).fit(frame, y)
    graph = to_onnx(model, frame)
    names = [entry.name for entry in graph.graph.input]
    label, _ = decided(graph, **{name: X[:, [j]] for j, name in enumerate(names)})
    assert (label == model.predict(frame)).all()


def test_onnx_of_a_search():
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(ApportionedLinearSVC(), {"C": [0.1, 1.0]}).fit(X, y)
    assert (decided(to_onnx(search, X), X=X)[0] == search.predict(X)).all()


def test_a_graph_that_decides_otherwise_is_not_given_out(monkeypatch, tmp_path):
    X, y = load_iris(return_X_y=True)
    wrong = apportion._onnx.machines._class_scores
    monkeypatch.setattr(
        apportion._onnx.machines,
        "_class_scores",
        lambda graph, *given: graph.add("Neg", wrong(graph, *given)),
    )
    with pytest.raises(ValueError, match="decides otherwise on 150 rows of X_sample, the first is row 0"):
        to_onnx(ApportionedLinearSVC().fit(X, y), X, tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ApportionedSVC(kernel="precomputed"), "kernel='precomputed' has no ONNX graph"),
        (ApportionedSVC(kernel=lambda a, b: a @ b.T), "has no ONNX graph"),
        (StandardScaler(), "got StandardScaler"),
    ],
)
def test_what_has_no_graph_says_so(model, message):
    X, y = load_iris(return_X_y=True)
    X = X @ X.T if getattr(model, "kernel", "") == "precomputed" else X
    with pytest.raises(ValueError, match=message):
        to_onnx(model.fit(X, y), X)


def test_onnx_refuses_other_decisions_and_shapes():
    X, y = load_iris(return_X_y=True)
    table = loss_table("apportioned", check_costs(None, [0, 1, 2]))
    own = LossTable(table.codes, table.margins, table.weights, np.arctan)
    with pytest.raises(ValueError, match="decides by ufunc has no ONNX graph"):
        to_onnx(ApportionedLinearSVC(loss=own).fit(X, y), X)
    with pytest.raises(ValueError, match=r"X_sample has shape \(4,\)"):
        to_onnx(ApportionedLinearSVC().fit(X, y), X[0])
    with pytest.raises(ValueError, match="labels of an ONNX graph are integers or strings"):
        to_onnx(ApportionedLinearSVC().fit(X, y.astype(float)), X)
