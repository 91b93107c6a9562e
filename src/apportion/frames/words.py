"""Words for messages, and values as words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np

MISSING_WORD = "(missing)"


def as_text(value: Any) -> str:
    """1 and 1.0 are the same word, None and NaN are one too."""
    if value is None or value != value:
        return MISSING_WORD
    if getattr(value, "unit", None) == "s":  # a day as `read_table` gives it, without a time of day
        return str(value.date())
    if isinstance(value, (float, np.floating)) and np.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def is_number(word: Any) -> bool:
    try:
        float(word)
    except (TypeError, ValueError):
        return False
    return True


def listed(names: Iterable[Any], most: int = 8) -> str:
    words = [str(name) for name in names]
    return ", ".join(words[:most]) + (f", ... ({len(words)} in all)" if len(words) > most else "")


def nearest(word: str, known: Iterable[Any], what: str = "columns") -> str:
    """The end of a sentence: the name that was perhaps meant, or all that are known."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; the {what} are {listed(names)}."


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".") + "."
