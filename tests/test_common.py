"""scikit-learn's own checks of estimators, with no failure expected."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from apportion import ApportionedLinearSVC, ApportionedSGDClassifier, ApportionedSVC

ESTIMATORS = [
    ApportionedLinearSVC(),
    ApportionedLinearSVC(loss="pairwise", intercept="free"),
    ApportionedLinearSVC("balanced", loss="crammer-singer", intercept="none"),
    ApportionedLinearSVC(loss="lee-lin-wahba", warm_start=True),
    ApportionedSVC(),
    ApportionedSVC(loss="one-vs-rest", intercept="free", kernel="laplacian"),
    ApportionedSVC("balanced", loss="weston-watkins", kernel="poly", coef0=1.0),
    ApportionedSVC(loss="reinforced", intercept="free"),
    ApportionedSVC(kernel="precomputed"),
    ApportionedSVC(solver="pegasos", max_iter=20),
    ApportionedSGDClassifier(),
    ApportionedSGDClassifier(loss="crammer-singer", early_stopping=True, batch_size=8),
    ApportionedSGDClassifier(loss="lee-lin-wahba", projection=True, average=False, delay=0, intercept="none"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
