"""The rounds of a cluster, in one process: their certificate, their optimum, and what a lost part costs."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_classification

from apportion import partitions
from apportion.costs import check_costs
from apportion.linear import Settings, solve_linear
from apportion.losses import LOSSES, loss_table, value
from apportion.partitions import Part, Problem, Rounds, answer, make_teams, solve_parts


def make_problem(loss="apportioned", k=3, C=0.1, t=1.0):
    return Problem(loss_table(loss, check_costs(np.linspace(1, 4, k), np.arange(k))), C, t)


def make_parts(problem, n_parts, n=600, d=8, form=np.asarray, seed=0):
    """The parts, and the whole: X (n, d), y, weight."""
    k = problem.table.n_classes
    X, y = make_classification(n, d, n_informative=6, n_classes=k, class_sep=0.8, random_state=seed)
    X, weight = X + 0.5, np.random.default_rng(seed).uniform(0.5, 2.0, n)  # an intercept is needed
    rows = np.array_split(np.arange(n), n_parts)
    return [Part(form(X[r]), y[r], weight[r], problem) for r in rows], (X, y, weight)


def optimum(problem, X, y, weight):
    return solve_linear(
        problem.table, X, y, weight, Settings(C=problem.C, offset=problem.t, tol=1e-7, max_iter=10**5)
    )


def primal(problem, W, X, y, weight):
    """The objective, from the numpy reference of the loss."""
    scores = X @ W[:, :-1].T + np.sqrt(problem.t) * W[:, -1]
    return 0.5 * (W**2).sum() + problem.C * (weight * value(problem.table, scores, y)).sum()


@pytest.mark.parametrize("t", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_reaches_the_optimum_of_one_machine(loss, t):
    problem = make_problem(loss, t=t)
    parts, whole = make_parts(problem, 4)
    rounds = solve_parts(parts, tol=1e-3, max_iter=200)
    assert rounds.gap <= 1e-3
    assert rounds.primal == pytest.approx(primal(problem, rounds.machine, *whole), rel=1e-9)
    best = optimum(problem, *whole).objective
    assert rounds.dual <= best * (1 + 1e-9)  # a lower bound indeed
    assert best * (1 - 1e-6) <= rounds.primal <= best / (1 - 1e-3)


def test_csr_and_dense_parts_agree():
    problem = make_problem("pairwise", k=4)
    dense = solve_parts(make_parts(problem, 3)[0], tol=1e-4, max_iter=200)
    csr = solve_parts(make_parts(problem, 3, form=sparse.csr_matrix)[0], tol=1e-4, max_iter=200)
    assert dense.gap <= 1e-4 and csr.gap <= 1e-4
    assert csr.primal == pytest.approx(dense.primal, rel=2e-4)


def test_one_part_is_one_machine():
    problem = make_problem()
    parts, whole = make_parts(problem, 1)
    assert solve_parts(parts, tol=1e-3, max_iter=50).primal <= optimum(problem, *whole).objective / (1 - 1e-3)


@pytest.mark.parametrize("loss", ["apportioned", "crammer-singer"])
def test_each_atom_bounds_the_loss_of_its_part_everywhere(loss):
    problem = make_problem(loss)
    (part, other), _ = make_parts(problem, 2)
    rounds = Rounds(problem, 8, [1, 1])
    for _ in range(3):
        tasks = rounds.tasks()
        got = answer(part, tasks[0])
        rounds.take([got, answer(other, tasks[1])], 1e-9)
        for W in np.random.default_rng(1).normal(scale=0.5, size=(20, *rounds.shape)):
            scores = part.X @ W[:, :-1].T + W[:, -1]
            loss_there = problem.C * (part.weight * value(problem.table, scores, part.y)).sum()
            for pull, gain in zip(got.pulls, got.gains, strict=True):
                assert gain.sum() - (pull * W).sum() <= loss_there * (1 + 1e-12)
        # and the cut touches it at the query
        assert got.gains[0].sum() - (got.pulls[0] * tasks[0].query).sum() == pytest.approx(got.loss.sum())


def test_the_gap_only_falls_and_the_dual_only_rises_whatever_is_lost():
    problem = make_problem("one-vs-rest")
    parts, whole = make_parts(problem, 4)
    rounds, best = Rounds(problem, 8, [1] * 4), optimum(problem, *whole).objective
    gaps, duals = [], []
    while rounds.gap > 1e-3 and rounds.n_iter < 100:
        rounds.take([answer(p, task) for p, task in zip(parts, rounds.tasks(), strict=True)], 1e-3)
        gaps.append(rounds.gap)
        duals.append(rounds.dual)
        parts[rounds.n_iter % 4].alpha = None  # its worker died: the examples are read again, alpha is gone
    assert rounds.gap <= 1e-3
    assert np.all(np.diff(gaps) <= 1e-15) and np.all(np.diff(duals) >= 0)
    assert duals[-1] <= best <= rounds.primal * (1 + 1e-6)


def test_little_room_makes_teams_and_forgets_atoms_and_still_arrives(monkeypatch):
    problem = make_problem("weston-watkins")
    parts, whole = make_parts(problem, 12)
    monkeypatch.setattr(
        partitions, "ROOM", 8 * 3 * 9 * 4 * partitions.LEAST
    )  # for the least atoms of four teams
    assert [len(team) for team in make_teams(problem, 8, 12)] == [3, 3, 3, 3]
    rounds = solve_parts(parts, tol=1e-3, max_iter=300)
    assert rounds.pulls.nbytes <= partitions.ROOM and rounds.n_iter > partitions.LEAST
    assert rounds.gap <= 1e-3
    assert rounds.primal <= optimum(problem, *whole).objective / (1 - 1e-3)


def test_fewer_rounds_than_adding_the_updates():
    """CoCoA+: sigma = number of parts, the new alphas are taken whole, W is what they pull."""
    problem = make_problem("apportioned", C=0.01)
    parts, _ = make_parts(problem, 8, n=4000)
    added, gap, rounds = Rounds(problem, 8, [1] * 8), 1.0, 0
    added.sigma = 8.0
    while gap > 1e-3 and rounds < 500:
        added.best = added.own.sum(axis=1)  # the query is W itself
        answers = [answer(part, task) for part, task in zip(parts, added.tasks(), strict=True)]
        value_here = 0.5 * (added.best**2).sum() + sum(a.loss.sum() for a in answers)
        dual_here = added.dual
        gap = (value_here - dual_here) / value_here
        added.n_iter += 1
        added.own = np.stack([a.pulls[1] for a in answers], axis=1)
        added.duals = sum(a.gains[1] for a in answers) - 0.5 * (added.own.sum(axis=1) ** 2).sum(axis=1)
        rounds += 1
    ours = solve_parts(make_parts(problem, 8, n=4000)[0], tol=1e-3, max_iter=500)
    assert gap <= 1e-3 and ours.gap <= 1e-3
    assert ours.n_iter < 0.5 * rounds
