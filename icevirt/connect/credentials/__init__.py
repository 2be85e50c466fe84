"""Hold credentials of object stores and web servers, under icechunk's names.

Stores are made of them in `icevirt.connect`.
"""
