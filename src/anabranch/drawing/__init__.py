"""Pictures and tables of HTML for notebooks and the web UI. Needs no template engine and no web framework.

`commit_graph` draws a commit graph, `boxes` a lineage, and `html` has values, differences of tables and the style.
"""
