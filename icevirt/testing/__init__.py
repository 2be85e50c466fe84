"""Checks that a third party's scanner can run: what icevirt expects of it, as pytest classes.

The tests of icevirt itself are in `tests`.
"""
