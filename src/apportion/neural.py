"""Extra [torch]: the neural machine. Losses and networks stand in `nets.py`; here is the classifier.

net = ApportionedNetClassifier({"ill": 5, "well": 1}).fit(X, y)
net.predict(X)
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CellType, CodeType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .costs import Costs, check_costs
from .losses import LossTable
from .metrics import expected_cost
from .nets import (
    ApportionedMarginLoss,
    CostLoss,
    LDAMLoss,
    LogitAdjustedLoss,
    NormedLinear,
    SoftmaxBayesLoss,
    SquaredCostLoss,
    Standardize,
    WeightedHingeLoss,
    WeightedSoftmaxLoss,
    mlp,
    paper_net,
    torch,
)

try:
    from skorch import NeuralNet
    from skorch.callbacks import EpochScoring, ProgressBar
    from skorch.dataset import Dataset
    from skorch.helper import predefined_split
    from skorch.history import History
except ImportError as error:
    raise ImportError("ApportionedNetClassifier needs skorch: pip install apportion[torch]") from error

__all__ = [
    "ApportionedMarginLoss",
    "ApportionedNetClassifier",
    "CostLoss",
    "LDAMLoss",
    "LogitAdjustedLoss",
    "NormedLinear",
    "SoftmaxBayesLoss",
    "SquaredCostLoss",
    "WeightedHingeLoss",
    "WeightedSoftmaxLoss",
    "mlp",
    "paper_net",
]

MakeLoss = Callable[[Costs], CostLoss]
MakeModule = Callable[[tuple[int, ...], int], torch.nn.Module]


class ApportionedNetClassifier(ClassifierMixin, BaseEstimator):
    """A neural network trained on what errors cost; any loss of the library, any torch module.

    Parameters
    ----------
    costs : None, "balanced", dict, Series, array of shape (k,) or (k, k), or DataFrame
        What an error costs, by label, as everywhere in this library.
    loss : str, LossTable, or callable Costs -> CostLoss
        A loss by name, a table of your own, or a rival: loss=WeightedSoftmaxLoss.
    margin_power, slack_power : float, optional
        p and q of a loss by name; None: its own.
    module : callable (shape of one example, number of outputs) -> torch module, or a torch module
        A module is copied and trained from the weights it has. None: `mlp` for a table, the paper's net for
        images (n, channels, height, width), both with standardized inputs.
    lr, lr_decay, weight_decay : float
        Adam's step; the factor it is multiplied by after each epoch; its decoupled weight decay.
    batch_size, max_epochs : int
    patience : int, optional
        Stop when the expected cost on held-out rows has not fallen for so many epochs, and keep the best
        weights. None: train on all rows for `max_epochs`.
    validation_fraction : float
        Share of the rows held out, stratified, where there is `patience`.
    checkpoint : path, optional
        A file written after every epoch. A fit that was killed goes on from it and ends in the same network.
    device : "auto" or a torch device
        "auto": a GPU where there is one.
    verbose : int
        1: a line an epoch. 2: a progress bar as well.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_, costs_, n_features_in_
    module_ : the trained network        loss_ : the loss, which also decides
    n_iter_ : the epochs it took         history_ : a dict an epoch
    """

    def __init__(
        self,
        costs: Any = None,
        *,
        loss: str | LossTable | MakeLoss = "apportioned",
        margin_power: float | None = None,
        slack_power: float | None = None,
        module: MakeModule | torch.nn.Module | None = None,
        lr: float = 1e-3,
        lr_decay: float = 0.95,
        weight_decay: float = 0.0,
        batch_size: int = 100,
        max_epochs: int = 40,
        patience: int | None = None,
        validation_fraction: float = 0.1,
        checkpoint: str | Path | None = None,
        device: str = "auto",
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.costs = costs
        self.loss = loss
        self.margin_power = margin_power
        self.slack_power = slack_power
        self.module = module
        self.lr = lr
        self.lr_decay = lr_decay
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.checkpoint = checkpoint
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> ApportionedNetClassifier:
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float32, allow_nd=True, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}; a classifier needs two or more.")
        costs = check_costs(self.costs, self.classes_, class_counts=np.bincount(codes).tolist())
        self.costs_ = costs.array
        self.loss_ = self._make_loss(costs)
        self.shape_ = X.shape[1:]

        fingerprint = self._fingerprint(X, codes)
        saved = self._saved(fingerprint)
        drawn = int(check_random_state(self.random_state).randint(2**31 - 1))
        seed = drawn if saved is None else saved["seed"]
        train, valid = self._split(codes, seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            module = self._make_module(X[train])
            net = self._make_net(
                module, len(train), None if valid is None else (X[valid], codes[valid]), costs
            )
            self._run(net, X[train], codes[train], saved, {"fingerprint": fingerprint, "seed": seed})
        self.module_ = net.module_.eval().cpu()
        if self.module is None and len(self.shape_) == 1:
            self.module_.double()  # so that a row's score does not depend, by rounding, on the rows beside it
        self.loss_ = self.loss_.cpu()
        self.history_ = _plain(net.history)
        self.n_iter_ = len(self.history_)
        return self

    def _run(
        self, net: NeuralNet, X: Any, y: Any, saved: dict[str, Any] | None, label: dict[str, Any]
    ) -> None:
        """Epochs until the last one or until patience ends; after each, the checkpoint is written."""
        best = None
        if saved is not None:
            net.module_.load_state_dict(saved["module"])
            net.optimizer_.load_state_dict(saved["optimizer"])
            net.history = History(json.loads(saved["history"]))
            best = saved["best"]
            torch.set_rng_state(saved["rng"])
            if saved["cuda_rng"]:
                torch.cuda.set_rng_state_all(saved["cuda_rng"])
        net.notify("on_train_begin", X=X, y=y)
        while len(net.history) < self.max_epochs and not self._waited(net.history):
            for group in net.optimizer_.param_groups:
                group["lr"] = self.lr * self.lr_decay ** len(net.history)
            net.fit_loop(X, y, epochs=1)
            if self.patience is not None and _best_epoch(net.history) == len(net.history) - 1:
                best = copy.deepcopy(net.module_.state_dict())
            if self.checkpoint is not None:
                self._save(net, best, label)
        net.notify("on_train_end", X=X, y=y)
        if best is not None:
            net.module_.load_state_dict(best)

    def _waited(self, history: History) -> bool:
        if self.patience is None or not len(history):
            return False
        return len(history) - 1 - _best_epoch(history) >= self.patience

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Class scores (n, k), the largest decides; for two classes their difference (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        best = self._scores(X).argmax(1)
        chosen: NDArray[Any] = self.classes_[best]
        return chosen

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float32, allow_nd=True, reset=False)
        if rows.shape[1:] != self.shape_:
            raise ValueError(
                f"X has examples of shape {rows.shape[1:]}; the network was fitted on {self.shape_}."
            )
        inputs = torch.from_numpy(rows).to(next((w.dtype for w in self.module_.parameters()), torch.float32))
        with torch.no_grad():
            parts = [self.loss_.scores(self.module_(part)) for part in inputs.split(1024)]
        return torch.cat(parts).double().numpy()

    # ------------------------------------------------------------ what is built

    def _check_parameters(self) -> None:
        for name, least in (("batch_size", 2), ("max_epochs", 1), ("patience", 1)):
            number = getattr(self, name)
            if number is None and name == "patience":
                continue
            if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or number < least:
                raise ValueError(f"{name}={number!r} must be an integer of at least {least}.")
        for name, fits, allowed in (
            ("lr", lambda v: 0 < v < np.inf, "a positive finite number"),
            ("lr_decay", lambda v: 0 < v <= 1, "in (0, 1]"),
            ("weight_decay", lambda v: 0 <= v < np.inf, "a finite number >= 0"),
            ("validation_fraction", lambda v: 0 < v < 1, "in (0, 1)"),
        ):
            value = getattr(self, name)
            if not isinstance(value, (int, float, np.number)) or not fits(value):
                raise ValueError(f"{name}={value!r} must be {allowed}.")

    def _make_loss(self, costs: Costs) -> CostLoss:
        if isinstance(self.loss, (str, LossTable)):
            return ApportionedMarginLoss(costs, self.loss, self.margin_power, self.slack_power)
        if not callable(self.loss):
            raise ValueError(
                f"loss={self.loss!r} must be the name of a loss, a LossTable or a callable Costs -> CostLoss."
            )
        if self.margin_power is not None or self.slack_power is not None:
            raise ValueError(
                "margin_power and slack_power belong to the losses by name; build them into your own."
            )
        return self.loss(costs)

    def _make_module(self, X: NDArray[np.float32]) -> torch.nn.Module:
        shape = self.shape_
        if isinstance(self.module, torch.nn.Module):
            return copy.deepcopy(self.module)
        if self.module is not None:
            return self.module(shape, self.loss_.n_outputs)
        if len(shape) == 1:
            net = mlp(shape[0], self.loss_.n_outputs)
        elif len(shape) == 3:
            net = paper_net(self.loss_.n_outputs, channels=shape[0], size=shape[1:])
        else:
            raise ValueError(
                f"X has examples of shape {shape}; without a module they must be rows (features,) "
                "or images (channels, height, width)."
            )
        return torch.nn.Sequential(Standardize(torch.from_numpy(X)), net)

    def _split(self, codes: NDArray[Any], seed: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Rows to train, rows to validate."""
        if self.patience is None:
            return np.arange(len(codes)), None
        try:
            train, valid = train_test_split(
                np.arange(len(codes)), test_size=self.validation_fraction, stratify=codes, random_state=seed
            )
        except ValueError as error:
            raise ValueError(
                f"validation_fraction={self.validation_fraction} of {len(codes)} rows cannot be held out: "
                f"{error} "
                "Raise it, or set patience=None."
            ) from None
        return train, valid

    def _make_net(
        self, module: torch.nn.Module, n_train: int, valid: tuple[Any, Any] | None, costs: Costs
    ) -> NeuralNet:
        """skorch's trainer: batches, the log, the expected cost on the held-out rows after every epoch."""
        callbacks: list[Any] = [("progress", ProgressBar())] if self.verbose > 1 else []
        if valid is not None:
            X_valid, y_valid = valid

            def valid_cost(net: NeuralNet, *_: Any) -> float:
                decided = self.loss_.decide(net.forward(X_valid, device=net.device)).cpu().numpy()
                return expected_cost(
                    y_valid, decided, costs=costs.matrix, labels=np.arange(len(costs.classes))
                )

            scoring = EpochScoring(valid_cost, lower_is_better=True, use_caching=False, name="valid_cost")
            callbacks.append(("valid_cost", scoring))
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        net = NeuralNet(
            module,
            self.loss_,
            optimizer=torch.optim.AdamW,
            optimizer__weight_decay=self.weight_decay,
            lr=self.lr,
            batch_size=self.batch_size,
            iterator_train__shuffle=True,
            # batch norm cannot do with a last batch of one row
            iterator_train__drop_last=n_train > self.batch_size and n_train % self.batch_size == 1,
            train_split=None if valid is None else predefined_split(Dataset(*valid)),
            callbacks=callbacks,
            device=device,
            verbose=int(self.verbose > 0),
        )
        return net.initialize()

    # ------------------------------------------------------------ the checkpoint

    def _fingerprint(self, X: NDArray[Any], codes: NDArray[Any]) -> str:
        """What must be the same for a killed fit to go on: data, costs, and what shapes the training."""
        digest = hashlib.sha256()
        for array in (X, codes, self.costs_):
            digest.update(array.tobytes())
        for name, value in sorted(self.get_params(deep=False).items()):
            if name not in ("costs", "max_epochs", "checkpoint", "device", "verbose", "random_state"):
                digest.update(f"{name}={_identity(value)}".encode())
        if isinstance(self.random_state, (int, np.integer)):
            digest.update(f"random_state={self.random_state}".encode())
        return digest.hexdigest()

    def _saved(self, fingerprint: str) -> dict[str, Any] | None:
        if self.checkpoint is None or not Path(self.checkpoint).exists():
            return None
        # weights only: nothing in the file is executed
        saved: dict[str, Any] = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        if saved["fingerprint"] != fingerprint:
            raise ValueError(
                f"checkpoint={str(self.checkpoint)!r} is of another fit (other data, costs or parameters); "
                "remove it or name another file."
            )
        return saved

    def _save(self, net: NeuralNet, best: Any, label: dict[str, Any]) -> None:
        """Whole or not at all: a kill leaves the last epoch's file."""
        path = Path(str(self.checkpoint))
        part = path.with_name(path.name + ".part")
        state = {
            **label,
            "module": net.module_.state_dict(),
            "best": best,
            "optimizer": net.optimizer_.state_dict(),
            "history": json.dumps(_plain(net.history)),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        torch.save(state, part)
        os.replace(part, path)


def _identity(value: Any) -> str:
    """A parameter as text: the same in every process, where repr may hold an address; another where the code is another."""
    if isinstance(value, partial):
        parts = [
            str(getattr(value.func, "__module__", "")),
            _identity(value.func),
            *map(_identity, value.args),
        ]
        parts += [f"{name}={_identity(one)}" for name, one in sorted(value.keywords.items())]
        return f"partial({', '.join(parts)})"
    code = getattr(value, "__code__", None)
    if not isinstance(code, CodeType):
        return str(getattr(value, "__qualname__", value))
    # what tells apart two lambdas of one text: defaults, and what they took from around them
    given = [*(value.__defaults__ or ()), *sorted((value.__kwdefaults__ or {}).items())]
    given += [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
    plain = (bool, int, float, str, bytes, tuple, list, type(None))
    words = (
        repr(v) if isinstance(v, plain) else getattr(v, "__qualname__", type(v).__qualname__) for v in given
    )
    text = " ".join([_code(code), *words])
    return f"{value.__qualname__} {hashlib.sha256(text.encode()).hexdigest()}"


def _code(code: Any) -> str:
    """Code and constants as text, without addresses and without the order of a set, which change with the process."""
    if isinstance(code, CodeType):
        return f"{code.co_code.hex()} {code.co_names} [{' '.join(map(_code, code.co_consts))}]"
    if isinstance(code, (tuple, frozenset)):
        parts = map(_code, code)
        return f"({' '.join(parts if isinstance(code, tuple) else sorted(parts))})"
    return repr(code)


def _plain(history: History) -> list[dict[str, Any]]:
    """An epoch's numbers, without its batches."""
    return [{name: value for name, value in epoch.items() if name != "batches"} for epoch in history]


def _best_epoch(history: History) -> int:
    return int(np.argmin([epoch["valid_cost"] for epoch in history]))
