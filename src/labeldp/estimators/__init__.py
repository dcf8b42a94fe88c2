"""The scikit-learn estimators, whose `fit` learns from labels under label differential privacy."""

from labeldp.estimators.classifier import LabelPrivateClassifier as LabelPrivateClassifier
from labeldp.estimators.regressor import LabelPrivateRegressor as LabelPrivateRegressor
from labeldp.estimators.search import LabelPrivateSearchCV as LabelPrivateSearchCV
