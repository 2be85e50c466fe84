"""Decide what a build makes of scanned files.

No I/O, clock or randomness; `icevirt.tasks` executes the plan.
"""
