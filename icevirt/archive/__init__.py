"""Hold the pipeline's frozen values: scanned files, signatures, the catalog schema, the plan."""
