"""Find values that mean something by their own file only: indices, projections of a grid.

Files that differ in these are refused, or parted into groups, never joined.
"""
