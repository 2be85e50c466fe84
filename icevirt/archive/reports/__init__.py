"""Define what plans, builds, scans and verifications report, as values.

Text for people is made in `icevirt.display`.
"""
