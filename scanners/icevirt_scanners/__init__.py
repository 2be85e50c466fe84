"""Provide icevirt's own scanners, registered in the entry-point group ``icevirt.scanners``.

The contract that they fulfill is `icevirt.scan`.
"""
