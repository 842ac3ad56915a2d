"""How a table came to be: what commits say about it, the graph of it, and drawings of the graph."""
