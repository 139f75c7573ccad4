#!/usr/bin/env bash
# Runs every fuzz target of the repository for the given time: build/fuzz.sh DURATION [FRAMES]. The targets that
# build/frame-parsers lists get the time FRAMES, where it is given. JOBS of them (default: one a core, at most 4) run beside
# each other. A crash, a target that cannot be built, or no target at all is a failure; a crash names its input, which is
# left in testdata/fuzz of the package, to be committed with the fix. ONLY is a pattern of folders, for a part of them.
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: build/fuzz.sh DURATION [FRAMES], for instance 5s 60s"
short="${1:?$usage}"
long="${2:-$short}"
for duration in "$short" "$long"; do
  [[ $duration =~ ^[0-9]+(s|m|h)$ ]] || { echo "fuzz: $duration is not a duration like 60s, 5m or 1h" >&2; exit 2; }
done
cores="$(nproc 2>/dev/null || echo 2)"
jobs="${JOBS:-$((cores > 4 ? 4 : cores))}"
workers=$((cores / jobs > 0 ? cores / jobs : 1))
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cache="$(go env GOCACHE)/fuzz/$(go list -m)" # where go test keeps it, too

# Each target as "folder name duration"; fuzz targets are functions of test files.
frames="$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' build/frame-parsers)"
used="$work/used"
: >"$used"
list() {
  local file line name folder duration at pattern
  while IFS=: read -r file _ line; do
    name="${line#func }"
    name="${name%%(*}"
    folder="$(dirname "$file")"
    [[ $folder =~ ^(${ONLY:-.*})$ ]] || continue
    duration="$short"
    while read -r at pattern; do
      if [[ $folder == "$at" && $name =~ ^($pattern)$ ]]; then
        duration="$long"
        echo "$at $pattern" >>"$used"
      fi
    done <<<"$frames"
    echo "$folder $name $duration"
  done < <(git grep --untracked -nE '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go')
}
list >"$work/targets"
if [[ ! -s $work/targets ]]; then
  echo "fuzz: no fuzz target was found" >&2
  exit 1
fi
while read -r at pattern; do
  [[ -n ${ONLY:-} ]] || grep -qxF "$at $pattern" "$used" || { echo "fuzz: build/frame-parsers names $at $pattern, which is no target" >&2; exit 1; }
done <<<"$frames"

# The instrumented test program of a folder, built once for all of its targets.
program() { echo "$work/${1//\//-}.test"; }
while read -r folder; do
  go test -c -fuzz='^$' -o "$(program "$folder")" "./$folder" || { echo "fuzz: $folder cannot be built" >&2; exit 1; }
done < <(cut -d' ' -f1 "$work/targets" | sort -u)
echo "fuzz: built after ${SECONDS}s"

# fuzz runs one target in its folder and shows the last of what it said.
fuzz() {
  local folder="$1" name="$2" duration="$3" log
  log="$work/${1//\//-}-$2.log"
  if ! (cd "$folder" && "$(program "$folder")" -test.run='^$' -test.fuzz="^$name\$" -test.fuzztime="$duration" \
    -test.fuzzminimizetime=50x -test.fuzzcachedir="$cache/$folder" -test.parallel="$workers") >"$log" 2>&1; then
    # Go's fuzzer may report the end of its own time as a failure; a crash always names its input.
    if grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic:' "$log"; then
      echo "fuzz: $folder $name ran out of time without a crash"
    else
      {
        echo "fuzz: $folder $name FAILED"
        cat "$log"
        # A machine that is gone tomorrow leaves no file: the input is shown, too.
        grep -oE 'testdata/fuzz/[^[:space:]]+' "$log" | sort -u | while read -r input; do
          echo "--- $folder/$input"
          head -c 65536 "$folder/$input"
        done
      } >&2
      echo "$folder $name" >>"$work/failed"
      return
    fi
  fi
  echo "fuzz: $folder $name $duration: $(grep -oE 'execs: [0-9]+' "$log" | tail -1)"
}
# The long ones first: nothing waits for them at the end then.
running=0
while read -r folder name duration; do
  fuzz "$folder" "$name" "$duration" &
  if ((++running >= jobs)); then
    wait -n || true
    running=$((running - 1))
  fi
done < <(awk -v long="$long" '{print ($3 == long ? 0 : 1), $0}' "$work/targets" | sort -s -n -k1,1 | cut -d' ' -f2-)
wait

if [[ -s $work/failed ]]; then
  sed 's/^/fuzz: failed: /' "$work/failed" >&2
  exit 1
fi
echo "fuzz: $(wc -l <"$work/targets") targets, no crash, after ${SECONDS}s"
