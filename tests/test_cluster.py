"""The machine on a real cluster of two worker processes: the same machine, whatever the collection, and whoever dies."""

import logging
import os
import signal
import threading

import dask
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import apportion
from apportion import ApportionedLinearSVC, ApportionedSVC, ApportionedSVCCV, cost_scorer

pytest.importorskip("distributed")

import dask.array as da
import dask.dataframe as dd
from distributed import Client, LocalCluster

from apportion import partitions
from apportion.cluster import DaskApportionedLinearSVC, expected_cost

N, D, K, BLOCK = 1200, 8, 3, 150
COSTS = [1.0, 2.0, 5.0]
pytestmark = pytest.mark.filterwarnings(r"default::ResourceWarning", "ignore:.*unclosed.*")


def test_without_a_client_the_error_says_what_to_do():
    X, y = data()
    with pytest.raises(ValueError, match="no Dask client"):
        DaskApportionedLinearSVC().fit(*blocks(X, y))


@pytest.fixture(scope="module")
def client():
    settings = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "memory_limit": 0}
    patience = {"distributed.deploy.lost-worker-timeout": "1h", "distributed.comm.timeouts.connect": "60s"}
    with (
        dask.config.set(patience),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **settings) as cluster,
        Client(cluster, timeout="60s") as client,
    ):
        yield client


def data(k=K, n=N):
    X, y = make_classification(n, D, n_informative=6, n_classes=k, class_sep=0.7, random_state=0)
    return X + 0.3, y


def blocks(*arrays):
    return tuple(da.from_array(array, chunks=(BLOCK, *array.shape[1:])) for array in arrays)


# ---------------------------------------------------------------- the same machine


def same(machine, one, tol=1e-3):
    """Both within their gaps of one optimum."""
    assert machine.dual_gap_ <= tol and len(machine.gaps_) == machine.n_iter_
    assert np.all(np.diff(machine.gaps_) <= 1e-12)
    assert one.objective_ * (1 - one.dual_gap_) <= machine.objective_ <= one.objective_ / (1 - tol)


@pytest.mark.parametrize("loss", ["apportioned", "pairwise", "crammer-singer"])
def test_arrays(client, loss):
    X, y = data()
    machine = DaskApportionedLinearSVC(COSTS, loss=loss, C=0.1).fit(*blocks(X, y))
    one = ApportionedLinearSVC(COSTS, loss=loss, C=0.1, tol=1e-5).fit(X, y)
    same(machine, one)
    assert machine.n_parts_ == 2
    assert machine.coef_.shape == one.coef_.shape and machine.n_features_in_ == D
    assert machine.costs_.tolist() == COSTS and machine.classes_.tolist() == [0, 1, 2]


def test_frames_with_words_weights_and_a_cost_matrix(client):
    X, y = data()
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)])
    words = pd.Series(np.array(["well", "cold", "flu"])[y])
    weight = np.random.default_rng(0).integers(0, 3, N)
    costs = pd.DataFrame(
        [[0, 1, 4], [2, 0, 1], [9, 3, 0]], index=["cold", "flu", "well"], columns=["cold", "flu", "well"]
    )
    setting = {"loss": "lee-lin-wahba", "C": 0.1, "intercept_scaling": 3.0}
    lazy = [dd.from_pandas(part, npartitions=5) for part in (frame, words, pd.Series(weight))]
    machine = DaskApportionedLinearSVC(costs, **setting).fit(lazy[0], lazy[1], sample_weight=lazy[2])
    one = ApportionedLinearSVC(costs, tol=1e-5, **setting).fit(frame, words, sample_weight=weight)
    same(machine, one)
    assert machine.feature_names_in_.tolist() == frame.columns.tolist()
    decisions = machine.predict(lazy[0]).compute()
    assert decisions.tolist() == machine.to_local().predict(frame).tolist()
    # objectives within 1e-3 (above) leave rows near a boundary undecided: which, depends on the order of the answers
    assert np.mean(decisions == one.predict(frame)) > 0.9
    assert machine.decision_function(lazy[0]).compute().shape == (N, 3)
    with pytest.raises(ValueError, match="feature names"):
        machine.predict(lazy[0].rename(columns={"x0": "z"})).compute()
    machine.set_params(costs=None).fit(*blocks(X, y))  # again, on data without names
    assert not hasattr(machine, "feature_names_in_") and machine.to_local().predict(X).shape == (N,)


def test_csr_blocks(client):
    X, y = data()
    X[np.abs(X) < 0.5] = 0
    lazy = blocks(X)[0].map_blocks(sparse.csr_matrix)
    machine = DaskApportionedLinearSVC("balanced", C=0.1, intercept="none").fit(lazy, *blocks(y))
    one = ApportionedLinearSVC("balanced", C=0.1, intercept="none", tol=1e-5).fit(sparse.csr_matrix(X), y)
    same(machine, one)
    assert not machine.intercept_.any()
    assert machine.predict(lazy).compute().tolist() == machine.to_local().predict(X).tolist()


