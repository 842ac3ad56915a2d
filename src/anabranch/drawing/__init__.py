"""Pictures and tables of HTML for notebooks and the web UI. Needs no template engine and no web framework.

`lanes` lays out a commit graph and `graph_svg` draws it. `cells` shows values, and `grid` and `diff_table` show rows.
"""
