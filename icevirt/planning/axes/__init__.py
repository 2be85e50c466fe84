"""Place each file along the dimensions: order, coordinates, gaps, duplicates.

Variables are combined in `combine`.
"""
