"""Combine the variables of many files into one dataset.

Positions along dimensions are decided in `icevirt.planning.axes`.
"""
