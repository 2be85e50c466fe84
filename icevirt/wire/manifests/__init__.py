"""Encode manifests: chunk references and their locations as bytes.

Which chunk goes into which manifest is decided in `icevirt.versioning`.
"""
