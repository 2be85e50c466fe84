"""Find conflicts between writers, and rebase or merge their changes.

Storage is read in `icevirt.repo.commits`.
"""
