"""Features of a frozen backbone, computed once: the bank of views, and the engines that fill it."""
