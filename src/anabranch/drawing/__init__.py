"""Pictures and tables of HTML for notebooks and the web UI. Needs no template engine and no web framework.

`commit_graph` lays out and draws a commit graph, `diff_table` shows rows that differ, and `html` has values and the style.
"""
