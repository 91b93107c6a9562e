"""Cost-sensitive classification by apportioned margins."""

from .costs import Costs, check_costs
from .estimators import ApportionedLinearSVC, ApportionedSVC
from .losses import LossTable, loss_table
from .metrics import class_sensitivity, cost_savings, cost_scorer, expected_cost, savings_scorer
from .sgd import ApportionedSGDClassifier
from .streams import fit_stream
from .tuning import ApportionedSVCCV

__version__ = "0.1.0"

__all__ = [
    "ApportionedLinearSVC",
    "ApportionedSGDClassifier",
    "ApportionedSVC",
    "ApportionedSVCCV",
    "Costs",
    "LossTable",
    "check_costs",
    "class_sensitivity",
    "cost_savings",
    "cost_scorer",
    "expected_cost",
    "fit_stream",
    "loss_table",
    "savings_scorer",
]
