"""The history of a repository as its users see it: ancestry, diffs, the ops log, blame.

What history may become is decided in `icevirt.versioning.history`.
"""
