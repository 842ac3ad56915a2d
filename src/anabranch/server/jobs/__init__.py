"""Work that outlives a request: imports and exports."""
