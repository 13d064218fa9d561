"""The figures of a run, one file per family. Each function takes frames of `report.evidence` and returns a Figure.

Call them inside `report.style.house_style()`. None of them reads a file, and none returns None: whether the data for a
figure exists is the page's question.
"""
