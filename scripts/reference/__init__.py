"""Writes the parts of the reference that follow from the code: commands, Python, and the routes of the service.

Run `python -m scripts.reference` after a change of any of them; a test fails if the pages do not match.
"""
