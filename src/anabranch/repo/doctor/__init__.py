"""What doctor knows of a whole repository: its logs and commits, its tables, and what lies beside them."""
