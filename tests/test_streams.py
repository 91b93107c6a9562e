"""Out of core: files and chunks give the machine that memory would, within bounds, and after any kill."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from apportion import ApportionedLinearSVC, ApportionedSGDClassifier, fit_stream
from apportion.chunks import FileChunks

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
csv = pytest.importorskip("pyarrow.csv")

NAMES = np.array(["ham", "news", "spam"])
COSTS = {"ham": 5, "news": 1, "spam": 2}


def rows(n=3000, d=6, seed=0):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 3, n)
    return (draw.normal(size=(n, d)) + 1.5 * np.eye(3, d)[y]).astype(np.float32), NAMES[y]


def table_of(X, y, **more):
    return pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])} | {"kind": y} | more)


def parquet(path, X, y, group=10**6, **more):
    pq.write_table(table_of(X, y, **more), path, row_group_size=group)
    return path


def machine(**settings):
    return ApportionedSGDClassifier(**({"costs": COSTS, "C": 0.01, "random_state": 0} | settings))


def same(a, b):
    return np.array_equal(a.coef_, b.coef_) and np.array_equal(a.intercept_, b.intercept_) and a.t_ == b.t_


# ---------------------------------------------------------------- the same machine as from memory


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "folder", "list"])
def test_files_give_the_machine_of_their_chunks(tmp_path, kind):
    """A file read in chunks of a few rows is partial_fit on these chunks, bit for bit."""
    X, y = rows()
    y = y.astype(object)
    if kind == "parquet":
        source = parquet(tmp_path / "all.parquet", X, y)
    elif kind == "csv":
        X = X.astype(float)
        csv.write_csv(table_of(X, y), source := tmp_path / "all.csv")
    elif kind == "csv.gz":
        X = X.astype(float)
        csv.write_csv(table_of(X, y), plain := tmp_path / "plain")
        source = tmp_path / "all.csv.gz"
        source.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        X = X.astype(float)
        for part, members in enumerate(np.array_split(np.arange(len(y)), 3)):
            csv.write_csv(table_of(X[members], y[members]), tmp_path / f"part{part}.csv")
        source = tmp_path if kind == "folder" else sorted(tmp_path.iterdir())
    chunk = 700
    memory = 3 * chunk * (6 * X.dtype.itemsize + 24) / 2**20
    streamed = fit_stream(machine(), source, target="kind", passes=2, memory=memory * (1 + 1e-9))
    pieces = machine(n_total=len(y))
    for _ in range(2):
        for i in range(0, len(y), chunk):
            pieces.partial_fit(X[i : i + chunk], y[i : i + chunk], NAMES)
    assert same(streamed, pieces) and streamed.n_iter_ == 2 and streamed.t_ == 6000
    assert streamed.feature_names_in_.tolist() == [f"x{j}" for j in range(6)]
    assert streamed.classes_.tolist() == NAMES.tolist()


def test_near_the_exact_machine_with_its_gap(tmp_path):
    X, y = rows()
    exact = ApportionedLinearSVC(COSTS, C=0.01, tol=1e-5).fit(X, y)
    source = parquet(tmp_path / "all.parquet", X, y, group=500)
    found = fit_stream(machine(), source, target="kind", passes=40, memory=0.05, certify=True)
    assert exact.objective_ * (1 - 1e-5) <= found.objective_ <= 1.01 * exact.objective_
    assert (found.objective_ - exact.objective_) / found.objective_ <= found.dual_gap_ < 0.05
    frame = table_of(X, y).select(range(6)).to_pandas()
    assert np.mean(found.predict(frame) == exact.predict(X)) > 0.98


@pytest.mark.parametrize("form", ["list", "function", "sparse", "weights"])
def test_chunks_of_the_user(form):
    X, y = rows()
    parts = np.array_split(np.arange(len(y)), 7)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    make = {
        "list": [(X[p], y[p]) for p in parts],
        "function": lambda: ((X[p], y[p]) for p in parts),
        "sparse": [(sparse.csr_matrix(X[p]), y[p]) for p in parts],
        "weights": [(X[p], y[p], weight[p]) for p in parts],
    }[form]
    found = fit_stream(machine(), make, passes=2)
    pieces = machine(n_total=len(y))
    for _ in range(2):
        for p in parts:
            data = sparse.csr_matrix(X[p]) if form == "sparse" else X[p]
            pieces.partial_fit(data, y[p], NAMES, weight[p] if form == "weights" else None)
    assert same(found, pieces)


def test_an_iterator_serves_one_pass():
    X, y = rows()
    chunks = ((X[i : i + 500], y[i : i + 500]) for i in range(0, len(y), 500))
    once = fit_stream(machine(n_total=len(y)), chunks, classes=NAMES)
    assert once.t_ == len(y)
    with pytest.raises(ValueError, match="can be read once, and this fit reads it 2 times"):
        fit_stream(machine(n_total=len(y)), iter([(X, y)]), classes=NAMES, passes=2)
    with pytest.raises(ValueError, match="can be read once"):
        fit_stream(machine(), iter([(X, y)]))


def test_weights_labels_and_types_of_columns(tmp_path):
    """Integer, boolean and float columns, a weight column, numbers as labels, categories as labels."""
    draw = np.random.default_rng(0)
    n = 500
    weight = draw.uniform(0, 2, n)
    data = {
        "whole": draw.integers(-5, 5, n).astype(np.int16),
        "truth": draw.random(n) > 0.5,
        "single": draw.normal(size=n).astype(np.float32),
    }
    y = (data["whole"] + 3 * data["truth"] + data["single"] > 0).astype(int)
    X = np.column_stack([column.astype(np.float32) for column in data.values()])
    pq.write_table(pa.table(data | {"y": y, "w": weight}), tmp_path / "numbers.parquet")
    found = fit_stream(machine(costs=[1, 3]), tmp_path / "numbers.parquet", target="y", weight="w", memory=1)
    pieces = machine(costs=[1, 3], n_total=n).partial_fit(X, y, [0, 1], weight)
    assert same(found, pieces) and found.classes_.tolist() == [0, 1]
    assert FileChunks([tmp_path / "numbers.parquet"], "y", "w", 1.0).dtype == np.float32
    data["long"] = np.arange(n)
    kinds = pa.array(np.where(y, "yes", "no")).dictionary_encode()
    pq.write_table(pa.table(data | {"y": kinds}), tmp_path / "kinds.parquet")
    found = fit_stream(machine(costs={"yes": 2, "no": 1}), tmp_path / "kinds.parquet", target="y")
    assert found.classes_.tolist() == ["no", "yes"] and found.n_features_in_ == 4
    assert FileChunks([tmp_path / "kinds.parquet"], "y", None, 1.0).dtype == np.float64


def test_balanced_costs_are_counted_first(tmp_path):
    X, y = rows()
    keep = (y != "spam") | (np.arange(len(y)) % 4 == 0)
    source = parquet(tmp_path / "all.parquet", X[keep], y[keep])
    found = fit_stream(machine(costs="balanced"), source, target="kind")
    assert np.allclose(found.costs_, keep.sum() / (3 * np.unique(y[keep], return_counts=True)[1]))


def test_row_groups_are_shuffled_anew_in_each_pass(tmp_path):
    """A file sorted by class, in groups: every pass begins with another group."""
    X, y = rows(3000)
    order = np.argsort(y, kind="stable")
    source = parquet(tmp_path / "sorted.parquet", X[order], y[order], group=100)
    chunks = FileChunks([source], "kind", None, 3 * 100 * 48 / 2**20 * (1 + 1e-9))
    assert chunks.chunk_rows == 100
    firsts = [next(chunks.read(0, np.random.default_rng(p))).y[0] for p in range(20)]
    assert set(firsts) == set(NAMES)
    every = np.sort(
        np.concatenate([chunk.X[:, 0].copy() for chunk in chunks.read(0, np.random.default_rng(0))])
    )
    assert np.array_equal(every, np.sort(X[:, 0]))
    for start in (1, 100, 1234, 2999):
        whole = [chunk.X.copy() for chunk in chunks.read(0, np.random.default_rng(3))]
        rest = [chunk.X.copy() for chunk in chunks.read(start, np.random.default_rng(3))]
        assert np.array_equal(np.concatenate(whole)[start:], np.concatenate(rest))


def test_progress(tmp_path, capsys):
    X, y = rows()
    source = parquet(tmp_path / "all.parquet", X, y)
    news = []
    fit_stream(machine(), source, target="kind", passes=2, memory=0.1, progress=news.append)
    assert [p.passes for p in news[:1] + news[-1:]] == [0, 1] and news[-1].rows == news[-1].total == 3000
    assert news[-1].learnt == 6000
    fit_stream(machine(), source, target="kind", progress=True)
    assert "3,000 of 3,000 rows" in capsys.readouterr().err


# ---------------------------------------------------------------- memory

PEAK = """
import gc, sys
import numpy as np
from apportion import ApportionedSGDClassifier, fit_stream

