"""The scikit-learn estimators, whose `fit` protects the labels that it is given."""

from labeldp.estimators.classifier import LabelPrivateClassifier as LabelPrivateClassifier
from labeldp.estimators.regressor import LabelPrivateRegressor as LabelPrivateRegressor
from labeldp.estimators.search import LabelPrivateSearchCV as LabelPrivateSearchCV
