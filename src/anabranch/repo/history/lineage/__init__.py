"""The origin of a table: pipeline metadata of commits, the lineage graph, and drawings of the graph.

Start with `trace.trace_lineage`.
"""
