"""Learners: what turns features and a release into a model. None of them sees a label."""
