"""The functions that `import icevirt` offers beside `Repository` and `Session`.

The steps behind them are in `pipeline` and `sources`.
"""
