"""Frozen values of the pipeline: scanned files, decode signatures, the catalog's schema, the plan."""
