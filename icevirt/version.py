"""Hold the version of icevirt as a constant; reading package metadata is slow at import.

The build backend reads it from here.
"""

__version__ = "0.1.0"
