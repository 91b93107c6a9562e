"""
What costs do to a boundary
===========================

Where classes do not overlap, ``class_weight`` moves nothing: the slack it weighs is zero. An apportioned margin is
divided in the ratio of the costs.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

from apportion import ApportionedLinearSVC
from apportion.show import DecisionRegionsDisplay

rng = np.random.default_rng(0)
X = np.vstack([rng.normal([-3, 0], 0.7, (40, 2)), rng.normal([3, 0], 0.7, (40, 2))])
y = np.repeat(["dear", "cheap"], 40)
costs = {"dear": 10, "cheap": 1}

# %%
# Both machines without slack (C is large or infinite), so that only the geometry is seen. Dashed, where the machine is
# ours: the support hyperplanes, up to which the examples of a class come.

machines = {
    "SVC, class_weight 10 : 1": SVC(kernel="linear", C=1e6, class_weight=costs),
    "apportion, costs 10 : 1": ApportionedLinearSVC(costs, C=np.inf, intercept="free", tol=1e-6),
}
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
for ax, (name, machine) in zip(axes, machines.items(), strict=True):
    DecisionRegionsDisplay.from_estimator(machine.fit(X, y), X, y, ax=ax)
    ax.set_title(name)

# %%
# The distance of the nearest example of each class from the boundary, as a ratio.

for name, machine in machines.items():
    distance = np.abs(machine.decision_function(X))
    print(f"{name}: {distance[y == 'dear'].min() / distance[y == 'cheap'].min():.2f}")
