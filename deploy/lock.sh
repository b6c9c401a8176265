#!/bin/sh
# Makes deploy/requirements.lock: what the image has, in the versions that requirements.lock has. Run it after that.
set -eu
cd "$(dirname "$0")/.."
uv pip compile pyproject.toml --extra worker --extra tracing --extra postgres --extra mongo --extra s3 --extra crypto \
  --extra cli -c requirements.lock --generate-hashes --no-header --no-annotate -q -o deploy/requirements.lock
