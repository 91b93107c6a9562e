"""Comparisons: cells are what a plain nested cross-validation gives, are on disk at once, and are never computed twice."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold

from apportion import expected_cost
from apportion.study import large, large_tables, verdict
from apportion.study.compare import Cells, Data, Splits, known_methods, run, tasks_for
from apportion.study.methods import METHODS, Method
from apportion.study.rivals import Trained

COSTS = {"setosa": 1, "versicolor": 1, "virginica": 5}
FAST = ("csovo", "logistic")


def iris():
    X, y = load_iris(return_X_y=True)
    rows = np.r_[0:150:2]
    noise = np.random.default_rng(0).normal(size=(75, 4)) * 0.7  # errors for the methods to make
    return Data("iris", X[rows] + noise, load_iris().target_names[y[rows]])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    cells = Cells(tmp_path_factory.mktemp("cells") / "cells.jsonl")
    tasks = tasks_for(iris(), [COSTS, None], Splits(folds=2, seed=1), repeats=2)
    return cells, tasks, run(tasks, cells, FAST)


# ---------------------------------------------------------------- cells


def test_cells_are_those_of_a_plain_nested_cross_validation(finished):
    _, tasks, records = finished
    data, classes = iris(), ["setosa", "versicolor", "virginica"]
    assert len(tasks) == 4 and len(records) == 4 * 2 * 2
    for record in records.values():
        folds = StratifiedKFold(2, shuffle=True, random_state=1000 + record["repeat"])
        train, test = list(folds.split(data.X, data.y))[record["fold"]]
        costs = dict(zip(classes, record["costs"], strict=True))
        machine = METHODS[record["method"]].make(costs, random_state=record["repeat"])
        decided = machine.fit(data.X[train], data.y[train]).predict(data.X[test])
        assert record["cost"] == pytest.approx(expected_cost(data.y[test], decided, costs=costs))
        assert record["inner_cost"] == pytest.approx(machine.best_cost_, abs=1e-6)
        assert np.sum(record["confusion"]) == record["n_test"] == len(test) and record["n_train"] == len(
            train
        )
        assert record["seconds"] > 0 and "C" in record["params"]


def test_nothing_is_computed_twice(finished):
    cells, tasks, records = finished
    before = cells.path.read_bytes()
    assert run(tasks, cells, FAST) == records
    assert cells.path.read_bytes() == before
    told = []
    run(tasks[:1], cells, ("logistic",), progress=lambda done, total: told.append((done, total)))
    assert told[0] == told[-1] == (2, 2) and cells.path.read_bytes() == before


def test_what_is_new_is_computed(finished, tmp_path):
    """Other costs, another split, other data, a method of another version: each has cells of its own."""
    cells, tasks, _ = finished
    copy = Cells(tmp_path / "cells.jsonl")
    copy.path.write_bytes(cells.path.read_bytes())
    size = len(copy.read())
    data = iris()
    changed = Data("iris", data.X + 1e-9, data.y)
    dearer = {**COSTS, "setosa": 2}
    for task in (
        tasks_for(data, [dearer], Splits(folds=2, seed=1), 1)[0],
        tasks_for(data, [COSTS], Splits(folds=2, seed=2), 1)[0],
        tasks_for(data, [COSTS], Splits(folds=4, seed=1), 1)[0],
        tasks_for(changed, [COSTS], Splits(folds=2, seed=1), 1)[0],
    ):
        assert len(run([task], copy, ("logistic",))) == 1
        size += 1
        assert len(copy.read()) == size
    newer = Method("logistic", "Logistic regression", METHODS["logistic"].train, version=2)
    run([tasks[0]], copy, (newer,))
    assert len(copy.read()) == size + 2


def test_finished_cells_of_a_method_whose_package_is_gone_are_kept(tmp_path, monkeypatch):
    """A table made anew where the package is not installed must not lose the method without a word."""
    cells, tasks = Cells(tmp_path / "cells.jsonl"), tasks_for(iris(), [COSTS], Splits(folds=2), 1)
    method = Method("reduction", "Reduction", METHODS["logistic"].train, needs="numpy")
    first = run(tasks[:1], cells, (method,))
    gone = replace(method, needs="no_such_package")
    assert run(tasks, cells, (gone,)) == first and len(cells.read()) == 1
    assert not cells.errors()


def test_a_cut_off_line_costs_one_cell(finished, tmp_path):
    cells, tasks, records = finished
    broken = tmp_path / "cells.jsonl"
    whole = cells.path.read_bytes()
    broken.write_bytes(whole[: len(whole) - 40])  # the last line was not finished
    kept = Cells(broken)
    assert len(kept.read()) == len(records) - 1
    again = run(tasks, kept, FAST)
    assert {k: r["cost"] for k, r in again.items()} == {k: r["cost"] for k, r in records.items()}
    assert len(kept.path.read_bytes().splitlines()) == len(records) + 1  # the broken line is passed over
    broken.write_bytes(whole + b"[]\n\xff\xfe\n{}\nnull\n")
    assert Cells(broken).read().keys() == cells.read().keys()


def test_a_method_that_fails_does_not_end_the_run(tmp_path):
    calls = tmp_path / "calls"

    def train(problem, costs):
        calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
        if len(calls.read_text()) == 1:
            raise RuntimeError("no luck")
        return Trained(lambda X: np.zeros(len(X), dtype=np.intp), {}, 1.0)

    method = Method("unlucky", "Unlucky", train)
    cells = Cells(tmp_path / "cells.jsonl")
    tasks = tasks_for(iris(), [COSTS], Splits(folds=2), 1)
    records = run(tasks, cells, (method, "logistic"))
    assert len(records) == 3 and [r["error"] for r in cells.errors().values()] == ["RuntimeError: no luck"]
    again = run(tasks, cells, (method, "logistic"))  # it is tried again
    assert len(again) == 4 and cells.errors() == {}
    lines = verdict.lines(list(again.values()), 1.0, reference="logistic")
    assert {line.label for line in lines} == {"unlucky", "Logistic regression + Bayes"}


SCRIPT = """
import sys, time
import numpy as np
from apportion.study.compare import Cells, Data, Splits, run, tasks_for
from apportion.study.methods import METHODS, Method
def slow(problem, costs):
    time.sleep(0.15)
    return METHODS["logistic"].train(problem, costs)
