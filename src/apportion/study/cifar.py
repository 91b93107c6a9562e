"""The four CIFAR-100 classes of the paper's superclass experiment.

Looked for as `cifar100_4.npz` in the data folder: the environment variable APPORTION_DATA, or
~/.cache/apportion. Where it is not, CIFAR-100's official archive is downloaded, compared with its published
md5, read, and the four classes are kept as that file. It is the binary edition of the archive, plain bytes:
the better known Python edition holds pickles, which can run code when read. Nothing is unpacked to disk;
three members are read by their names.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
MD5 = "03b5dce01913d631647c71ecec9e9cb8"
NAMES = ("dolphin", "beaver", "orchid", "sunflower")
RECORD = 2 + 3 * 32 * 32  # superclass, class, then the red, green and blue planes


@dataclass(frozen=True)
class Images:
    x_train: NDArray[np.uint8]  # (2000, 32, 32, 3)
    y_train: NDArray[np.int64]  # (2000,), places in NAMES
    x_test: NDArray[np.uint8]  # (400, 32, 32, 3)
    y_test: NDArray[np.int64]  # (400,)


def data_folder() -> Path:
    return Path(os.environ.get("APPORTION_DATA") or Path.home() / ".cache" / "apportion")


def load(path: str | Path | None = None) -> Images:
    """The images; `path` names an npz file of your own with x_train, y_train, x_test, y_test."""
    file = data_folder() / "cifar100_4.npz" if path is None else Path(path)
    if not file.exists():
        if path is not None:
            raise ValueError(f"path={str(path)!r} does not exist; leave it out to download CIFAR-100.")
        keep(from_archive(download(URL, MD5)), file)
    with np.load(file, allow_pickle=False) as data:
        y_train, y_test = (data[name].astype(np.int64) for name in ("y_train", "y_test"))
        return Images(data["x_train"], y_train, data["x_test"], y_test)


def keep(images: Images, file: Path) -> None:
    """Write the npz file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as stream:
        np.savez_compressed(stream, **vars(images))
    part.replace(file)


def download(url: str, md5: str) -> Any:
    """An open temporary file with the archive, checked before a byte of it is read as data."""
    if not url.startswith("https://"):
        raise ValueError(f"url={url!r} must begin with https://.")
    stream, digest = tempfile.TemporaryFile(), hashlib.md5(usedforsecurity=False)
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            while block := answer.read(1 << 20):
                digest.update(block)
                stream.write(block)
    except OSError as error:
        stream.close()
        raise OSError(
            f"CIFAR-100 could not be downloaded from {url} ({error}). Without a network, put cifar100_4.npz "
            f"into {data_folder()} or name its folder in APPORTION_DATA."
        ) from error
    if digest.hexdigest() != md5:
        stream.close()
        raise ValueError(
            f"the archive from {url} has md5 {digest.hexdigest()}; it must be {md5}. It was not read."
        )
    stream.seek(0)
    return stream


def from_archive(stream: Any) -> Images:
    """The four classes out of the open archive, rows in their official order."""
    with stream, tarfile.open(fileobj=stream, mode="r:gz") as archive:

        def member(name: str) -> bytes:
            content = archive.extractfile(f"cifar-100-binary/{name}")
            if content is None:
                raise ValueError(f"cifar-100-binary/{name} in the archive is not a file.")
            return content.read()

        fine = member("fine_label_names.txt").decode().split()
        numbers = [fine.index(name) for name in NAMES]
        halves = []
        for name in ("train.bin", "test.bin"):
            records = np.frombuffer(member(name), np.uint8).reshape(-1, RECORD)
            records = records[np.isin(records[:, 1], numbers)]
            labels = np.array([numbers.index(c) for c in records[:, 1].tolist()], dtype=np.int64)
            halves.append((records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels))
    (x_train, y_train), (x_test, y_test) = halves
    return Images(x_train, y_train, x_test, y_test)
