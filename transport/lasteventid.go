package transport

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// lastEventIDField is the header with which a client that lost its stream comes back: the id of the last message that it
// has (HTML, section 9.2.5).
const lastEventIDField = "Last-Event-ID"

// maxEventID is the longest id that is looked at; those that are given are shorter.
const maxEventID = 256

// lastEventID reads the header; empty where it is absent.
func lastEventID(h http.Header) (string, *problem.Error) {
	values := h.Values(lastEventIDField)
	if len(values) == 0 {
		return "", nil
	}
	id := values[0]
	switch {
	case len(values) > 1:
		return "", problem.Field(lastEventIDField, "is given more than once")
	case len(id) > maxEventID:
		return "", problem.Field(lastEventIDField, "is longer than %d bytes", maxEventID)
	}
	for i := range len(id) {
		if id[i] < '!' || id[i] > '~' {
			return "", problem.Field(lastEventIDField, "has characters that no id has")
		}
	}
	return id, nil
}

// cursorOf takes the history's mark off an id, as resolvers.Root.HistoryMark gives it. Whoever counts by hand may leave it
// away. What an id of another history counts may be gone, or something else by now: the client has to begin anew.
func cursorOf(id, mark string) (string, *problem.Error) {
	cursor, of, marked := strings.Cut(id, ".")
	if marked && "."+of != mark {
		return "", problem.New(problem.CursorExpired, "%s is of another history of the log", lastEventIDField)
	}
	if marked && cursor == "" {
		return "", problem.Field(lastEventIDField, "names no place")
	}
	return cursor, nil
}

// sequenceOf reads a place in a run's log: a decimal number of at most 31 bits, as `after` of runEvents.
func sequenceOf(field, s string) (int64, *problem.Error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, problem.Field(field, "must be a sequence: a whole number from 0 to 2147483647")
	}
	return int64(n), nil
}
