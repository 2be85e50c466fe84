"""Text for people, made of values: reports, plans, repositories, progress.

Nothing is computed or decided here.
"""
