"""Storage that fails, answers late, or loses its answers: for every public write, at any of its requests."""
