"""
Tuned on your costs, beside a tuned threshold
=============================================

:class:`~apportion.ApportionedSVCCV` takes the costs and finds the rest by cross-validation. Beside it stands what
scikit-learn offers for the same purpose: a classifier whose threshold is tuned on the same cost.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from apportion import ApportionedSVCCV, class_sensitivity, expected_cost
from apportion.show import CostCurveDisplay, SensitivityPathDisplay

data = load_breast_cancer()
X, y = data.data, data.target_names[data.target]
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
costs = {"malignant": 10, "benign": 1}

# %%
# Fewer settings than by default, to keep this page quick.

ours = ApportionedSVCCV(costs, kernels=("rbf",), scaling="standard", Cs=(0.5, 8, 128), n_machines=10)
ours.fit(X_train, y_train)

logistic = make_pipeline(StandardScaler(), LogisticRegression())
cost = make_scorer(expected_cost, greater_is_better=False, costs=costs)
threshold = TunedThresholdClassifierCV(logistic, scoring=cost).fit(X_train, y_train)

for name, model in (("apportion", ours), ("logistic, tuned threshold", threshold)):
    decisions = model.predict(X_test)
    found = class_sensitivity(y_test, decisions, labels=["malignant", "benign"])
    paid = expected_cost(y_test, decisions, costs=costs)
    print(f"{name:26} cost {paid:.3f}   found: malignant {found[0]:.1%}, benign {found[1]:.1%}")

# %%
# One split is an example, not a verdict; for that there is ``apportion compare``, which cross-validates the whole.
#
# Not sure about the ten? The probabilities of the machine answer for every other ratio without training again.

figure, axes = plt.subplots(1, 2, figsize=(11, 4))
CostCurveDisplay.from_estimator(ours, X_test, y_test, label="malignant", name="apportion", ax=axes[0])
SensitivityPathDisplay.from_estimator(ours, X_test, y_test, label="malignant", ax=axes[1])
figure.tight_layout()

# %%
# What the search has tried, best first. Scores are negative costs; among machines of like cost the order goes by how well
# they know what they do not know (log loss).

results = ours.cv_results_
for i in results["rank_criterion"].argsort()[:5]:
    p = results["params"][i]
    powers = f"powers ({p['margin_power']:g}, {p['slack_power']:g})"
    print(f"{results['mean_test_score'][i]:.3f}   gamma {p['gamma']:.4f}   C {p['C']:5g}   {powers}")
