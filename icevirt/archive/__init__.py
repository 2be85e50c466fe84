"""Frozen values of the pipeline: scanned files, the catalog's schema, the plan.

No decisions and no I/O; text for people is made in `icevirt.display`.
"""
