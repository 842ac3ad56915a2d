"""The process that serves tables of a repository to the Spark catalog, which is written in Java."""
