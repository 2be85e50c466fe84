"""Frozen values of the pipeline: scanned files, signatures, the catalog's schema, the plan."""
