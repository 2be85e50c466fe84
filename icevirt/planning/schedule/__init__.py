"""Decide which task writes which manifests, and what that costs.

Positions of files in arrays are decided in `icevirt.planning.axes`.
"""
