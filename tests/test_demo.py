"""The examples: the demo prints costs, sensitivities and true gaps; the picture shows what it says."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def demo():
    return load("demo")


def test_demo_prints_the_table(demo, capsys):
    demo.main(size=2, folds=2)
    printed = capsys.readouterr().out
    rows = {}
    for name in ("ApportionedSVC", "SVC(class_weight)"):
        line = re.search(rf"^{re.escape(name)} +(\S.*)$", printed, re.MULTILINE)
        rows[name] = [float(word.rstrip("%")) for word in line[1].split()]
    for cost, savings, malignant, benign, gap in rows.values():
        # the cost follows from the sensitivities: 212 malignant tumours at 10, 357 benign ones at 1
        again = (10 * 212 * (100 - malignant) + 357 * (100 - benign)) / 100 / 569
        assert cost == pytest.approx(again, abs=2e-2)
        assert savings == pytest.approx(100 * (1 - cost / (357 / 569)), abs=0.1)  # constant: all malignant
        assert 0 <= gap <= 1e-2
    ours, rival = (row[0] for row in rows.values())
    if ours != rival:
        assert f"Here {'ApportionedSVC' if ours < rival else 'SVC(class_weight)'} costs less" in printed
    for word in ("expected cost", "savings", "sensitivity", "duality gap", "powers"):
        assert re.search(rf"^{word}  +\w|^{word}  +\(", printed, re.MULTILINE), f"{word} is not explained"


def test_both_methods_are_tuned_alike(demo):
    ours, rival = demo.searches(6, 5).values()
    sizes = [
        sum(np.prod([len(v) for v in g.values()]) for g in grids)
        for grids in (ours.param_grid, [rival.param_grid])
    ]
    assert sizes[0] == sizes[1] == 36
    assert repr(ours.cv) == repr(rival.cv)
    for name in ("svc__C", "svc__gamma"):
        mine, theirs = ours.param_grid[0][name], rival.param_grid[name]
        assert (mine.min(), mine.max()) == (theirs.min(), theirs.max())


def test_gap_of_svc_is_the_true_gap(demo):
    X, y = make_blobs(80, centers=[[0, 0], [1, 1]], random_state=0)
    y = np.array(["benign", "malignant"])[y]
    svc = SVC(C=2.0, gamma=0.5, class_weight=demo.COSTS, tol=1e-2).fit(X, y)
    K = rbf_kernel(X, gamma=0.5)
    beta = np.zeros(len(y))
    beta[svc.support_] = svc.dual_coef_[0]
    hinge = 0.0
    for i in range(len(y)):
        score = svc.intercept_[0] + sum(K[i, j] * beta[j] for j in range(len(y)))
        hinge += 2.0 * demo.COSTS[y[i]] * max(0.0, 1.0 - (score if y[i] == "malignant" else -score))
    primal, dual = 0.5 * beta @ K @ beta + hinge, np.abs(beta).sum() - 0.5 * beta @ K @ beta
    assert demo.svc_gap(svc, X, y) == pytest.approx((primal - dual) / primal, rel=1e-6)


def test_the_picture_shows_shares_of_ten_to_one():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    figure = load("geometry").figure()
    svc, ours, _ = ([text.get_text() for text in ax.texts if text.get_text().isdigit()] for ax in figure.axes)
    assert svc == ["1", "1"]
    assert sorted(ours) == ["1", "10"]
    plt.close(figure)
