"""What the service knows beside its repositories: `metadata.duckdb`."""
