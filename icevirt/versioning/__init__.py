"""Decide how a repository changes: diffs, updates of the repo info, moves.

No I/O; planning of builds lives in `icevirt.planning`.
"""
