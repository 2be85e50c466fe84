"""Test third-party plug-ins: what icevirt expects of a scanner, as pytest classes.

The tests of icevirt itself are in `tests`.
"""
