"""Grids that differ."""
