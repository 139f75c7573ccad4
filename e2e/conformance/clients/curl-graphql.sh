#!/usr/bin/env bash
# Starts a run and follows it as GraphQL over server-sent events. Needs curl; ENGINE, TOKEN, AGENT and TEXT say what.
set -euo pipefail
shopt -s lastpipe # the loop below runs in this shell, so that what it learns is kept

graphql() {
  curl --silent --show-error --no-buffer --fail-with-body "$ENGINE/graphql" \
    -H "authorization: Bearer $TOKEN" -H 'content-type: application/json' "$@"
}

start='mutation { startRun(input: {agentId: \"'$AGENT'\", message: {text: \"'$TEXT'\"}}) { ... on StartRunSuccess { run { id } } ... on Problem { message } } }'
answer=$(graphql -d "{\"query\": \"$start\"}")
[[ $answer =~ run_[0-9a-z]+ ]] || { echo "$answer" >&2; exit 1; }
run=${BASH_REMATCH[0]}
echo "run $run"

follow='subscription { runEvents(runId: \"'$run'\") { events { sequence type ... on TextDeltaEvent { delta } } } }'
event='' data='' id=''
until [[ $event == complete ]]; do
  event=''
  # The id of the last message that is whole says where to go on.
  graphql -H 'accept: text/event-stream' ${id:+-H "last-event-id: $id"} -d "{\"query\": \"$follow\"}" 2>/dev/null | while IFS= read -r line; do
    case $line in
      'event: '*) event=${line#event: } ;;
      'id: '*) next=${line#id: } ;;
      'data: '*) data=${line#data: } ;;
      '') # the end of a message; one that was cut off has none, and comes again
        if [[ $event == next ]]; then
          echo "$data"
          id=$next
        fi
        [[ $event == complete ]] && break
        event='' data='' ;;
    esac
  done || status=("${PIPESTATUS[@]}")
  [[ ${status[0]:-0} == 22 ]] && exit 1 # the engine refused it
  [[ $event == complete ]] || sleep 0.3
done
echo complete
