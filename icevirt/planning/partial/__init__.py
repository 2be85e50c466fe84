"""Plan arrays of which some chunks are references and others are stored.

Storing them is `icevirt.tasks.materialize`.
"""
