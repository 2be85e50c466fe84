"""Decide timestamps, the ops log, expiration, garbage and the ancestry graph."""
