package storetest

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// when is the time of documents: milliseconds in UTC, what every backend can keep.
var when = time.Date(2026, 11, 30, 12, 0, 0, int(7*time.Millisecond), time.UTC)

var serial atomic.Int64

// fresh makes an identifier that no other test has; identifiers sort as they were made.
func fresh(prefix string) string { return fmt.Sprintf("%s_%012d", prefix, serial.Add(1)) }

// MakeChunk makes a chunk of n events from first whose content follows from its key, so that any process can tell
// what a stored chunk must hold. bytes is the least size of an event.
func MakeChunk(runID string, first int64, n int, gen int64, writer string, bytes int) event.Chunk {
	var body strings.Builder
	pad := strings.Repeat("x", max(0, bytes-64))
	for i := range int64(n) {
		body.WriteString(map[bool]string{true: "[", false: ","}[i == 0])
		fmt.Fprintf(&body, `{"run":%q,"sequence":%d,"gen":%d,"writer":%q,"pad":%q}`, runID, first+i, gen, writer, pad)
	}
	body.WriteString("]")
	c := event.Chunk{
		RunID: runID, SessionID: "ses_of_" + runID, First: first, Last: first + int64(n) - 1, Gen: gen, Writer: writer,
		Cursors: map[string]event.Cursor{event.SourceWorker: {Incarnation: "wrk_1", Seq: first * 10}},
		Facts:   map[string]string{"nativeSession": "n-" + runID},
		Body:    []byte(body.String()),
	}
	c.SHA256 = sha256.Sum256(c.Body)
	return c
}

// binding makes a new binding document.
func binding(id, environment, subject, agentID string) session.Binding {
	return session.Binding{
		ID: id, Rev: 1, AgentVersion: 3, Harness: "scripted", Epoch: 1, NextOrd: 1, LastOp: "op_" + id, CreatedAt: when, UpdatedAt: when,
		Key: session.Key{Environment: environment, Subject: subject, AgentID: agentID, ConversationID: "conversation of " + id},
	}
}

// runDoc makes a new run document.
func runDoc(id, environment, subject, sessionID, agentID string, status run.Status) run.Run {
	return run.Run{
		ID: id, Rev: 1, Status: status, Environment: environment, Subject: subject, SessionID: sessionID, Epoch: 1, AgentID: agentID,
		AgentVersion: 3, Harness: "scripted", Input: run.Input{Text: "say hello"}, RequestDigest: "d-" + id, CreatedAt: when,
	}
}

// agentDoc makes a new agent document.
func agentDoc(id, environment, owner, slug string, state agent.State) agent.Agent {
	return agent.Agent{
		ID: id, Rev: 1, State: state, Environment: environment, Owner: owner, Slug: slug, Version: 1, LastOp: "op_" + id,
		Authz:     authz.Outbox{Desired: []authz.Tuple{{User: "user:" + owner, Relation: "owner", Object: "agent:" + id}}, DesiredRev: 1, AppliedRev: 1},
		CreatedAt: when, UpdatedAt: when,
	}
}
