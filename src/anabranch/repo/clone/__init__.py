"""Clones and relocation: make a repository from one commit of another, and adapt one that was moved or copied."""
