"""Times of files: what their numbers count, and how they become one variable.

Belongs here: what is only true of times. How files are ordered by any coordinate is in ``axes``.
"""
