-- Each query is named by the line above its comment.

-- name: glance
-- The beginning of one note, in characters, and the first names of the others: one text and so many rows, by the primary
-- key. A row without a text is a name.
WITH notebook AS (
  SELECT id FROM {schema}.memory_notebooks WHERE agent = $1::text AND namespace = $2::text
)
SELECT name, left(text, $4::integer) AS head
FROM {schema}.memory_notes
WHERE notebook_id = (SELECT id FROM notebook) AND name = $3::text
UNION ALL (
  SELECT name, NULL
  FROM {schema}.memory_notes
  WHERE notebook_id = (SELECT id FROM notebook) AND name <> $3::text
  ORDER BY name
  LIMIT $5::bigint
);

-- name: read
SELECT note.text
FROM {schema}.memory_notes AS note
JOIN {schema}.memory_notebooks AS notebook ON notebook.id = note.notebook_id
WHERE notebook.agent = $1::text AND notebook.namespace = $2::text AND note.name = $3::text;

-- name: page
-- Notes after a name.
SELECT note.name, note.text
FROM {schema}.memory_notes AS note
WHERE
  note.notebook_id = (SELECT id FROM {schema}.memory_notebooks WHERE agent = $1::text AND namespace = $2::text)
  AND note.name > $3::text
ORDER BY note.name
LIMIT $4::bigint;

-- name: hold
-- Hold the lock of a notebook, which is made if need be, and number the next operation.
INSERT INTO {schema}.memory_notebooks (agent, namespace, operations) VALUES ($1::text, $2::text, 1)
ON CONFLICT (agent, namespace) DO UPDATE SET operations = memory_notebooks.operations + 1
RETURNING id, operations;

-- name: before
-- What an operation finds: the revision that it gave when it was done before, and the text of its note.
SELECT
  (SELECT revision FROM {schema}.memory_operations WHERE notebook_id = $1::bigint AND key = $2::text) AS done,
  (SELECT text FROM {schema}.memory_notes WHERE notebook_id = $1::bigint AND name = $3::text) AS text;

-- name: put
INSERT INTO {schema}.memory_notes (notebook_id, name, text) VALUES ($1::bigint, $2::text, $3::text)
ON CONFLICT (notebook_id, name) DO UPDATE SET text = excluded.text;

-- name: delete
DELETE FROM {schema}.memory_notes WHERE notebook_id = $1::bigint AND name = $2::text;

-- name: forget
-- Delete a notebook, and wait for who changes it. What it has is deleted after that, so that nothing of it stays.
DELETE FROM {schema}.memory_notebooks WHERE agent = $1::text AND namespace = $2::text RETURNING id;

-- name: forget_notes
DELETE FROM {schema}.memory_notes WHERE notebook_id = $1::bigint;

-- name: forget_operations
DELETE FROM {schema}.memory_operations WHERE notebook_id = $1::bigint;

-- name: record
-- Remember an operation, and forget those of a number up to the last one.
WITH forgotten AS (
  DELETE FROM {schema}.memory_operations WHERE notebook_id = $1::bigint AND number <= $5::bigint
)
INSERT INTO {schema}.memory_operations (notebook_id, key, number, revision)
VALUES ($1::bigint, $2::text, $3::bigint, $4::text);
