"""The demo's commands and the examples run; the picture shows what it says."""

import importlib.util
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
LESS = {
    "compare": "--methods logistic,threshold --folds 2",
    "fit": "--quick",
}  # of what takes a minute in all


@pytest.fixture
def plt():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    yield plt
    plt.close("all")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_the_demo_ends_with_a_report(tmp_path):
    pytest.importorskip("typer")
    asked = subprocess.run(
        ["make", "-n", "--no-print-directory", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commands = asked.stdout.splitlines()
    ours = [line.split()[1:] for line in commands if line.split()[0].endswith("/apportion")]
    assert [words[0] for words in ours] == ["compare", "fit", "report"]
    (tmp_path / "build" / "demo").mkdir(parents=True)
    program = "from apportion.cli import main; main()"
    for words in ours:
        words += LESS.get(words[0], "").split()
        done = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "malignant" in done.stdout
    report = tmp_path / "build" / "demo" / "report.html"
    assert "malignant" in report.read_text(encoding="utf-8")
    assert commands[-2] == f'echo "The report is at {ROOT}/build/demo/report.html"'
    assert ". .venv/bin/activate" in commands[-1]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("plot_*.py")), ids=lambda path: path.stem)
def test_examples_of_the_gallery_run(example, plt, capsys):
    if example.stem == "plot_3_report":
        pytest.importorskip("skops")
    runpy.run_path(str(example))
    assert plt.get_fignums()
    if example.stem == "plot_1_geometry":
        svc, ours = (float(line.rsplit(" ", 1)[1]) for line in capsys.readouterr().out.splitlines())
        assert (svc, ours) == pytest.approx((1, 10), rel=1e-2)


def test_the_picture_shows_shares_of_ten_to_one(plt):
    spec = importlib.util.spec_from_file_location("geometry", EXAMPLES / "geometry.py")
    geometry = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(geometry)
    svc, ours, _ = (
        [text.get_text() for text in ax.texts if text.get_text().isdigit()] for ax in geometry.figure().axes
    )
    assert svc == ["1", "1"]
    assert sorted(ours) == ["1", "10"]
