"""Many tables under one commit graph: commits, branches, snapshots, transactions."""
