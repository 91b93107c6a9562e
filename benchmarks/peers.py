"""Every method as its users would run it: `fit`, `predict`, and the coefficients by which all are judged.

A fit is `fit(X, y, threads, **params) -> model` with y in 0 .. k-1; packages are imported inside, so
that a missing one is only missing for its own rows. Coefficients are `support (s,), beta (s, m)` where a
method has a dual solution, else `W (m, d), b (m,)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

CACHE_MB = 1000


def _argmax_predict(model: Any, X) -> np.ndarray:
    return model.predict(X)


@dataclass(frozen=True)
class Method:
    label: str
    fit: Callable[..., Any]
    coefficients: Callable[[Any, np.ndarray], dict[str, np.ndarray]]  # (model, y)
    predict: Callable[[Any, Any], np.ndarray] = _argmax_predict
    package: str = "scikit-learn"
    warm_up: int = 500  # rows of the fit that is not timed
    ours: bool = False
    solver: bool = True  # False: does not stop at a tolerance of the objective, so never "the fastest peer"


def _from_binaries(parts: list[tuple[np.ndarray, np.ndarray]], y: np.ndarray) -> dict[str, np.ndarray]:
    """k binary machines (support, dual coefficients): beta = +-alpha, whatever sign a package uses."""
    alpha = np.zeros((len(y), len(parts)))
    for j, (support, dual) in enumerate(parts):
        alpha[support, j] = np.abs(dual)
    return _sparse_rows(alpha * np.where(y[:, None] == np.arange(len(parts)), 1, -1))


def _sparse_rows(beta: np.ndarray) -> dict[str, np.ndarray]:
    support = np.flatnonzero(beta.any(axis=1))
    return {"support": support, "beta": beta[support]}


# ---------------------------------------------------------------- kernel machines


def _svc_ovr_fit(X, y, threads, *, C, gamma, tol=1e-3):
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC

    return OneVsRestClassifier(SVC(C=C, gamma=gamma, tol=tol, cache_size=CACHE_MB), n_jobs=threads).fit(X, y)


def _sklearnex_ovr_fit(X, y, threads, *, C, gamma, tol=1e-3):
    from daal4py import daalinit
    from sklearn.multiclass import OneVsRestClassifier
    from sklearnex.svm import SVC

    daalinit(nthreads=threads)
    return OneVsRestClassifier(SVC(C=C, gamma=gamma, tol=tol, cache_size=CACHE_MB)).fit(X, y)


def _ovr_coefficients(model, y):
    return _from_binaries([(part.support_, part.dual_coef_[0]) for part in model.estimators_], y)


def _svc_ovo_fit(X, y, threads, *, C, gamma, tol=1e-3):
    from sklearn.svm import SVC

    return SVC(C=C, gamma=gamma, tol=tol, cache_size=CACHE_MB).fit(X, y)


def _ovo_coefficients(model, y):
    """dual_coef_ (k - 1, s): for class c the pair with j stands in row j - 1 if j > c, in row j if j < c."""
    k, dual = len(model.classes_), np.abs(model.dual_coef_)
    of_class = y[model.support_]
    beta = np.zeros((len(model.support_), k * (k - 1) // 2))
    for pair, (a, b) in enumerate(zip(*np.triu_indices(k, 1), strict=True)):
        beta[of_class == a, pair] = dual[b - 1, of_class == a]
        beta[of_class == b, pair] = -dual[a, of_class == b]
    return {"support": model.support_, "beta": beta}


def _libsvm_fit(X, y, threads, *, C, gamma, tol=1e-3):
    from libsvm.svmutil import svm_parameter, svm_problem, svm_train

    X = sp.csr_matrix(
        X
    )  # its wrapper goes row by row in Python through an ndarray; liblinear's does the same
    options = f"-s 0 -t 2 -c {C!r} -g {gamma!r} -e {tol!r} -m {CACHE_MB} -q"
    return [
        svm_train(svm_problem(np.where(y == j, 1.0, -1.0), X), svm_parameter(options))
        for j in range(int(y.max()) + 1)
    ]


def _libsvm_predict(models, X):
    from libsvm.svmutil import svm_predict

    scores = []
    for model in models:
        values = svm_predict([], X, model, "-q")[2]
        scores.append(np.ravel(values) * model.get_labels()[0])  # positive for the class that came first
    return np.argmax(scores, axis=0)


def _libsvm_coefficients(models, y):
    parts = [(np.array(m.get_sv_indices()) - 1, np.ravel([c[0] for c in m.get_sv_coef()])) for m in models]
    return _from_binaries(parts, y)


def _thundersvm_fit(X, y, threads, *, C, gamma, tol=1e-3):
    from thundersvm import SVC

    return [
        (
            1 if y[0] == j else -1,
            SVC(C=C, gamma=gamma, tol=tol, cache_size=CACHE_MB, n_jobs=threads).fit(X, y == j),
        )
        for j in range(int(y.max()) + 1)
    ]


def _thundersvm_predict(models, X):
    return np.argmax([first * np.ravel(m.decision_function(X)) for first, m in models], axis=0)


def _thundersvm_coefficients(models, y):
    return _from_binaries([(m.support_, m.dual_coef_[0]) for _, m in models], y)


# ---------------------------------------------------------------- linear machines


def _linear_svc_fit(X, y, threads, *, C, tol=1e-4, max_iter=1000):
    from sklearn.svm import LinearSVC

    return LinearSVC(loss="hinge", dual=True, C=C, tol=tol, max_iter=max_iter, random_state=0).fit(X, y)


def _sgd_fit(X, y, threads, *, C):
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(loss="hinge", alpha=1 / (len(y) * C), random_state=0, n_jobs=threads).fit(X, y)


def _linear_coefficients(model, y):
    return {"W": model.coef_, "b": np.ravel(model.intercept_)}


def _liblinear_fit(X, y, threads, *, C, tol=0.1):
    from liblinear.liblinearutil import parameter, problem, train

    return train(problem(y, sp.csr_matrix(X), bias=1), parameter(f"-s 3 -B 1 -c {C!r} -e {tol!r} -q"))


def _liblinear_predict(model, X):
    from liblinear.liblinearutil import predict

    return np.array(predict([], X, model, "-q")[0]).astype(int)


def _liblinear_coefficients(model, y):
    parts = sorted((label, model.get_decfun(i)) for i, label in enumerate(model.get_labels()))
    return {"W": np.array([w for _, (w, _) in parts]), "b": np.array([b for _, (_, b) in parts])}


# ---------------------------------------------------------------- ours


def _ours_fit(X, y, threads, **params):
    from apportion import ApportionedSVC

    return ApportionedSVC(n_jobs=threads, **params).fit(X, y)


def _ours_linear_fit(X, y, threads, **params):
    from apportion import ApportionedLinearSVC

    return ApportionedLinearSVC(n_jobs=threads, **params).fit(X, y)


def _ours_coefficients(model, y):
    found = {"objective": model.objective_, "dual_gap": model.dual_gap_, "n_iter": np.max(model.n_iter_)}
    if getattr(model, "dual_coef_", None) is not None:
        found |= {"support": model.support_, "beta": model.dual_coef_}
    if getattr(model, "coef_", None) is not None:
        found |= {"W": model.coef_, "b": model.intercept_}
    return found


METHODS: dict[str, Method] = {
    "ours": Method(
        "**apportion**", _ours_fit, _ours_coefficients, package="apportion", warm_up=2000, ours=True
    ),
    "ours-linear": Method(
        "**apportion**", _ours_linear_fit, _ours_coefficients, package="apportion", warm_up=10_000, ours=True
    ),
    "svc-ovr": Method("SVC one-vs-rest", _svc_ovr_fit, _ovr_coefficients),
    "libsvm-ovr": Method(
        "LIBSVM one-vs-rest", _libsvm_fit, _libsvm_coefficients, _libsvm_predict, "libsvm-official"
    ),
    "sklearnex-ovr": Method(
        "sklearnex SVC one-vs-rest", _sklearnex_ovr_fit, _ovr_coefficients, package="scikit-learn-intelex"
    ),
    "thundersvm-ovr": Method(
        "ThunderSVM one-vs-rest",
        _thundersvm_fit,
        _thundersvm_coefficients,
        _thundersvm_predict,
        "thundersvm-cpu",
    ),
    "svc-ovo": Method("SVC one-vs-one", _svc_ovo_fit, _ovo_coefficients),
    "linearsvc": Method("LinearSVC", _linear_svc_fit, _linear_coefficients),
    "liblinear": Method(
        "LIBLINEAR -s 3", _liblinear_fit, _liblinear_coefficients, _liblinear_predict, "liblinear-official"
    ),
    "sgd": Method("SGDClassifier", _sgd_fit, _linear_coefficients, solver=False),
}
