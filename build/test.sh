#!/usr/bin/env bash
# Runs every test: the units, under the race detector where there is a C compiler, and beside them the end-to-end tests,
# which run the programs in bin/ and mostly wait for them; then the tests of the Node agents. What runs beside is shown at its end.
set -euo pipefail
cd "$(dirname "$0")/.."

units="$(go list ./... | grep -v /e2e)"
compiler="$(go env CC)"
race=()
if command -v "${compiler%% *}" >/dev/null; then
  race=(-race)
  export CGO_ENABLED=1
  echo "test: the units with the race detector"
else
  echo "test: the units without the race detector, which needs a C compiler"
fi

said="$(mktemp)"
trap 'rm -f "$said"' EXIT
CGO_ENABLED=0 HARNESS_BIN="$PWD/bin" go test -timeout 90m ./e2e/... >"$said" 2>&1 &
beside=$!

failed=()
# shellcheck disable=SC2086 # one word a package
go test "${race[@]}" -timeout 60m $units || failed+=("units")
echo "test: units after ${SECONDS}s"
wait "$beside" || failed+=("e2e")
cat "$said"
echo "test: e2e after ${SECONDS}s"
(cd worker/node && npm test --silent) || failed+=("worker/node")
if ((${#failed[@]} > 0)); then
  echo "test: failed: ${failed[*]}" >&2
  exit 1
fi
echo "test: all passed after ${SECONDS}s"
