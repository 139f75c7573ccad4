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
id='' over='' failed=''
until [[ $over ]]; do
  event='' data='' next='' failed=''
  # The id of the last message that is whole says where to go on.
  graphql -H 'accept: text/event-stream' ${id:+-H "last-event-id: $id"} --retry 5 -d "{\"query\": \"$follow\"}" 2>/dev/null |
    while IFS= read -r line; do
      case $line in
        'event: '*) event=${line#event: } ;;
        'id: '*) next=${line#id: } ;;
        'data: '*) data=${line#data: } ;;
        '') # the end of a message; one that was cut off has none, and comes again
          if [[ $event == complete ]]; then
            over=yes
            break
          elif [[ $event == next && $next ]]; then
            echo "$data"
            id=$next
          elif [[ $event == next ]]; then
            failed=$data # an error; where it passes, no `complete` follows
          fi
          event='' data='' next='' ;;
      esac
    done || status=("${PIPESTATUS[@]}")
  [[ ${status[0]:-0} == 22 ]] && exit 1 # the engine refused it
  [[ $over ]] || sleep 0.3
done
[[ $failed ]] && { echo "$failed" >&2; exit 1; }
echo complete
