"""Frozen values of the Icechunk format: what the files mean, without bytes and without I/O."""