def test_single_precision_column_blocks_and_blocks_of_unknown_size(client):
    X, y = data(k=2)
    keep = X[:, 0] > -2
    narrow = da.from_array(X.astype(np.float32), chunks=(BLOCK, 3))
    some = narrow[da.from_array(keep, chunks=BLOCK)]
    assert np.isnan(some.shape[0])
    machine = DaskApportionedLinearSVC([1, 5], C=0.1).fit(
        some, blocks(y)[0][da.from_array(keep, chunks=BLOCK)]
    )
    same(machine, ApportionedLinearSVC([1, 5], C=0.1, tol=1e-5).fit(X[keep], y[keep]), tol=1.01e-3)
    scores = machine.decision_function(some).compute()
    assert scores.shape == (keep.sum(),)
    assert np.array_equal(machine.classes_[(scores > 0).astype(int)], machine.predict(some).compute())


def test_weight_two_is_the_row_twice(client):
    X, y = data()
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(N), weight.astype(int))
    a = DaskApportionedLinearSVC(C=0.1, tol=1e-4).fit(*blocks(X, y), sample_weight=blocks(weight)[0])
    b = DaskApportionedLinearSVC(C=0.1, tol=1e-4).fit(*blocks(X[twice], y[twice]))
    assert a.objective_ == pytest.approx(b.objective_, rel=2e-4)


def test_expected_cost_is_that_of_arrays(client):
    rng = np.random.default_rng(0)
    words = np.array(["a", "b", "c"])
    true, pred, weight = words[rng.integers(0, 3, N)], words[rng.integers(0, 3, N)], rng.random(N)
    weight[:BLOCK] = 0  # a block without weight
    lazy = blocks(true, pred, weight)
    for costs in (None, "balanced", {"a": 1, "b": 2, "c": 5}, [[0, 1, 2], [3, 0, 4], [5, 6, 0]]):
        for given, weighed in ((None, None), (weight, lazy[2])):
            expected = apportion.expected_cost(true, pred, costs=costs, sample_weight=given)
            assert expected_cost(*lazy[:2], costs=costs, sample_weight=weighed) == pytest.approx(expected)
    with pytest.raises(ValueError, match="not among"):
        expected_cost(*lazy[:2], costs={"a": 1, "b": 2})


def test_back_to_one_machine(client):
    X, y = data()
    lazy = blocks(X, y)
    machine = clone(DaskApportionedLinearSVC(COSTS, C=0.1)).fit(*lazy)
    local = machine.to_local()
    assert isinstance(local, ApportionedLinearSVC) and local.C == 0.1 and local.dual_gap_ == machine.dual_gap_
    scores = X @ machine.coef_.T + machine.intercept_
    assert np.allclose(local.decision_function(X), machine.table_.decide(scores))
    assert machine.score(*lazy) == pytest.approx(local.score(X, y))
    assert (local.reapportion([1, 1, 50]).predict(X) == 2).sum() > (local.predict(X) == 2).sum()


def test_too_few_rounds_warn_and_say_how_far(client):
    with pytest.warns(ConvergenceWarning, match="after 2 rounds"):
        machine = DaskApportionedLinearSVC(C=1.0, tol=1e-6, max_iter=2).fit(*blocks(*data()))
    assert machine.dual_gap_ > 1e-6 and machine.n_iter_ == 2


def test_rows_are_shared_out_and_stay_where_they_are(client):
    """Blocks that all lie on one worker are dealt to both; after that only answers travel."""

    def moved(dask_worker):
        return [key for entry in dask_worker.transfer_incoming_log for key in entry["keys"]]

    first = next(iter(client.nthreads()))
    lazy = client.persist(blocks(*data()), workers=[first])
    machine = DaskApportionedLinearSVC(COSTS, C=1.0).fit(*lazy)
    assert machine.n_parts_ == 2 and machine.n_iter_ > 5
    keys = [str(key) for log in client.run(moved).values() for key in log]
    assert any(key.startswith("_check") for key in keys)
    assert not any(key.startswith(("_part", "answer")) for key in keys)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"intercept": "free"}, "intercept='free' is not available.*'penalized'.*'none'"),
        ({"C": np.inf}, "C=inf must be a number > 0"),
        ({"C": 0}, "C=0 must be"),
        ({"local_iter": 0}, "local_iter=0 must be an integer >= 1"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"loss": "hinge"}, "loss='hinge' is not known"),
        ({"costs": [1, 2]}, r"costs has shape \(2,\)"),
    ],
)
def test_bad_parameters_are_named(client, setting, message):
    with pytest.raises(ValueError, match=message):
        DaskApportionedLinearSVC(**setting).fit(*blocks(*data()))