if __name__ == "__main__":
    with np.load(sys.argv[1]) as file:
        data = Data("iris", file["X"], file["y"])
    costs = [{"setosa": 1, "versicolor": 1, "virginica": 5}, None]
    tasks = tasks_for(data, costs, Splits(folds=4, seed=3), repeats=int(sys.argv[3]))
    run(tasks, Cells(sys.argv[2]), (Method("slow", "Slow", slow), "logistic"), n_jobs=int(sys.argv[4]))
"""


def test_kill_9_loses_nothing_and_repeats_nothing(tmp_path):
    """A run in two processes is killed, all of it; the next computes the rest, and all is as if nothing had happened."""
    data = iris()
    script, rows, killed = tmp_path / "script.py", tmp_path / "rows.npz", tmp_path / "killed.jsonl"
    script.write_text(SCRIPT)
    np.savez(rows, X=data.X, y=data.y)

    def start():
        words = [sys.executable, str(script), str(rows), str(killed), "3", "2"]
        return subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)

    process = start()
    while process.poll() is None and not (killed.exists() and killed.read_bytes().count(b"\n") >= 10):
        time.sleep(0.01)
    assert process.poll() is None  # it was at work
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    seen = killed.read_bytes().count(b"\n")
    assert 10 <= seen < 48
    assert start().wait(300) == 0
    keys = [json.loads(line)["key"] for line in killed.read_bytes().splitlines() if line.endswith(b"}")]
    assert (
        len(keys) == len(set(keys)) == 48
    )  # 12 splits x 2 costs x 2 methods, each computed and written once
    # undisturbed, in one process, without the pauses
    tasks = tasks_for(data, [COSTS, None], Splits(folds=4, seed=3), repeats=3)
    slow = Method("slow", "Slow", METHODS["logistic"].train)
    undisturbed = run(tasks, Cells(tmp_path / "undisturbed.jsonl"), (slow, "logistic"))
    tables = []
    for records in (undisturbed, Cells(killed).read()):
        found = verdict.lines([r for r in records.values() if max(r["costs"]) == 5], Splits(folds=4).ratio)
        tables.append(verdict.markdown(*verdict.cells_of(found, list(COSTS), np.array([1, 1, 5.0]))))
    assert tables[0] == tables[1] and "Logistic regression + Bayes" in tables[0]
    same = ("cost", "confusion", "params", "inner_cost")
    for key, record in Cells(killed).read().items():
        assert [record[name] for name in same] == [undisturbed[key][name] for name in same]


@pytest.mark.parametrize(
    ("repeats", "n_jobs"), [(3, 2), (1, 6)]
)  # 12 tasks, or fewer than processes are allowed
def test_kill_9_of_the_run_alone_stops_its_processes(tmp_path, repeats, n_jobs):
    """Those it has started begin no other cell, which the next run would compute as well, and are gone soon."""
    data = iris()
    script, rows, killed = tmp_path / "script.py", tmp_path / "rows.npz", tmp_path / "killed.jsonl"
    script.write_text(SCRIPT)
    np.savez(rows, X=data.X, y=data.y)
    words = [sys.executable, str(script), str(rows), str(killed), str(repeats), str(n_jobs)]
    process = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (killed.exists() and killed.read_bytes().count(b"\n") >= 2):
        time.sleep(0.01)
    process.kill()
    process.wait(60)
    seen = killed.read_bytes().count(b"\n")
    time.sleep(2)
    assert killed.read_bytes().count(b"\n") <= seen + n_jobs < 16 * repeats
    deadline = time.monotonic() + 60
    with pytest.raises(ProcessLookupError):  # nobody is left of the session
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.1)


def test_a_file_of_other_things_is_not_written_to(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text("age,finding\n40,benign\n")
    with pytest.raises(ValueError, match=r"patients\.csv is no file of finished cells"):
        Cells(path)
    assert path.read_text() == "age,finding\n40,benign\n"
    path.write_text('{"k')  # cut off at once
    Cells(path).append({"key": "a"})
    assert Cells(path).read() == {"a": {"key": "a"}}


def test_bad_input(tmp_path):
    data = iris()
    with pytest.raises(ValueError, match=r"folds=0 must be at least 2"):
        Splits(folds=0)
    with pytest.raises(ValueError, match=r"test_share=1.5 must lie between 0 and 1"):
        Splits(folds=1, test_share=1.5)
    with pytest.raises(
        ValueError, match=r"the rarest class of iris has 25 rows; with 30 folds it needs more than 30"
    ):
        tasks_for(data, [None], Splits(folds=30), 1)
    with pytest.raises(ValueError, match=r"has 3 rows; with 2 folds it needs more than 3"):
        tasks_for(Data("iris", data.X[22:50], data.y[22:50]), [None], Splits(folds=2), 1)
    with pytest.raises(ValueError, match="iris has one class only"):
        tasks_for(Data("iris", data.X[:20], data.y[:20]), [None], Splits(folds=2), 1)
    with pytest.raises(ValueError, match="repeats=0 must be at least 1"):
        tasks_for(data, [None], Splits(), 0)
    with pytest.raises(ValueError, match="method='svm' is not known"):
        run(tasks_for(data, [None], Splits(folds=2), 1), Cells(tmp_path / "c"), ("svm",))
    with pytest.raises(IsADirectoryError, match="is a folder"):
        Cells(tmp_path)
    with pytest.raises(ValueError, match="method='threshold' needs two classes; there are 3"):
        known_methods(["threshold"], 3)
    assert "csova" in known_methods(None, 3) and "csova" not in known_methods(None, 2)


# ---------------------------------------------------------------- statistics


def test_corrected_intervals_and_tests():
    values, others = np.array([0.2, 0.3, 0.25, 0.4]), np.array([0.25, 0.3, 0.35, 0.5])
    low, high = verdict.corrected_interval(values, ratio=0.25)
    half = stats.t.ppf(0.975, 3) * np.sqrt((1 / 4 + 0.25) * values.var(ddof=1))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half))
    p = verdict.corrected_t_test(values, others, ratio=0.0)  # without overlap the plain paired test
    assert p == pytest.approx(stats.ttest_rel(values, others).pvalue)
    assert verdict.corrected_t_test(values, others, ratio=0.25) > p
    assert verdict.corrected_t_test(values, values, 0.25) == 1
    assert np.isnan(verdict.corrected_interval(values[:1], 0.25)).all()


def test_holm_is_statsmodels():
    from statsmodels.stats.multitest import multipletests

    p = np.random.default_rng(0).random(9) ** 3
    np.testing.assert_allclose(verdict.holm(p), multipletests(p, method="holm")[1])
    assert np.isnan(verdict.holm([0.01, np.nan])[1]) and verdict.holm([0.01, np.nan])[0] == 0.01


def test_ranks_and_tests_over_many_data_sets():
    rng = np.random.default_rng(0)
    hard = rng.random((40, 1))
    costs = hard + [0.2, 0.0, 0.2] + 0.02 * rng.random((40, 3))
    costs[:, 2] = costs[:, 0]
    found = verdict.rank(costs, ("csovo", "apportioned", "csova"))
    assert found.methods == ("apportioned", "csovo", "csova")
    np.testing.assert_allclose(found.ranks, [1, 2.5, 2.5])
    assert found.friedman < 1e-10 and found.p[0, 1] < 1e-6 and found.p[1, 2] == 1
    # Holm over three pairs: the two equal smallest p values are tripled
    plain = stats.wilcoxon(
        costs[:, 0].round(9), costs[:, 1].round(9), zero_method="zsplit", method="approx"
    ).pvalue
    assert found.p[0, 1] == pytest.approx(3 * plain)
    with pytest.raises(ValueError, match=r"costs has shape \(40, 3\); it must be \(blocks, 2\)"):
        verdict.rank(costs, ("csovo", "apportioned"))


def test_tables_of_one_data_set(finished):
    _, _, records = finished
    some = [r for r in records.values() if max(r["costs"]) == 5]
    lines = verdict.lines(some, 0.5)
    assert lines[0].cost <= lines[1].cost and lines[0].splits == 4
    assert np.isnan(lines[0].p) and lines[1].difference == pytest.approx(lines[1].cost - lines[0].cost)
    head, rows = verdict.cells_of(lines, ["a|b", "c\nd", "e"], np.array([1.0, 1, 5]))
    text = verdict.markdown(head, rows)
    assert "found of a\\|b" in text and "found of c d" in text and text.count("\n") == 4
    read = list(csv.DictReader(io.StringIO(verdict.as_csv(lines, ["x", "y", "z"]))))
    assert [float(row["cost"]) for row in read] == [line.cost for line in lines]
    assert set(read[0]) >= {"method", "p", "sensitivity x"}
    four = [replace(line, sensitivity=(0.1, 0.2, 0.3, 0.4)) for line in lines]
    wide, _ = verdict.cells_of(four, list("abcd"), np.array([1, 3.0, 1, 3]))
    assert wide[5:] == ["found of b", "found of d"]


def test_a_method_that_fails_on_a_dear_split_is_not_the_cheaper_for_it():
    def record(method, fold, cost):
        return {
            "method": method,
            "repeat": 0,
            "fold": fold,
            "cost": cost,
            "confusion": np.eye(2),
            "seconds": 1.0,
        }

    ours = [record("apportioned", fold, cost) for fold, cost in enumerate([0.1, 0.2, 0.3, 2.0])]
    theirs = [record("csovo", fold, cost) for fold, cost in enumerate([0.2, 0.4, 0.3])]
    lines = {line.method: line for line in verdict.lines([*ours, *theirs], 0.5)}
    assert lines["csovo"].difference == pytest.approx(0.1)
    assert lines["apportioned"].difference == 0
    _, rows = verdict.cells_of(list(lines.values()), ["a", "b"], np.array([1.0, 2.0]))
    assert {row[1] for row in rows} == {"0.300 (3 of 4)", "0.650"}
    apart = verdict.lines([ours[0], record("csovo", 1, 0.1)], 0.5)
    assert np.isnan([line.difference for line in apart if line.method == "csovo"]).all()


def test_plots_show_every_method(finished):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    _, _, records = finished
    ax = verdict.plot_intervals(verdict.lines(list(records.values()), 0.5))
    assert {tick.get_text() for tick in ax.get_yticklabels()} == {METHODS[name].label for name in FAST}
    rng = np.random.default_rng(0)
    ax = verdict.plot_ranks(verdict.rank(rng.random((20, 3)), ("csovo", "apportioned", "forest")))
    text = " ".join(word.get_text() for word in ax.texts)
    assert all(METHODS[name].label in text for name in ("csovo", "apportioned", "forest"))
    plt.close("all")


# ---------------------------------------------------------------- the study at large


def test_study_runs_and_is_read_back(tmp_path):
    cells = Cells(tmp_path / "cells.jsonl")
    options = {"names": ("newthyroid", "haberman"), "methods": ("logistic", "threshold"), "repeats": 2}
    entries = large.run_study(cells, **options)
    assert len(entries) == 2 * 2 * 6  # data sets, repeats, costs
    assert all(("threshold" in e["cost"]) == (e["k"] == 2) for e in entries)
    assert all(set(e["sensitivity"]) == set(e["cost"]) for e in entries)
    # a class that is drawn and the rarest at once has equal costs: one cell serves two entries
    assert len(cells.read()) < sum(len(e["cost"]) for e in entries)
    path = tmp_path / "study.json"
    large_tables.write_results(path, entries)
    assert large_tables.read_results(path) == entries
    size = cells.path.stat().st_size
    assert large.run_study(cells, **options) == entries and cells.path.stat().st_size == size


def made_up_entries():
    rng = np.random.default_rng(0)
    entries = []
    for name, k in (("a", 2), ("b", 2), ("c", 3), ("d", 4), ("e", 7), ("f", 9)):
        for repeat in range(2):
            for ratio, dear in large.CHOICES:
                hard = rng.random()
                cost = {m: hard + 0.1 * rng.random() for m in ("csovo", "csova2", "forest")}
                cost = {"apportioned": hard - 0.1, **cost}
                if k == 2:
                    cost["bias-shift"] = hard
                if k <= 4:
                    cost["cscs"] = hard
                common = {"data": name, "ratio": ratio, "dear": dear, "repeat": repeat, "n": 100, "k": k}
                entries.append({**common, "cost": cost})
    return entries


def test_rivals_with_our_weights_of_columns_are_told_apart():
    entries = made_up_entries()
    for entry in entries:
        entry["cost"]["csovo3"] = entry["cost"]["apportioned"] * 2
    text = large_tables.verdict(entries, large_tables.everywhere(entries))
    assert "50.0 % under the best rival given the same kernels and weights of columns (CSOVO" in text
    assert "95 % interval over draws of data sets: 50.0 to 50.0 %" in text
    assert "as its users run it (CSOVO, RBF" not in text


def test_page_of_the_study():
    entries = made_up_entries()
    text = large_tables.page_text(entries)
    for words in (
        "place 1",
        "given the same kernels (CSOVA, RBF or Laplacian",
        "Two classes",
        "Three to 7 classes",
        "| f | 100 | 9 |",
    ):
        assert words in text
    methods = large_tables.everywhere(entries)
    assert methods == ["apportioned", "csovo", "csova2", "forest"]
    costs, names = large_tables.blocks(entries, methods)
    assert costs.shape == (36, 4) and names[0] == ("a", 2.0, "random")
    by_data = large_tables.blocks(entries, methods, ("data",))[0]
    hindsight = by_data.min(axis=1).mean(), costs.min(axis=1).mean()
    assert (
        f"ours among them: {hindsight[0]:.4f} for each data set and {hindsight[1]:.4f} for each block; "
        in text
    )
    table = [line.split(" | ") for line in text.splitlines() if " | 100 | " in line]
    dearer = [float(line[5]) for line in table]
    assert len(table) == 6 and dearer == sorted(dearer, reverse=True)
    assert all(abs(float(line[3]) - float(line[4]) - float(line[5])) < 2e-4 for line in table)
    first = [e["cost"]["csovo"] for e in entries if (e["data"], e["ratio"], e["dear"]) == names[0]]
    assert costs[0, 1] == pytest.approx(np.mean(first)) and len(first) == 2
    del entries[0]["cost"]["forest"]  # a block that lacks a method is left out
    assert len(large_tables.blocks(entries, methods)[0]) == 35
    with pytest.raises(ValueError, match="the tables need results of ApportionedSVCCV"):
        large_tables.page_text([{**e, "cost": {"csovo": 1.0}} for e in entries])
    with pytest.raises(ValueError, match="on all data sets, two at least"):
        large_tables.page_text([e for e in entries if e["data"] == "a"])


# ---------------------------------------------------------------- the commands


@pytest.fixture
def command():
    testing = pytest.importorskip("typer.testing")
    from apportion.cli import app

    return lambda *words: testing.CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def patients(tmp_path):
    """A file with numbers, words and gaps."""
    rng = np.random.default_rng(0)
    ill = rng.random(90) < 0.4
    lines = ["age,colour,diagnosis"]
    for sick in ill:
        age = "" if rng.random() < 0.1 else f"{rng.normal(60 if sick else 50, 6):.1f}"
        lines.append(f"{age},{rng.choice(['red', 'blue'])},{'[b]ill' if sick else 'well'}")
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_command_compare(command, patients, tmp_path):
    words = ("compare", patients, "--target", "diagnosis", "--costs", "[b]ill=5,well=1", "--folds", 3)
    words += ("--methods", "csovo,logistic,threshold", "--jobs", 1, "--out", tmp_path / "cells.jsonl")
    files = {name: tmp_path / f"table.{name}" for name in ("markdown", "csv")}
    plot = tmp_path / "plot.png"
    done = command(*words, "--markdown", files["markdown"], "--csv", files["csv"], "--plot", plot)
    assert done.exit_code == 0, done.output
    assert "[b]ill" in done.output and "share of each class that is found" in " ".join(done.output.split())
    assert "Tuned threshold" in done.output and "CSOVO" in done.output
    assert files["markdown"].read_text().startswith("| method | cost |")
    assert len(files["csv"].read_text().splitlines()) == 4 and plot.read_bytes()[:4] == b"\x89PNG"
    size = (tmp_path / "cells.jsonl").stat().st_size
    again = command(*words, "--json")
    assert again.exit_code == 0 and (tmp_path / "cells.jsonl").stat().st_size == size
    found = json.loads(again.stdout)
    assert [m["method"] for m in found["methods"]] == [
        row.partition(",")[0] for row in files["csv"].read_text().splitlines()[1:]
    ]
    assert found["costs"] == [5, 1] and found["methods"][0]["p"] is None
    elsewhere = patients.parent / ".." / patients.parent.name / patients.name  # the same file by another path
    assert command(words[0], elsewhere, *words[2:], "--json").exit_code == 0
    assert (tmp_path / "cells.jsonl").stat().st_size == size


def test_command_compare_lists_its_methods_and_names_mistakes(command, patients):
    listed = command("compare", "--list")
    assert {line.split()[0] for line in listed.stdout.splitlines()[1:]} == set(METHODS)
    common = ("compare", patients, "--target", "diagnosis", "--costs", "[b]ill=5,well=1")
    for words, message in (
        (("--methods", "csovo,svm"), "method='svm' is not known; the methods are apportioned, csovo"),
        (("--methods", "all-pairs"), "method='all-pairs' needs many classes"),
        (("--folds", 60, "--methods", "csovo"), "it needs more than 60"),
        (("--csv", patients.parent / "no" / "table.csv"), "does not exist; make it first"),
    ):
        done = command(*common, *words)
        assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_command_reproduce_study(command, tmp_path):
    path, page = tmp_path / "study.json", tmp_path / "study.md"
    large_tables.write_results(path, made_up_entries())
    page.write_text("# Study\n\n<!-- begin study -->\nold\n<!-- end study -->\n")
    words = (
        "reproduce",
        "study",
        "--only-tables",
        "--out",
        path,
        "--page",
        page,
        "--plot",
        tmp_path / "cd.png",
    )
    done = command(*words)
    assert done.exit_code == 0, done.output
    assert "### All methods" in page.read_text() and "old" not in page.read_text()
    assert (tmp_path / "cd.png").read_bytes()[:4] == b"\x89PNG"
    path.write_text("{}")
    bad = command(*words)
    assert bad.exit_code == 2 and "is no file of results of the study" in bad.stderr
    bad = command("reproduce", "study", "--data", "titanic", "--cells", tmp_path / "c.jsonl")
    assert bad.exit_code == 2 and "--data titanic is none of the study's" in bad.stderr
