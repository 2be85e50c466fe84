"""Decides what a build makes of scanned files.

No I/O, clock or randomness; tasks execute the plan in `icevirt.tasks`.
"""
