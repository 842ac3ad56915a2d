"""Three-way merges: of tables, then of their columns, then of rows and cells."""
