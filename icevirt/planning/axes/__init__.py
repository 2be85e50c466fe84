"""Place each file along the dimensions: order, coordinates, gaps, duplicates, time units.

Variables are combined in `combine`.
"""
