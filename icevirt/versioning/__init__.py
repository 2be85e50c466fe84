"""Decides what a repository becomes: changes, updates of the repo info, moves.

No I/O; planning of builds lives in `icevirt.planning`.
"""
