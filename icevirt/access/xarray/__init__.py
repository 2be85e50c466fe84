"""Implement the xarray engine.

It opens groups of a session as Datasets and DataTrees, and writes Datasets to a session.
"""
