"""Files that are written whole or not at all."""

from __future__ import annotations

import io
import os
import secrets
import stat
from pathlib import Path
from typing import Any


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file under another name in the same folder, then rename it: readers see the old one or the new one, whole."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first.")
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(part, "xb") as file:
            if path.exists():
                os.chmod(
                    part, stat.S_IMODE(path.stat().st_mode)
                )  # as private as the file it takes the place of
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_figure(path: str | os.PathLike[str], figure: Any, dpi: int) -> None:
    """A figure of matplotlib, in the format that the name of the file ends in."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, format=Path(path).suffix[1:].lower())
    write_whole(path, buffer.getvalue())