def test_bad_data_are_named_and_leave_the_machine_as_it_was(client):
    X, y = data()
    machine = DaskApportionedLinearSVC(C=0.1)
    with pytest.raises(NotFittedError):
        machine.predict(blocks(X)[0])
    machine.fit(*blocks(X, y))
    before = machine.coef_
    broken = X.copy()
    broken[5, 5] = np.nan
    weight = np.ones(N)
    cases = [
        ((X, blocks(y)[0]), "X is a ndarray; it must be a dask array"),
        ((blocks(X)[0], y), "y is a ndarray"),
        ((blocks(X)[0], da.from_array(y, chunks=N)), "y has 1 blocks and X has 8"),
        ((blocks(X)[0], da.from_array(y, chunks=[(100, 200, *[150] * 6)])), "y has blocks of"),
        (blocks(broken, y), "X contains NaN"),
        (blocks(1e120 * X, y), "overflows"),
        (blocks(X, X[:, 0]), "Unknown label type"),
        (blocks(X, 0 * y), "at least 2 classes"),
        (blocks(X, y, -weight), r"sample_weight\[0\]=-1.0; it must hold finite numbers >= 0"),
        (blocks(X, y, np.where(y == 0, 1.0, 0.0)), "fewer than 2 classes"),
    ]
    for given, message in cases:
        with pytest.raises(ValueError, match=message):
            machine.fit(*given)
    assert machine.coef_ is before


# ---------------------------------------------------------------- workers die


def kill_one(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def test_workers_killed_between_rounds_lose_nothing(client, monkeypatch):
    X, y = data()
    take, duals, deaths = partitions.Rounds.take, [], []

    def take_and_kill(rounds, answers, tol):
        take(rounds, answers, tol)
        duals.append(rounds.dual)
        if rounds.n_iter in (2, 4):
            kill_one(client)
            deaths.append(rounds.n_iter)

    monkeypatch.setattr(partitions.Rounds, "take", take_and_kill)
    machine = DaskApportionedLinearSVC(COSTS, C=0.1, tol=1e-4).fit(*blocks(X, y))
    assert deaths == [2, 4]
    assert np.all(np.diff(duals) >= 0)
    same(machine, ApportionedLinearSVC(COSTS, C=0.1, tol=1e-5).fit(X, y), tol=1e-4)
    client.wait_for_workers(2, timeout=60)


def test_a_worker_killed_at_work_loses_nothing(client):
    X, y = data(n=3000)
    lazy = tuple(da.from_array(array, chunks=(500, *array.shape[1:])) for array in (X, y))
    client.wait_for_workers(2, timeout=60)
    timer = threading.Timer(0.3, kill_one, [client])
    timer.start()
    machine = DaskApportionedLinearSVC(COSTS, loss="weston-watkins", C=0.1, tol=1e-4).fit(*lazy)
    timer.join()
    same(machine, ApportionedLinearSVC(COSTS, loss="weston-watkins", C=0.1, tol=2e-4).fit(X, y), tol=1e-4)


# ---------------------------------------------------------------- model selection over a cluster


def batches(client):
    """How many batches of joblib's the cluster has run."""
    return sum(
        prefix.state_counts["memory"]
        for name, prefix in client.cluster.scheduler.task_prefixes.items()
        if "batch" in name
    )


def test_searches_run_on_the_cluster_through_joblib(client):
    from joblib import parallel_config
    from sklearn.model_selection import GridSearchCV

    X, y = data(n=240)
    client.wait_for_workers(2, timeout=60)
    search = GridSearchCV(ApportionedSVC(COSTS), {"C": [0.1, 1.0]}, scoring=cost_scorer(COSTS), cv=2)
    here = clone(search).fit(X, y)
    before = batches(client)
    with parallel_config(backend="dask"):
        there = clone(search).fit(X, y)
    assert batches(client) > before
    assert there.best_params_ == here.best_params_
    assert np.allclose(there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"])


def test_the_tuned_machine_is_the_same_on_the_cluster(client):
    from joblib import parallel_config

    X, y = data(n=150)
    tuned = ApportionedSVCCV(
        COSTS, kernels=("rbf",), gammas=(0.1,), Cs=(1.0, 10.0), cv=2, n_jobs=2, random_state=0
    )
    here = clone(tuned).set_params(n_jobs=1).fit(X, y)
    before = batches(client)
    with parallel_config(backend="dask"):
        there = clone(tuned).fit(X, y)
    assert batches(client) > before
    assert there.best_cost_ == pytest.approx(here.best_cost_)
    assert there.predict(X).tolist() == here.predict(X).tolist()
