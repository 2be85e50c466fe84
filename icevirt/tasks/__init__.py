"""Define what runs on a worker: scan, write, verify.

Knows no scheduler; `icevirt.execution` runs the tasks.
"""
