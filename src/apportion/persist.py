"""Models as files: saved and loaded without pickle (extra [persist]), and exported to ONNX.

A file is a zip archive as skops writes it (arrays in numpy's format, the rest as JSON), and beside that `apportion.json`:

    {"format": 1, "versions": {"apportion": "0.1.0", "scikit-learn": "1.9.1", ...}, "notes": {...}}

Nothing in a file is executed. Its types are read first, and unless all of them are those of this package or plain ones of
scikit-learn, numpy and scipy, the file is refused. A kernel machine keeps its support vectors, which are rows of the data it
was trained on: so does its file.
"""

from __future__ import annotations

import copy
import io
import json
import os
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import scipy
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from .files import write_whole

FORMAT = 1  # raised when older versions of this package could not read a new file
HEADER = "apportion.json"

# skops knows numpy's and scipy's arrays and scikit-learn's public estimators; these come to them
TRUSTED = (
    "apportion.calibration.Calibration",
    "apportion.costs.Costs",
    "apportion.losses.LossTable",
    "apportion.losses.PairVotes",
    "apportion.losses.PerClass",
    "apportion.estimators.ApportionedLinearSVC",
    "apportion.estimators.ApportionedSVC",
    "apportion.frames.columns.Days",
    "apportion.frames.columns.Words",
    "apportion.metrics.CostScorer",
    "apportion.sgd.ApportionedSGDClassifier",
    "apportion.tuning.ApportionedSVCCV",
    "numpy.dtype",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "sklearn.compose._column_transformer._RemainderColsList",
    *(
        f"sklearn.model_selection._split.{name}"
        for name in (
            "KFold",
            "LeaveOneOut",
            "PredefinedSplit",
            "RepeatedStratifiedKFold",
            "ShuffleSplit",
            "StratifiedKFold",
            "StratifiedShuffleSplit",
        )
    ),
)


def save(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    notes: Mapping[str, Any] | None = None,
    trusted: Iterable[str] = (),
) -> None:
    """Save a machine, or a pipeline with one, to a file that `load` reads without pickle.

    Parameters
    ----------
    model : estimator
        Fitted or not. Parameters that are functions cannot be saved.
    path : str or path
        Written under another name first, then renamed: a file that was there stays whole until the new one is.
    notes : dict, optional
        What else to keep with the model, of what JSON can hold; `read_notes` returns it.
    trusted : iterable of str, optional
        Full names of classes of yours, such as "mypackage.MyScaler"; `load` needs them too.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from apportion import ApportionedLinearSVC
    >>> from apportion.persist import load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = ApportionedLinearSVC({0: 1, 1: 1, 2: 5}).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(machine, os.path.join(folder, "iris.apportion"))
    ...     again = load(os.path.join(folder, "iris.apportion"))
    >>> bool((again.predict(X) == machine.predict(X)).all())
    True
    """
    skops = _skops()
    if not isinstance(model, BaseEstimator):
        raise ValueError(f"model={model!r} is not an estimator: only those can be saved.")
    header = {"format": FORMAT, "versions": _versions(), "notes": dict(notes or {})}
    try:
        text = json.dumps(header, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"notes must hold what JSON can: {error}.") from None
    try:
        data = skops.dumps(_with_plain_costs(model), compression=zipfile.ZIP_DEFLATED)
    except Exception as error:  # skops raises many kinds, of which none says which parameter it was
        raise ValueError(f"{type(model).__name__} cannot be saved: {error}.{_functions(model)}") from error
    foreign = _foreign(data, trusted)
    if foreign:
        raise ValueError(
            f"{type(model).__name__} cannot be saved: it holds {', '.join(foreign)}, which load would refuse."
            + (_functions(model) or " Name classes of your own in trusted=, here and in load.")
        )
    with io.BytesIO(data) as buffer:
        with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(HEADER, text)
        write_whole(path, buffer.getvalue())


