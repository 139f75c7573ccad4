#!/usr/bin/env bash
# Compares schema.graphqls with the one of the last release and fails where a client of that one would break:
# build/schema-check.sh [REF]. Without a REF it is the last tag; where there is none, there is no release to break.
set -euo pipefail
cd "$(dirname "$0")/.."

schema=schema.graphqls
base="${1:-}"
if [[ -z $base ]]; then
  if ! base="$(git describe --tags --abbrev=0 2>/dev/null)"; then
    echo "schema-check: no tag yet, so no release whose clients could break"
    exit 0
  fi
fi
old="$(mktemp)"
trap 'rm -f "$old"' EXIT
git show "$base:$schema" >"$old" || { echo "schema-check: $base has no $schema" >&2; exit 2; }
echo "schema-check: $schema against $base"
go run ./build/schemacheck "$old" "$schema"
