"""The application itself: errors and warnings in one line each, the options all commands share."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .screen import complain, remark

# typer brings click along, under a name of its own since 0.25
_Usage: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


class _OneLine(TyperGroup):
    """Whatever goes wrong is said in one line; --debug, anywhere, shows where it did."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order they are used, for --help."""
        order = ("fit", "predict", "report", "compare", "datasets")
        return sorted(
            super().list_commands(ctx), key=lambda name: order.index(name) if name in order else len(order)
        )

    def main(  # type: ignore[override]
        self, args: Any = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words
        words = [word for word in words if word != "--debug"]
        if not standalone_mode:
            return super().main(words, standalone_mode=False, **extra)
        with _warnings_in_one_line():
            try:
                code = super().main(words, standalone_mode=False, **extra)
            except (typer.Abort, KeyboardInterrupt):
                complain("stopped")
                code = 130
            except _Usage as error:  # a missing option, an unknown command, ...
                if type(error).__name__ == "NoArgsIsHelpError":
                    error.show()
                else:
                    here = "apportion" if error.ctx is None else error.ctx.command_path
                    complain(f"{error.format_message()} See: {here} --help")
                code = 2
            except (ValueError, OSError, ImportError, MemoryError) as error:
                if debug:
                    traceback.print_exc()
                complain(_reason(error))
                code = 2
            except Exception as error:
                if debug:
                    traceback.print_exc()
                complain(
                    f"{type(error).__name__}: {error}; this should not happen: --debug shows where it did."
                )
                code = 1
        sys.exit(code if isinstance(code, int) else 0)


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for these data; use fewer rows or columns."
    if isinstance(error, PermissionError) and error.filename:
        return f"{error.filename} may not be read or written: change its permissions or use another file."
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}."
    return str(error)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    seen = set()

    def show(message: Any, *_: Any, **__: Any) -> None:
        if str(message) not in seen:
            remark(message)
        seen.add(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield


app = typer.Typer(
    cls=_OneLine,
    help="Cost-sensitive classification by apportioned margins.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Data = Annotated[
    str,
    typer.Argument(help="A CSV, Parquet or svmlight file, or the name of a table (see: apportion datasets)."),
]
Model = Annotated[Path, typer.Argument(help="A file written by: apportion fit.")]


def _some(jobs: int) -> int:
    if jobs == 0:
        raise ValueError("--jobs 0 would do nothing; allowed: 1 and more, or -1 for one a core.")
    return jobs


Jobs = Annotated[int, typer.Option(min=-1, callback=_some, help="Processes; -1 for one a core.")]
Json = Annotated[bool, typer.Option("--json", help="Answer with JSON, and with nothing else.")]


def _version(asked: bool) -> None:
    if asked:
        from .. import __version__

        print(f"apportion {__version__}")
        raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the code an error came up.")] = False,
) -> None:
    """Cost-sensitive classification by apportioned margins."""


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # labels may have letters that the terminal has not
    app()
