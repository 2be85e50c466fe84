"""Repositories of the Icechunk V1 format: read, changed, and upgraded to V2."""
