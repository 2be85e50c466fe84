"""The xarray engine.

groups of a session as Datasets and DataTrees, and Datasets written to a session.
"""
