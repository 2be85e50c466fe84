"""Tell dimensions of one name apart: which groups share one, and whether groups agree on order.

Files are placed along dimensions in `axes`.
"""
