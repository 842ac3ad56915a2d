"""The HTTP service: dev branches over many projects, one repository each."""
