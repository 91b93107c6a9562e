"""
A loss of your own
==================

A loss is a small table, and one solver serves every table, with its certificate. Here grades from 0 to 3: to miss by
more is worse, so the margin between two grades is their distance.
"""

import matplotlib.pyplot as plt
import numpy as np

from apportion import ApportionedLinearSVC, LossTable
from apportion.losses import PerClass
from apportion.show import ConvergenceDisplay, DecisionRegionsDisplay

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 2))
y = np.digitize(X @ [1, 2] + rng.normal(0, 1.5, 300), [-2, 0, 2])

# %%
# Row r of class y asks for codes[y, r] . f >= margins[y, r]: the score of the true grade must lead that of each other
# grade by their distance.

k = 4
others = np.array([[j for j in range(k) if j != c] for c in range(k)])  # (k, k - 1)
unit = np.eye(k)
grades = LossTable(
    codes=unit[:, None, :] - unit[others],  # (k, R, m)
    margins=np.abs(np.arange(k)[:, None] - others),  # (k, R)
    weights=np.ones((k, k - 1)),  # (k, R)
    decide=PerClass(np.ones(k), np.zeros(k)),  # class score = raw score
    shared=True,  # pay for the worst violation only
)

# %%
# Beside it the same table with equal margins: how far off are the grades of other examples?

X_new = rng.normal(size=(3000, 2))
y_new = np.digitize(X_new @ [1, 2] + rng.normal(0, 1.5, 3000), [-2, 0, 2])
for name, loss in (("distance", grades), ("equal", "crammer-singer")):
    machine = ApportionedLinearSVC(loss=loss, C=1.0).fit(X, y)
    off = np.abs(machine.predict(X_new) - y_new)
    print(f"margins {name:9} off by {off.mean():.3f} on average, by two or more {np.mean(off > 1):.1%}")

# %%
# The certificate is there for your table too: ``dual_gap_`` bounds how far the fit is from its optimum.

figure, axes = plt.subplots(1, 2, figsize=(10, 4))
DecisionRegionsDisplay.from_estimator(
    ApportionedLinearSVC(loss=grades).fit(X, y), X, y, ax=axes[0], margins=False
)
ConvergenceDisplay.from_estimator(
    ApportionedLinearSVC(loss=grades, tol=1e-4), X, y, name="grades", ax=axes[1]
)
figure.tight_layout()
