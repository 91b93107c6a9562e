"""
A cost matrix for three classes
===============================

Where it matters *what* an error is taken for, costs are a matrix: true classes down, decisions across.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from apportion import ApportionedSVC, expected_cost

data = load_wine()
X = data.data[:, :2]  # alcohol and malic acid alone, so that there is something to confuse
names = ["barolo", "grignolino", "barbera"]
y = pd.Series(data.target).map(dict(enumerate(names))).to_numpy(dtype=str)

# %%
# Selling a barbera as a barolo angers the customers; the other way round there is only money lost.

costs = pd.DataFrame([[0, 2, 3], [4, 0, 1], [10, 2, 0]], index=names, columns=names)
print(costs)

# %%
# ``"lee-lin-wahba"`` is the loss that trains on a full matrix, and with much data makes the cheapest decision for each
# of them.

matrix = make_pipeline(StandardScaler(), ApportionedSVC(costs, loss="lee-lin-wahba", C=1))
equal = make_pipeline(StandardScaler(), ApportionedSVC(C=1))
figure, axes = plt.subplots(1, 2, figsize=(9, 4))
for ax, (name, machine) in zip(axes, {"the matrix": matrix, "equal costs": equal}.items(), strict=True):
    decisions = cross_val_predict(machine, X, y)
    ConfusionMatrixDisplay.from_predictions(
        y, decisions, labels=names, ax=ax, colorbar=False, cmap="Blues", xticks_rotation=20
    )
    ax.set_title(f"{name}: {expected_cost(y, decisions, costs=costs):.2f} a decision")
figure.tight_layout()
