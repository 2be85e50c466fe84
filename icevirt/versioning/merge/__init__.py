"""Finds conflicts between writers, and rebases or merges their changes.

Storage is read in `icevirt.repo.commits`.
"""
