"""What can be promised of a fitted machine, and what cannot.

    margins.py       gamma_ij = min_{x in i} lead_ij(x) / |w_ij|, and its lower bound; decisions along a graph
    bounds.py        the paper's bounds (DDAG, Rademacher) and exact binomial intervals on held-out examples
    certificates.py  from the training data: leave-one-out errors enclosed by the dual, sample compression
    summary.py       all of it in one table, class by class, with what each number is worth
    consistency.py   the minimiser of the expected loss by linear program: does its decision cost least?
    optimality.py    the KKT conditions of a fitted machine, in words

Every function takes a fitted `ApportionedLinearSVC` or `ApportionedSVC`, or a pipeline that ends in one; then
the steps before it are taken as given. Norms and margins of kernel machines are those of the feature space.
Proofs: docs/paper_notes.md.
"""

from .bounds import ErrorInterval, Rademacher, ddag_bound, error_intervals, rademacher_bound
from .certificates import Compression, LeaveOneOut, compression_bound, leave_one_out
from .consistency import ConsistencyReport, Minimizer, consistency_report, population_minimizer
from .margins import DirectedGraph, PairwiseMargins, ddag_predict, pairwise_margins, pairwise_norms
from .optimality import Diagnosis, diagnose
from .summary import ClassBounds, ErrorBounds, error_bounds

__all__ = [
    "ClassBounds",
    "Compression",
    "ConsistencyReport",
    "Diagnosis",
    "DirectedGraph",
    "ErrorBounds",
    "ErrorInterval",
    "LeaveOneOut",
    "Minimizer",
    "PairwiseMargins",
    "Rademacher",
    "compression_bound",
    "consistency_report",
    "ddag_bound",
    "ddag_predict",
    "diagnose",
    "error_bounds",
    "error_intervals",
    "leave_one_out",
    "pairwise_margins",
    "pairwise_norms",
    "population_minimizer",
    "rademacher_bound",
]
