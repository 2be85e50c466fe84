"""Tests for other people's plug-ins: what icevirt expects of a scanner, as pytest classes."""
