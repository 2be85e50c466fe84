"""Test third-party plug-ins: what icevirt expects of a scanner, as pytest classes."""
