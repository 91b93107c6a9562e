"""The command line, extra [cli]: apportion fit | predict | report | compare | datasets | reproduce.

What a command answers goes to stdout (with --json nothing else does), progress and errors go to stderr. An error is one line
that says what to do, and exit code 2. A new command is a function in a file here, and that file among the imports below.
"""

try:
    from .application import app, main
except ImportError as error:
    raise SystemExit(
        f"the command line needs typer and rich ({error}): pip install apportion[cli]"
    ) from error
from . import compare, data, decide, fit, paper, report, reproduce, study  # noqa: F401  each adds its commands

__all__ = ["app", "main"]
