"""The Displays: what they hold is what slow twins compute, what they draw is what they hold."""

import sys

import matplotlib
import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from apportion import ApportionedLinearSVC, ApportionedSVC, class_sensitivity, expected_cost
from apportion.show import (
    ConvergenceDisplay,
    CostCurveDisplay,
    DecisionRegionsDisplay,
    MarginDistributionDisplay,
    SensitivityPathDisplay,
)

NAMES = np.array(["_well", "ill $x_$", "very <ill>"])  # names that matplotlib would take for something else


@pytest.fixture(autouse=True)
def agg():
    from matplotlib import pyplot as plt

    matplotlib.use("Agg")
    yield
    for number in plt.get_fignums():  # every figure can be drawn
        plt.figure(number).canvas.draw()
    plt.close("all")


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(150, centers=[[0, 0], [3, 3], [0, 4]], random_state=0)
    return X, NAMES[y]


@pytest.fixture(scope="module")
def machine(blobs):
    return make_pipeline(StandardScaler(), ApportionedSVC([1, 2, 6], loss="one-vs-rest")).fit(*blobs)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# ---------------------------------------------------------------- regions


def test_regions_are_the_decisions(machine, blobs):
    display = DecisionRegionsDisplay.from_estimator(machine, *blobs, grid_resolution=40)
    points = np.column_stack([display.xx.ravel(), display.yy.ravel()])
    assert (display.classes[display.region.ravel()] == machine.predict(points)).all()
    assert (display.leads.argmax(axis=0) == display.region).all()
    assert display.ax_.figure is display.figure_ and len(display.ax_.collections) >= 6
    assert [text.strip() for text in legend(display.ax_)] == ["_well", r"ill \$x_\$", "very <ill>"]


def test_support_hyperplanes_of_the_linear_machine():
    """With two classes they are w_j x + b_j = theta_j, and a hard margin's examples touch them from beyond."""
    X, y = make_blobs(60, centers=[[-4, 0], [4, 1]], random_state=0)
    machine = ApportionedLinearSVC([1, 5], C=np.inf, intercept="free", tol=1e-6).fit(X, y)
    display = DecisionRegionsDisplay.from_estimator(machine, X, y, grid_resolution=60)
    points = np.column_stack([display.xx.ravel(), display.yy.ravel()])
    for c, theta in enumerate([1, 5]):
        raw = points @ machine.coef_[c] + machine.intercept_[c]
        assert np.allclose(display.slack[c].ravel(), theta - raw, atol=1e-2 * theta)
        own = X[y == c] @ machine.coef_[c] + machine.intercept_[c]
        assert own.min() == pytest.approx(theta, rel=1e-2)
    assert "support hyperplanes" in display.ax_.get_title()


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), DecisionTreeClassifier(max_depth=3, random_state=0)]
)
def test_regions_of_other_classifiers(estimator, blobs):
    display = DecisionRegionsDisplay.from_estimator(estimator.fit(*blobs), blobs[0], grid_resolution=30)
    assert display.slack is None and display.y is None and display.ax_.get_legend() is None
    assert "support" not in display.ax_.get_title()


@pytest.mark.parametrize("k", [3, 4])
def test_boundaries_are_those_of_the_regions_where_scores_are_of_pairs(k):
    """Three pairs of three classes have as many columns as classes, and six of four have more."""
    X, y = make_blobs(120, centers=k, cluster_std=2.0, random_state=0)
    machine = SVC(kernel="linear", decision_function_shape="ovo").fit(X, y)
    display = DecisionRegionsDisplay.from_estimator(machine, X, grid_resolution=30)
    assert (display.leads.argmax(axis=0) == display.region).all()
    assert display.leads.shape == (k, 30, 30) and set(np.unique(display.leads)) == {-1.0, 1.0}


def test_regions_take_a_frame_and_a_given_axes(blobs):
    pandas = pytest.importorskip("pandas")
    from matplotlib import pyplot as plt

    X = pandas.DataFrame(blobs[0], columns=["age (years)", "size (mm)"])
    _, ax = plt.subplots()
    fitted = ApportionedLinearSVC().fit(X, blobs[1])
    options = {
        "extent": (-1, 2, -3, 4),
        "fill": False,
        "margins": False,
        "palette": ["r", "g", "b"],
        "linewidths": 1,
    }
    display = DecisionRegionsDisplay.from_estimator(fitted, X, ax=ax, grid_resolution=20, **options)
    assert display.ax_ is ax and (ax.get_xlabel(), ax.get_ylabel()) == ("age (years)", "size (mm)")
    assert ax.get_xlim() == (-1, 2) and ax.get_ylim() == (-3, 4) and not ax.images


