"""Linear heads on the fixed features of a frozen backbone, solved as convex problems: no learning rate, no random initialisation.

Letters: n rows, D features, C classes, H heads (folds, candidates of a setting), V views of a row.
"""
