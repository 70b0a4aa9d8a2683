"""Everything that `run.py` and `test.py` need before they can start, made or fetched once and cached.

Standard library only: it runs on a machine that has nothing but Python.
"""
