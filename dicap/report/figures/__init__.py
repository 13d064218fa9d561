"""The figures of a run, one file per family. Each function takes frames of `report.evidence` and returns a Figure.

Call them inside `report.style.house_style()`. They read no files and always return a Figure; the page decides which figures have
data.
"""