def measured(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024

small, large, memory = sys.argv[1], sys.argv[2], float(sys.argv[3])
fit = lambda source: fit_stream(ApportionedSGDClassifier(C=1e-3, random_state=0), source, target="y", memory=memory)
fit(small)  # imports, compiled code
gc.collect()
before = measured("VmRSS:")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
fit(large)
print(measured("VmHWM:") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads its memory from /proc")
def test_memory_stays_within_what_was_set(tmp_path):
    """A table of 100 MB in 10 MB, though it is one row group, which plain reading would hold as a whole."""
    draw = np.random.default_rng(0)
    for name, n in (("small", 2000), ("large", 625_000)):
        X = draw.normal(size=(n, 40)).astype(np.float32)
        table = pa.table({f"x{j}": X[:, j] for j in range(40)} | {"y": (X[:, 0] > 0).astype(np.int8)})
        pq.write_table(table, tmp_path / f"{name}.parquet", n, compression="none", use_dictionary=False)
    assert pq.read_metadata(tmp_path / "large.parquet").num_row_groups == 1
    assert os.path.getsize(tmp_path / "large.parquet") > 95 * 2**20
    names = [str(tmp_path / f"{name}.parquet") for name in ("small", "large")]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *names, "10"], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 10 + 40  # pyarrow's buffers come on top, a page of 1 MB for each column


# ---------------------------------------------------------------- kill -9

VICTIM = """
import sys, time
import numpy as np
from apportion import ApportionedSGDClassifier, fit_stream

source, checkpoint, out, slow = *sys.argv[1:4], float(sys.argv[4])

def progress(news):
    print(news.passes, news.rows, flush=True)
    time.sleep(slow)

machine = ApportionedSGDClassifier({"ham": 5, "news": 1, "spam": 2}, C=0.01, random_state=0)
fit_stream(machine, source, target="kind", passes=3, memory=0.05, checkpoint=checkpoint, progress=progress)
np.savez(out, coef=machine.coef_, intercept=machine.intercept_, total=machine.class_weight_total_)
"""


def test_killed_again_and_again_it_ends_at_the_same_machine(tmp_path):
    """SIGKILL in the first pass, in a later one, and between: the last life ends where one long life ends."""
    X, y = rows()
    source = parquet(tmp_path / "all.parquet", X, y, group=800)
    long_life = fit_stream(machine(), source, target="kind", passes=3, memory=0.05)
    out, steps = tmp_path / "out.npz", []
    for chunks, slow in ((3, 0.05), (6, 0.05), (1, 0.0), (None, 0.0)):
        arguments = [str(source), str(tmp_path / "checkpoint"), str(out), str(slow)]
        with subprocess.Popen(
            [sys.executable, "-c", VICTIM, *arguments], stdout=subprocess.PIPE, text=True
        ) as life:
            lines = iter(life.stdout) if chunks is None else (life.stdout.readline() for _ in range(chunks))
            steps.append([tuple(map(int, line.split())) for line in lines])
            if chunks is not None:
                os.kill(life.pid, signal.SIGKILL)
        assert life.returncode == (0 if chunks is None else -signal.SIGKILL)
        assert out.exists() == (chunks is None)
    firsts = [life[0] for life in steps]
    assert firsts == sorted(firsts) and firsts[-1] > firsts[0]  # none started anew
    assert steps[0][0][0] == 0 and steps[-1][-1] == (2, 3000)
    with np.load(out) as found:
        assert np.array_equal(found["coef"], long_life.coef_)
        assert np.array_equal(found["intercept"], long_life.intercept_)
        assert np.array_equal(found["total"], long_life.class_weight_total_)


def test_killed_while_a_checkpoint_is_written(tmp_path):
    """What is left of a half-written file does no harm: the one before it is whole."""
    X, y = rows()
    source = parquet(tmp_path / "all.parquet", X, y)
    checkpoint = tmp_path / "run.checkpoint"
    fit_stream(machine(), source, target="kind", passes=1, memory=0.05, checkpoint=checkpoint)
    (tmp_path / "run.checkpoint.part").write_bytes(checkpoint.read_bytes()[:100])
    again = fit_stream(machine(), source, target="kind", passes=2, memory=0.05, checkpoint=checkpoint)
    straight = fit_stream(machine(), source, target="kind", passes=2, memory=0.05)
    assert same(again, straight) and not (tmp_path / "run.checkpoint.part").exists()


def interrupted(stop_at, *arguments, **settings):
    """A fit that an exception ends after some chunks."""

    def progress(news):
        if (news.passes, news.rows) >= stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_stream(*arguments, progress=progress, **settings)


@pytest.mark.parametrize("seed", [0, None])
def test_resumed_in_any_state(tmp_path, seed, monkeypatch):
    """Random seeds, projections, the certificate, labels that are numbers, chunks of the user."""
    monkeypatch.setattr("apportion.streams.SAVING", np.inf)  # after every chunk
    X, y = rows()
    labels = np.unique(y, return_inverse=True)[1]
    chunks = [(X[i : i + 400], labels[i : i + 400]) for i in range(0, len(y), 400)]
    new = lambda: ApportionedSGDClassifier([5, 1, 2], C=0.5, projection=True, delay=0, random_state=seed)  # noqa: E731
    for stop_at in ((0, 400), (0, 3000), (2, 1200), (4, 2000)):
        interrupted(stop_at, new(), chunks, passes=6, checkpoint=tmp_path / "c")
    found = fit_stream(new(), chunks, passes=6, checkpoint=tmp_path / "c", certify=True)
    with np.load(tmp_path / "c") as stored:
        drawn = json.loads(stored["about"].tobytes())["seed"]
    straight = new()
    straight._begin_stream(np.arange(3), None, 3000.0)
    straight._seed = drawn
    for _ in range(6):
        for X_part, y_part in chunks:
            straight._learn(X_part, y_part, np.ones(len(y_part)))
        straight._end_pass()
    assert same(found, straight) and found.n_iter_ == 6
    if seed == 0:
        whole = fit_stream(new(), chunks, passes=6, certify=True)
        assert same(found, whole) and found.dual_gap_ == whole.dual_gap_


def test_frames_as_chunks_keep_their_names_when_resumed(tmp_path):
    X, y = rows()
    frame = table_of(X, y).to_pandas()
    chunks = [(part.drop(columns="kind"), part["kind"]) for part in (frame[:1000], frame[1000:])]
    interrupted((0, 3000), machine(), chunks, checkpoint=tmp_path / "c")
    found = fit_stream(machine(), chunks, checkpoint=tmp_path / "c")
    assert same(found, fit_stream(machine(), chunks))
    assert found.feature_names_in_.tolist() == [f"x{j}" for j in range(6)]


def test_a_finished_run_is_there_at_once_and_goes_on(tmp_path):
    X, y = rows()
    source = parquet(tmp_path / "all.parquet", X, y)
    settings = {"target": "kind", "memory": 0.05, "checkpoint": tmp_path / "c"}
    first = fit_stream(machine(), source, passes=2, **settings)
    news = []
    again = fit_stream(machine(), source, passes=2, progress=news.append, **settings)
    assert same(first, again) and news == [] and again.n_iter_ == 2
    frame = table_of(X, y).to_pandas()[first.feature_names_in_]
    assert np.array_equal(again.predict(frame), first.predict(frame))
    longer = fit_stream(machine(), source, passes=3, **settings)
    assert same(longer, fit_stream(machine(), source, target="kind", memory=0.05, passes=3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": 1.0}, "C was 0.01 and is 1.0"),
        ({"costs": {"ham": 1, "news": 1, "spam": 2}}, "costs was"),
        ({"loss": "one-vs-rest"}, "loss was"),
        ({"random_state": 5}, "random_state was 0 and is 5"),
        ({"batch_size": 4}, "batch_size was 1 and is 4"),
        ({"n_total": 50}, "n_total was 3000.0 and is 50.0"),
        ({"memory": 1.0}, "chunk_rows was"),
        ({"classes": ["ham", "news", "spam", "zzz"]}, "costs has no key for the class 'zzz'"),
        ({"file": True}, "bytes was"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused(tmp_path, change, message):
    X, y = rows()
    source = parquet(tmp_path / "all.parquet", X, y)
    checkpoint = tmp_path / "c"
    fit_stream(machine(), source, target="kind", memory=0.05, checkpoint=checkpoint)
    kept = checkpoint.read_bytes()
    if change.pop("file", False):
        parquet(source, X[:-5], y[:-5])
    where = {key: change.pop(key) for key in ("memory", "classes") if key in change}
    other = machine(**change)
    with pytest.raises(ValueError, match=message):
        fit_stream(
            other, source, target="kind", checkpoint=checkpoint, passes=2, **({"memory": 0.05} | where)
        )
    assert checkpoint.read_bytes() == kept and not hasattr(other, "classes_")


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    import pickle

    X, y = rows()
    source = parquet(tmp_path / "all.parquet", X, y)

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trapped"),)

    trapped = tmp_path / "trap.npz"
    np.savez(trapped, about=np.array([Trap()], dtype=object))
    (tmp_path / "pickle").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "text").write_text("not an archive")
    for name in ("trap.npz", "pickle", "text"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(ValueError, match=f"checkpoint='.*{name}' cannot be read"):
            fit_stream(machine(), source, target="kind", checkpoint=tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    assert not (tmp_path / "trapped").exists()


# ---------------------------------------------------------------- what is refused


def test_bad_sources_are_named(tmp_path):
    X, y = rows(30)
    good = parquet(tmp_path / "all.parquet", X, y)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    pq.write_table(pa.table({"kind": y, "word": y}), tmp_path / "words.parquet")
    pq.write_table(table_of(np.where(X > 2, np.nan, X), y), tmp_path / "nan.parquet")
    pq.write_table(
        pa.table({"a": pa.array([1.0, None, 2.0]), "kind": ["u", "v", "u"]}), tmp_path / "null.parquet"
    )
    pq.write_table(pa.table({"a": [1.0, 1e200, 2.0], "kind": ["u", "v", "u"]}), tmp_path / "huge.parquet")
    (tmp_path / "bad.csv").write_text("a,kind\n" + "1.5,u\n2.5,v\n" * 100_000 + "x,v\n")
    (tmp_path / "none.csv").write_text("a,kind\n")
    pq.write_table(table_of(X, X[:, 0]), tmp_path / "measured.parquet")
    plain = ApportionedSGDClassifier()
    cases = [
        ({"source": good}, "target=None must be the name of the column"),
        ({"source": good, "target": "y"}, "target='y' is not a column of"),
        ({"source": good, "target": "kind", "weight": "w"}, "weight='w' is not a column of"),
        ({"source": tmp_path / "missing.parquet", "target": "kind"}, "does not exist"),
        ({"source": tmp_path / "empty", "target": "kind"}, "folder without Parquet or CSV files"),
        ({"source": tmp_path / "notes.txt", "target": "kind"}, "must be files of one kind"),
        ({"source": [good, tmp_path / "bad.csv"], "target": "kind"}, "must be files of one kind"),
        ({"source": tmp_path / "words.parquet", "target": "kind"}, "column 'word' is of type string"),
        (
            {"source": tmp_path / "nan.parquet", "target": "kind"},
            "column 'x0' holds nan: features must be finite",
        ),
        ({"source": tmp_path / "null.parquet", "target": "kind"}, "column 'a' has missing values"),
        ({"source": tmp_path / "huge.parquet", "target": "kind"}, r"column 'a' holds 1e\+200"),
        ({"source": tmp_path / "bad.csv", "target": "kind"}, "bad.csv cannot be read as a table of numbers"),
        ({"source": tmp_path / "none.csv", "target": "kind"}, "no rows"),
        ({"source": tmp_path / "measured.parquet", "target": "kind"}, "looks like a measurement"),
        ({"source": [good, tmp_path / "null.parquet"], "target": "kind"}, "null.parquet has no column 'x0'"),
        (
            {"source": good, "target": "kind", "checkpoint": tmp_path / "no" / "c"},
            "folder that does not exist",
        ),
        ({"source": 5}, "source=5 must be a Parquet or CSV file"),
        ({"source": [(X, y)], "target": "kind"}, "target='kind' names a column of a file"),
        ({"source": [X]}, "a chunk must be a pair"),
        ({"source": good, "target": "kind", "passes": 0}, "passes=0 must be an integer >= 1"),
        ({"source": good, "target": "kind", "memory": 0}, "memory=0 must be a number > 0"),
        ({"source": good, "target": "kind", "classes": ["ham", "spam"]}, "'news'"),
        ({"source": [(X[y == "ham"], y[y == "ham"])]}, "needs at least 2 classes"),
    ]
    for case, message in cases:
        with pytest.raises(ValueError, match=message):
            fit_stream(plain, **case)
        assert not hasattr(plain, "classes_")
    with pytest.raises(ValueError, match="must be an ApportionedSGDClassifier"):
        fit_stream(ApportionedLinearSVC(), good, target="kind")


def test_a_source_that_changes_is_noticed():
    X, y = rows()
    calls = []

    def chunks():
        calls.append(1)
        yield X[: 3000 - len(calls)], y[: 3000 - len(calls)]

    with pytest.raises(ValueError, match="pass 1 had 2998 rows and should have had 2999"):
        fit_stream(machine(), chunks, passes=2)


def test_a_certificate_is_of_all_rows_or_none():
    X, y = rows(300)
    once = iter([(X, y)])
    with pytest.raises(
        ValueError, match="the reading for the certificate had 0 rows and should have had 300"
    ):
        fit_stream(machine(n_total=300), lambda: once, classes=NAMES, certify=True)


def test_a_source_without_rows_and_chunks_without_weight(tmp_path):
    X, y = rows(300)
    with pytest.raises(ValueError, match="the source has no rows"):
        fit_stream(machine(n_total=300), lambda: [], classes=NAMES)
    parquet(tmp_path / "none.parquet", X[:0], y[:0])
    with pytest.raises(ValueError, match="the source has no rows"):
        fit_stream(machine(), tmp_path / "none.parquet", target="kind", classes=NAMES)
    weight = np.ones(300)
    weight[100:200] = 0.0
    parts = [slice(0, 100), slice(100, 200), slice(200, 300)]
    fitted = fit_stream(machine(), [(X[p], y[p], weight[p]) for p in parts])
    assert fitted.class_weight_total_.sum() == 200
    with pytest.warns(DataConversionWarning):  # labels as a column
        column = fit_stream(machine(), [(X[p], y[p][:, None], weight[p]) for p in parts])
    assert same(column, fitted)


def test_csv_files_agree_on_their_types(tmp_path):
    X = rows(200)[0]
    for name, flags, labels in (("a", "true false", "1 2"), ("b", "false true", "1 other")):
        lines = ["x,flag,y"] + [
            f"{X[i, 0]},{flags.split()[i % 2]},{labels.split()[i % 2]}" for i in range(100)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    fitted = fit_stream(machine(costs=None), tmp_path / "a.csv", target="y")
    new = pd.DataFrame({"x": [0.0, 0.0], "flag": [1.0, 0.0]})
    assert fitted.classes_.tolist() == [1, 2] and fitted.predict(new).tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"cannot be read as a table of numbers and labels.*other"):
        fit_stream(machine(costs=None), [tmp_path / "a.csv", tmp_path / "b.csv"], target="y")
    (tmp_path / "c.csv").write_text("x,x,y\n1,2,1\n3,4,2\n")
    with pytest.raises(ValueError, match="more than one column 'x'"):
        fit_stream(machine(costs=None), tmp_path / "c.csv", target="y")


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    X, y = rows(30)
    source = parquet(tmp_path / "all.parquet", X, y)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"pip install apportion\[stream\]"):
        fit_stream(machine(), source, target="kind")
