"""The tables of `metadata.duckdb`."""

__all__ = ["TABLES"]

# `intents` are what was begun and is to be finished, or taken back, by the next start if a crash came between.
# `projects`, `branches` and `branch_tables` are tied by keys; the others are not, so that rows of them can be deleted
# in any order: DuckDB refuses to delete a row and those that name it in one transaction.
TABLES = """
CREATE TABLE IF NOT EXISTS projects (
    id VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    description TEXT,
    created_at TIMESTAMPTZ DEFAULT now(),
    created_by VARCHAR
);

CREATE TABLE IF NOT EXISTS branches (
    id VARCHAR PRIMARY KEY,
    project_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now(),
    created_by VARCHAR,
    description TEXT,

    FOREIGN KEY (project_id) REFERENCES projects(id)
);

CREATE INDEX IF NOT EXISTS idx_branches_project ON branches(project_id);

CREATE TABLE IF NOT EXISTS branch_tables (
    branch_id VARCHAR NOT NULL,
    bucket_name VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    copied_at TIMESTAMPTZ DEFAULT now(),

    PRIMARY KEY (branch_id, bucket_name, table_name),
    FOREIGN KEY (branch_id) REFERENCES branches(id)
);

CREATE TABLE IF NOT EXISTS buckets (
    project_id VARCHAR NOT NULL,
    branch_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    is_hidden BOOLEAN NOT NULL,
    description TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    created_by VARCHAR
);

CREATE TABLE IF NOT EXISTS tokens (
    id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    secret_hash VARCHAR NOT NULL,
    scope VARCHAR NOT NULL,
    project_id VARCHAR,
    branch_id VARCHAR,
    created_at TIMESTAMPTZ NOT NULL,
    created_by VARCHAR,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ
);

CREATE TABLE IF NOT EXISTS jobs (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    branch_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    progress JSON,
    request JSON,
    result JSON,
    error JSON,
    created_at TIMESTAMPTZ NOT NULL,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    token_id VARCHAR NOT NULL
);

CREATE TABLE IF NOT EXISTS files (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    stored_as VARCHAR NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    created_by VARCHAR
);

CREATE TABLE IF NOT EXISTS idempotency_keys (
    token_id VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    path VARCHAR NOT NULL,
    body_hash VARCHAR NOT NULL,
    status INTEGER,
    response JSON,
    created_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE IF NOT EXISTS audit_events (
    happened_at TIMESTAMPTZ NOT NULL,
    request_id VARCHAR NOT NULL,
    token_id VARCHAR,
    actor VARCHAR,
    action VARCHAR NOT NULL,
    project_id VARCHAR,
    branch_id VARCHAR,
    path VARCHAR NOT NULL,
    status INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS intents (
    id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    begun_at TIMESTAMPTZ NOT NULL
);
"""
