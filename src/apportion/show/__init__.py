"""What people see: Displays for matplotlib, and the report, one HTML file."""

from .report import write_model_report, write_report

__all__ = ["write_model_report", "write_report"]
