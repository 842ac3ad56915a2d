"""Many tables under one commit graph: what a user holds is at this level, everything else in folders by subject.

`repository`, `transaction`, `run` and `snapshot` are the objects of the public API. Imports go downwards only:
`doctor, gc, io, merge`, then `schema`, then `history, runs`, then `write`, then `refs`, then `log`.
"""