# ---------------------------------------------------------------- along the cost ratio


def test_cost_curve_and_path_by_probabilities(blobs):
    X, y = blobs
    model = LogisticRegression().fit(X[::2], y[::2])
    X, y, ratios = X[1::2], y[1::2], np.array([0.1, 2.0, 30.0])
    label = NAMES[1]
    curve = CostCurveDisplay.from_estimator(model, X, y, costs=[1, 2, 3], label=label, ratios=ratios)
    path = SensitivityPathDisplay.from_estimator(model, X, y, costs=[1, 2, 3], label=label, ratios=ratios)
    P = model.predict_proba(X)
    for i, ratio in enumerate(ratios):
        costs = np.array([1, 2 * ratio, 3])
        matrix = costs[:, None] * (1 - np.eye(3))
        decided, plain = (
            NAMES[(P @ m).argmin(axis=1)] for m in (matrix, np.outer([1, 2, 3], np.ones(3)) * (1 - np.eye(3)))
        )
        spent = {"costs": costs, "labels": NAMES}
        assert curve.cost[i] == pytest.approx(expected_cost(y, decided, **spent))
        assert curve.equal_cost[i] == pytest.approx(expected_cost(y, plain, **spent))
        for c in range(3):
            always = np.full(len(y), NAMES[c])
            assert curve.constant_costs[i, c] == pytest.approx(expected_cost(y, always, **spent))
        assert path.sensitivity[i] == pytest.approx(class_sensitivity(y, decided, labels=NAMES))
    assert curve.line_.get_ydata().tolist() == curve.cost.tolist()
    assert [line.get_ydata().tolist() for line in path.lines_] == (100 * path.sensitivity.T).tolist()
    assert curve.ax_.get_xscale() == "log" and "LogisticRegression" in legend(curve.ax_)
    assert "(%)" in path.ax_.get_ylabel() and "per decision" in curve.ax_.get_ylabel()


def test_columns_may_stand_in_any_order(blobs):
    X, y = blobs
    P = LogisticRegression().fit(X, y).predict_proba(X)
    one = CostCurveDisplay.from_predictions(y, P, label=NAMES[0])
    other = CostCurveDisplay.from_predictions(
        y, P[:, [2, 0, 1]], classes=NAMES[[2, 0, 1]], label=NAMES[0], ax=one.ax_, references=False
    )
    assert other.cost == pytest.approx(one.cost) and other.ax_ is one.ax_
    assert len(one.ratios) == 81 and one.cost[40] == pytest.approx(one.equal_cost[40])


def test_two_classes_by_one_column():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 200), rng.random(200)
    path = SensitivityPathDisplay.from_predictions(y, p, ratios=[1, 4])
    assert path.sensitivity[1] == pytest.approx(class_sensitivity(y, (p > 0.2).astype(int)))


def test_machines_without_probabilities_are_reapportioned(machine, blobs):
    X, y = blobs
    path = SensitivityPathDisplay.from_estimator(machine, X, y, ratios=[0.2, 1, 9])
    assert path.label == NAMES[2]  # the dearest of the machine
    for i, ratio in enumerate([0.2, 1, 9]):
        again = machine[-1].reapportion([1, 1, ratio])
        decided = again.predict(machine[0].transform(X))
        assert path.sensitivity[i] == pytest.approx(class_sensitivity(y, decided, labels=NAMES))
    assert path.sensitivity[0, 2] <= path.sensitivity[2, 2]
    assert (
        CostCurveDisplay.from_estimator(machine, X, y, ratios=[1.0], name="ours").line_.get_label() == "ours"
    )


# ---------------------------------------------------------------- margins


