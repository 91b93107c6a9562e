"""
A report, and a model as a file
===============================

The report is one HTML file for people who do not program, with sliders for the costs. A model is saved without pickle:
loading a file executes nothing in it.
"""

import tempfile
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from apportion import ApportionedSVCCV
from apportion.persist import load, read_notes, save
from apportion.show import MarginDistributionDisplay, write_model_report

data = load_breast_cancer()
X, y = data.data, data.target_names[data.target]
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
machine = ApportionedSVCCV(
    {"malignant": 10, "benign": 1}, kernels=("linear",), scaling="standard", n_machines=3
)
machine.fit(X_train, y_train)

# %%
# The report wants cases that the machine was not trained on.

folder = Path(tempfile.mkdtemp())
page = write_model_report(folder / "report.html", machine, X_test, y_test, title="Breast cancer")
print(f"{page.name}: {page.stat().st_size // 1000} kB, opens in any browser, without the network")

# %%
# Save and load. ``notes`` is yours: whatever JSON can hold.

save(machine, folder / "model.apportion", notes={"data": "breast cancer, Wisconsin", "unit": "false alarms"})
again = load(folder / "model.apportion")
print(read_notes(folder / "model.apportion"))
print("same decisions:", bool((again.predict(X_test) == machine.predict(X_test)).all()))

# %%
# How sure it is: by how much the score of the true class leads that of the other. Below zero are the errors.

display = MarginDistributionDisplay.from_estimator(again, X_test, y_test)
