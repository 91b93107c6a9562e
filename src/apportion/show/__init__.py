"""What people see: Displays for matplotlib, and the report, one HTML file."""

from .plots import (
    ConvergenceDisplay,
    CostCurveDisplay,
    DecisionRegionsDisplay,
    MarginDistributionDisplay,
    SensitivityPathDisplay,
)
from .report import write_model_report, write_report

__all__ = [
    "ConvergenceDisplay",
    "CostCurveDisplay",
    "DecisionRegionsDisplay",
    "MarginDistributionDisplay",
    "SensitivityPathDisplay",
    "write_model_report",
    "write_report",
]
