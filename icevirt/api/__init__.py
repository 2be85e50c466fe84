"""Provide the functions of ``import icevirt``: build, plan, scan, verify, info and more.

The steps behind them are in `pipeline` and `sources`.
"""
