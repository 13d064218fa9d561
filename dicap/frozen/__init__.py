"""The linear head on fixed features, solved as the convex problem it is: numpy alone, no seed, no learning rate.

Letters: n rows, D features, C classes, H heads (folds, candidates of a setting), V views of a row.
"""
