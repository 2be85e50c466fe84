"""Hold the pipeline's frozen values: scanned files, signatures, the catalog schema, the plan.

No decisions and no I/O; text for people is made in `icevirt.display`.
"""
