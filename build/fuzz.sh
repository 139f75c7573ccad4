#!/usr/bin/env bash
# Runs every fuzz target of the repository, one after the other, each for the given time: build/fuzz.sh 60s
# A crash, a target that cannot be built, or no target at all is a failure. New crashers are left in testdata/fuzz of
# the package, to be committed with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."

duration="${1:?usage: build/fuzz.sh DURATION, for instance 60s}"
[[ $duration =~ ^[0-9]+(s|m|h)$ ]] || { echo "fuzz: $duration is not a duration like 60s, 5m or 1h" >&2; exit 2; }

targets=0
failed=()
# Fuzz targets are functions of test files; go test accepts one package and one target at a time.
while IFS=: read -r file _ line; do
  name="${line#func }"
  name="${name%%(*}"
  package="./$(dirname "$file")"
  targets=$((targets + 1))
  echo "=== $package $name ($duration)"
  log="$(mktemp)"
  if ! go test -run='^$' -fuzz="^${name}\$" -fuzztime="$duration" -fuzzminimizetime=50x "$package" 2>&1 | tee "$log"; then
    # Go's fuzzer may report the end of its own time as a failure; a crash always names its input.
    if grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic:' "$log"; then
      echo "fuzz: $name ran out of time without a crash"
    else
      failed+=("$package $name")
    fi
  fi
  rm -f "$log"
done < <(git grep --untracked -nE '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go')

if ((targets == 0)); then
  echo "fuzz: no fuzz target was found" >&2
  exit 1
fi
if ((${#failed[@]} > 0)); then
  printf 'fuzz: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "fuzz: $targets targets, no crash"
