"""Show the history of a repository: ancestry, diffs, the ops log, blame.

What history may become is decided in `icevirt.versioning.history`.
"""
