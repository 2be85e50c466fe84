"""Arrays of which some chunks are references and the others are stored.

Storing them is `icevirt.tasks.materialize`.
"""
