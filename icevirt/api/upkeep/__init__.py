"""Operate a living archive: say how it is, and let go of what no version needs any more.

Nothing here reads values of source files.
"""
