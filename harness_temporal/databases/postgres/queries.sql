-- Each query is named by the line above its comment.

-- name: has_schema
-- Whether the schema is there, and whether anything was set up in it.
SELECT
  to_regnamespace($1::text) IS NOT NULL AS created,
  to_regclass($1::text || '.schema_versions') IS NOT NULL AS used;

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: lock_schema
-- Wait until nobody else sets up the schema; the end of the transaction gives the lock back.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: applied_versions
SELECT version, name, checksum FROM {schema}.schema_versions ORDER BY version;

-- name: record_version
INSERT INTO {schema}.schema_versions (version, name, checksum) VALUES ($1::bigint, $2::text, $3::text);
