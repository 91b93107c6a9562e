"""Cost-sensitive classification by apportioned margins."""

__version__ = "0.1.0"
