"""Resolve virtual datasets: what they map, from which files, and to which references.

Datasets with external raw files are read in `elsewhere`.
"""
