"""What README.md and docs/ show works.

Blocks marked `python run` are run, those of a file one after the other in one namespace; other python blocks
must at least be Python. Blocks marked `bash run` are run beside a small patients.csv. Targets of make must exist,
links must lead somewhere.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MUST_RUN = {"README.md", "docs/costs.md", "docs/losses.md", "docs/solver.md", "docs/start.md"}
FEWER = " --methods logistic,threshold --folds 2"  # of what `compare` would do for minutes


def blocks(page, language):
    """(words after the language, line of the first statement, code) of each fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(rf"^```{language}\b(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        yield found[1].split(), text.count("\n", 0, found.start(2)) + 1, found[2]


def compiled(page, line, code):
    return compile("\n" * (line - 1) + code, str(page), "exec")  # errors then name the line of the page


def runnable(page, language="python"):
    return [(line, code) for words, line, code in blocks(page, language) if "run" in words]


def name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=name)
def test_runnable_blocks_run(page):
    namespace = {"__name__": "__main__"}
    for line, code in runnable(page):
        exec(compiled(page, line, code), namespace)


@pytest.fixture
def patients(tmp_path):
    """A folder with patients.csv: numbers, a category, a missing value, and the finding."""
    pytest.importorskip("typer")
    data = load_breast_cancer(as_frame=True)
    table = data.data.iloc[:80, :3].round(2)
    table["ward"] = np.where(np.arange(80) % 3 == 0, "north", "south")
    table.iloc[5, 0] = np.nan
    table["finding"] = data.target_names[data.target[:80]]
    table.to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page, "bash")], ids=name)
def test_commands_run(page, patients):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for _, code in runnable(page, "bash"):
        lines = [line + FEWER * line.startswith("apportion compare") for line in code.splitlines()]
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join(lines)],
            cwd=patients,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        written = re.findall(r" -o (\S+)", code)
        assert written and all((patients / file).stat().st_size > 0 for file in written)


def test_the_main_pages_have_blocks_that_are_run():
    assert {name(page) for page in PAGES if runnable(page)} >= MUST_RUN
    assert runnable(ROOT / "README.md", "bash")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_are_python(page):
    for _, line, code in blocks(page, "python"):
        compiled(page, line, code)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shell = "".join(code for _, _, code in blocks(page, "bash"))
    asked = set(re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE))
    asked |= set(re.findall(r"`make ([a-z-]+)`", page.read_text(encoding="utf-8")))
    assert asked <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
