#!/usr/bin/env bash
# Starts a run and follows it without GraphQL, by /v1/runs/{id}/events. Needs curl; ENGINE, TOKEN, AGENT and TEXT say what.
set -euo pipefail
shopt -s lastpipe # the loop below runs in this shell, so that what it learns is kept

ask() {
  curl --silent --show-error --no-buffer --fail-with-body -H "authorization: Bearer $TOKEN" "$@"
}

start='mutation { startRun(input: {agentId: \"'$AGENT'\", message: {text: \"'$TEXT'\"}}) { ... on StartRunSuccess { run { id } } ... on Problem { message } } }'
answer=$(ask "$ENGINE/graphql" -H 'content-type: application/json' -d "{\"query\": \"$start\"}")
[[ $answer =~ run_[0-9a-z]+ ]] || { echo "$answer" >&2; exit 1; }
run=${BASH_REMATCH[0]}
echo "run $run"

id='' ended=''
until [[ $ended ]]; do
  data='' next=''
  ask "$ENGINE/v1/runs/$run/events?format=canonical" ${id:+-H "last-event-id: $id"} --retry 5 2>/dev/null | while IFS= read -r line; do
    case $line in
      'id: '*) next=${line#id: } ;;
      'data: '*) data=${line#data: } ;;
      '') # the end of a message; one that was cut off has none, and comes again
        if [[ $next ]]; then
          echo "$data"
          id=$next
          # The four types that end a run.
          [[ $data =~ '"type":"run.'(finished|interrupted|cancelled|error)'"' ]] && { ended=yes; break; }
        elif [[ $data ]]; then
          echo "$data" >&2 # why the engine ends the stream
        fi
        data='' next='' ;;
    esac
  done || status=("${PIPESTATUS[@]}")
  [[ ${status[0]:-0} == 22 ]] && exit 1 # the engine refused it
  [[ $ended ]] || sleep 0.3
done
echo complete
