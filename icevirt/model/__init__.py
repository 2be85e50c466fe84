"""Define frozen values of the Icechunk format: what the files mean, without bytes or I/O."""
