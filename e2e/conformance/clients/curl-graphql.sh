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

after=0 event='' data='' id=''
until [[ $event == complete ]]; do
  follow='subscription { runEvents(runId: \"'$run'\", after: '$after') { events { sequence type ... on TextDeltaEvent { delta } } } }'
  event=''
  graphql -H 'accept: text/event-stream' -d "{\"query\": \"$follow\"}" 2>/dev/null | while IFS= read -r line; do
    case $line in
      'event: '*) event=${line#event: } ;;
      'id: '*) id=${line#id: } ;;
      'data: '*) data=${line#data: } ;;
      '') # the end of a message; a message that was cut off has none, and comes again
        if [[ $event == next ]]; then
          echo "$data"
          after=$id
        fi
        [[ $event == complete ]] && break
        event='' data='' ;;
    esac
  done || status=("${PIPESTATUS[@]}")
  [[ ${status[0]:-0} == 22 ]] && exit 1 # the engine refused it
  [[ $event == complete ]] || sleep 0.3
done
echo complete
