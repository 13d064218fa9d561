"""Features of a frozen backbone, computed once: the feature bank, and the code that fills it."""