def load(path: str | os.PathLike[str], *, trusted: Iterable[str] = ()) -> Any:
    """Load what `save` has written. Nothing in the file is executed.

    Parameters
    ----------
    path : str or path
    trusted : iterable of str, optional
        Full names of further classes that may be in the file. A class that is trusted can do what its code does: name only
        what you know.

    Returns
    -------
    model : estimator
        Its decisions are those of the model that was saved, to the last bit on the same machine and versions.

    Raises
    ------
    ValueError
        Where the file is empty, damaged, none of `save`, of a later format, or holds types that are not trusted.
    """
    skops, trusted = _skops(), tuple(trusted)
    data = Path(path).read_bytes()
    header = _header(path, data)
    known, own = header["versions"], _versions()
    foreign = _parsed(path, known, lambda: _foreign(data, trusted))
    if foreign:
        raise ValueError(
            f"{path} is refused: it holds {', '.join(foreign)}, which no model of apportion needs. If you know where the file "
            "is from, name these types in load(..., trusted=[...])."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # said once, below
        model = _parsed(path, known, lambda: skops.loads(data, trusted=[*TRUSTED, *trusted]))
    if not isinstance(model, BaseEstimator):
        raise ValueError(f"{path} holds no estimator but an object of type {type(model).__name__}.")
    made, here = known["scikit-learn"], own["scikit-learn"]
    if _minor(made) != _minor(here):
        warnings.warn(
            f"{path} was saved with scikit-learn {made} and is used with {here}: decisions may differ; fit it again to be sure.",
            UserWarning,
            stacklevel=2,
        )
    return model


def read_notes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The notes that were given to `save`; the model is not loaded."""
    return _header(path, Path(path).read_bytes())["notes"]


def to_onnx(model: BaseEstimator, X_sample: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Export a fitted machine, or a pipeline that ends in one, to ONNX.

    The graph is in double precision and decides as `predict` does. Its outputs are "label" (n,) and "scores" (n, k), the largest
    of which is the label's; of `ApportionedSVCCV`, in place of scores, "probabilities".

    Parameters
    ----------
    model : estimator
        `ApportionedLinearSVC`, `ApportionedSGDClassifier`, `ApportionedSVC` with the kernel rbf, laplacian, linear, poly or
        sigmoid, `ApportionedSVCCV`, or a pipeline of steps that skl2onnx can export and one of these.
    X_sample : array or DataFrame
        Some rows of the data. The graph has one input, "X" (n, d) double; where a ColumnTransformer comes first and this is a
        DataFrame, one a column, (n, 1), double for numbers and strings for the rest. The graph is run on these rows, and an error
        is raised where it decides otherwise than `predict`.
    path : str or path, optional
        Where to write the graph.

    Returns
    -------
    graph : onnx.ModelProto
    """
    from ._onnx import convert

    graph = convert(model, X_sample)
    if path is not None:
        write_whole(path, graph.SerializeToString())
    return graph


# ---------------------------------------------------------------- reading what may be anything


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise ImportError(
            f"models are saved and loaded by skops ({error}): pip install apportion[persist]"
        ) from None
    return skops.io


def _versions() -> dict[str, str]:
    from . import __version__

    modules = {"scikit-learn": sklearn, "numpy": numpy, "scipy": scipy}
    return {"apportion": __version__, **{name: module.__version__ for name, module in modules.items()}}


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _foreign(data: bytes, trusted: Iterable[str]) -> list[str]:
    """Names of the types in a file that are not trusted."""
    return sorted(set(_skops().get_untrusted_types(data=data)) - set(TRUSTED) - set(trusted))


def _header(path: Any, data: bytes) -> dict[str, Any]:
    """The checked `apportion.json` of a file whose every byte was compared with its checksum."""
    no_model = f"{path} is not a model saved by apportion"
    if not data:
        raise ValueError(f"{path} is empty.")
    if not data.startswith(b"PK"):
        raise ValueError(f"{no_model}: it is no zip archive.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            bad = archive.testzip()
            if bad is not None:
                raise ValueError(
                    f"{path} is damaged: {bad} in it is not as it was written; copy or fit it again."
                )
            text = archive.read(HEADER) if HEADER in archive.namelist() else None
    except ValueError:
        raise
    except Exception as error:  # zipfile raises BadZipFile, zlib.error, EOFError, NotImplementedError, ...
        raise ValueError(f"{path} is damaged or cut off ({error}); copy or fit it again.") from None
    if text is None:
        raise ValueError(f"{no_model}: {HEADER} is not in it.")
    try:
        header = json.loads(text)
        version, known, notes = header["format"], header["versions"], header["notes"]
        good = type(version) is int and isinstance(notes, dict) and isinstance(known["scikit-learn"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        good = False
    if not good:
        raise ValueError(f"{no_model}: {HEADER} in it is not what save writes.")
    if version > FORMAT:
        raise ValueError(
            f"{path} has format {version}, written by apportion {known.get('apportion', 'of a later version')}; this version "
            f"({_versions()['apportion']}) reads formats up to {FORMAT}. Update apportion."
        )
    return header


def _parsed(path: Any, versions: Mapping[str, Any], read: Any) -> Any:
    """What `read` makes of an archive whose bytes are right; what is in them may still be anything."""
    try:
        return read()
    except Exception as error:  # a file made by hand can bring about any of them
        made = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}); it was saved with {made}."
        ) from error


def _estimators(thing: Any) -> Iterator[BaseEstimator]:
    """An estimator and all that it holds, in lists and dicts too."""
    if isinstance(thing, BaseEstimator):
        yield thing
    members = (
        vars(thing).values()
        if isinstance(thing, BaseEstimator)
        else thing.values()
        if isinstance(thing, dict)
        else thing
    )
    for member in members if isinstance(thing, (BaseEstimator, dict, list, tuple)) else ():
        yield from _estimators(member)


def _with_plain_costs(model: BaseEstimator) -> BaseEstimator:
    """The model, or a copy in which costs that were a Series or a DataFrame are a dict or an array of the same meaning.

    So are those of the classes False and True, which a file would make one key of.
    """

    def plain(estimator: Any) -> Any:
        costs: Any = getattr(estimator, "costs", None)
        if hasattr(costs, "columns"):  # labels that are no class may be there too
            order = list(getattr(estimator, "classes_", sorted(costs.index)))
            return costs.loc[order, order].to_numpy(dtype=float)
        if hasattr(costs, "to_numpy"):
            costs = costs.to_dict()
        if isinstance(costs, dict) and all(isinstance(label, (bool, numpy.bool_)) for label in costs):
            return numpy.array([costs[label] for label in sorted(costs)], dtype=float)
        return costs

    odd = [e for e in _estimators(model) if plain(e) is not getattr(e, "costs", None)]
    if odd:
        model = copy.deepcopy(model)
        for estimator in _estimators(model):
            if hasattr(estimator, "costs"):
                estimator.costs = plain(estimator)
    return model


def _functions(model: BaseEstimator) -> str:
    """Which parameters are functions: the usual reason why a model cannot be saved."""
    for name, value in model.get_params(deep=True).items():
        if callable(value) and not isinstance(value, (type, BaseEstimator)):
            return f" {name} is a function, which a file cannot hold."
    return ""
