"""Scan TIFF, GeoTIFF and COG: images become arrays as rioxarray shows them."""
