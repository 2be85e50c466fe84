"""How the variables of many files become one dataset.

Positions along dimensions are decided in `axes`.
"""