def test_margins_tell_the_errors(machine, blobs):
    X, y = blobs
    display = MarginDistributionDisplay.from_estimator(machine, X, y)
    scores, decided = machine.decision_function(X), machine.predict(X)
    for c, label in enumerate(NAMES):
        own = scores[y == label]
        twin = own[:, c] - np.delete(own, c, axis=1).max(axis=1)
        assert display.margins[c] == pytest.approx(twin)
        assert np.mean(display.margins[c] < 0) == pytest.approx(np.mean(decided[y == label] != label))
    assert len(display.ax_.lines) == 4


def test_margins_of_two_classes():
    y, score = np.array(["a", "a", "b"]), np.array([-2.0, 0.5, 3.0])
    display = MarginDistributionDisplay.from_predictions(y, score)
    assert [margin.tolist() for margin in display.margins] == [[2.0, -0.5], [3.0]]
    assert legend(display.ax_) == ["a: 50.0 % errors", "b: 0.0 % errors"]


# ---------------------------------------------------------------- convergence


@pytest.mark.parametrize("kind", [ApportionedLinearSVC, ApportionedSVC])
def test_convergence_ends_at_the_gap_of_the_fit(kind, blobs):
    X, y = blobs
    estimator = make_pipeline(StandardScaler(), kind([1, 2, 3], tol=1e-5))
    display = ConvergenceDisplay.from_estimator(estimator, X, y, name="fit")
    assert display.gaps[-1] == estimator.fit(X, y)[-1].dual_gap_ <= display.tol == 1e-5
    assert (np.diff(display.seconds) >= 0).all() and len(display.seconds) == len(display.gaps)
    assert "_solve" not in vars(estimator[-1])
    again = display.plot(display.ax_, x="time")
    assert again.line_.get_xdata().tolist() == display.seconds.tolist()
    assert len({line.get_color() for line in display.ax_.lines if line.get_label() == "fit"}) == 2


def test_convergence_counts_the_iterations_of_the_solver():
    """Sweeps between two reports count, and those over a sample of the rows before those over all."""
    X, y = make_blobs(4000, centers=3, cluster_std=2.0, random_state=0)
    X = StandardScaler().fit_transform(X)
    for loss in ("apportioned", "crammer-singer"):
        machine = ApportionedLinearSVC([1, 2, 3], loss=loss, C=0.01, max_iter=1000)
        display = ConvergenceDisplay.from_estimator(machine, X, y)
        assert display.line_.get_xdata().tolist() == display.iterations.tolist()
        assert (np.diff(display.iterations) > 0).all() and display.iterations[-1] == machine.fit(X, y).n_iter_


# ---------------------------------------------------------------- bad input


def test_bad_input_is_named(machine, blobs):
    X, y = blobs
    P = np.full((len(y), 3), 1 / 3)
    tree = DecisionTreeClassifier().fit(X, y)
    for call, message in (
        (lambda: DecisionRegionsDisplay.from_estimator(machine, np.ones((4, 3))), "X has shape"),
        (lambda: DecisionRegionsDisplay.from_estimator(machine, X, grid_resolution=1), "grid_resolution=1"),
        (lambda: DecisionRegionsDisplay.from_estimator(machine, X, palette=["r"]), "palette="),
        (lambda: CostCurveDisplay.from_predictions(y, P[:, :2]), "probabilities has shape"),
        (lambda: CostCurveDisplay.from_predictions(y, P, label="none"), "label='none'"),
        (lambda: CostCurveDisplay.from_predictions(y, P, ratios=[1, -1]), "ratios="),
        (lambda: CostCurveDisplay.from_predictions(y, P, classes=["a", "b", "c"]), "y holds"),
        (lambda: MarginDistributionDisplay.from_predictions(y, P[:, 0]), "scores has shape"),
        (lambda: MarginDistributionDisplay.from_estimator(tree, X, y), "decision_function"),
        (lambda: ConvergenceDisplay.from_estimator(tree, X, y), "must be an Apportioned"),
        (lambda: ConvergenceDisplay.from_estimator(ApportionedLinearSVC(), X, y, x="steps"), "x='steps'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    from sklearn.svm import LinearSVC

    with pytest.raises(ValueError, match="neither predict_proba nor reapportion"):
        SensitivityPathDisplay.from_estimator(LinearSVC().fit(X, y), X, y)


def test_without_matplotlib_the_extra_is_named(monkeypatch, blobs):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"apportion\[plots\]"):
        MarginDistributionDisplay(margins=[np.ones(2)], classes=np.array(["a"])).plot()
