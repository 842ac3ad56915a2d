"""Clones and relocation: make a repository from one commit of another, and adapt a repository that was moved.

`clone` makes shallow and deep clones. `relocate` rewrites the paths in the tables of a moved or copied repository.
"""
