"""Features of a frozen backbone, computed once: the bank of views, and what fills it."""
