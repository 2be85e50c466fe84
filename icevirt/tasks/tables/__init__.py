"""Show a repository as tables: rows as Arrow record batches, made where a task runs.

What a table is made of is planned from a snapshot, without a look at references.
"""
