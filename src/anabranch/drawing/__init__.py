"""Pictures and tables of HTML for notebooks and the web UI. Needs no template engine and no web framework.

`commit_graph` draws a commit graph, `diff_table` rows that differ, and `html` has values and the style.
"""
