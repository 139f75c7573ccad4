// Package storetest is the one suite that every storage backend must pass. It knows the engine's ports only, nothing
// of SQL or of any database: what it proves is what the engine may rely on.
//
// A backend's test calls Main from its TestMain (so that the suite can start a second process of the test binary and
// kill it) and Run from one test.
package storetest

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/retention"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store"
)

// Stores is an open backend.
type Stores struct {
	Log      event.Log
	Sessions session.Store
	Runs     run.Store
	Agents   agent.Store
	Files    file.Store
	Values   store.Values

	Retention retention.Store
	Content   retention.Content

	// Location is where the data is: whatever the opener given to Main needs to open the same data again.
	Location string
	// Close closes the backend. The suite calls it before it opens the same data again.
	Close func() error
	// Reopen opens the same data after Close.
	Reopen func(t *testing.T) Stores
	// Faults causes failures.
	Faults Faults
}

// Faults causes real failures in what the backend stands on. A backend that cannot cause one leaves it nil; the suite
// then says so in a skipped test.
type Faults struct {
	// FailCommit lets the next commit fail so that the caller cannot know its outcome; durable says what it is.
	// The suite has committed something since the backend was opened.
	FailCommit func(durable bool)
	// FillDisk leaves no room for any write, and FreeDisk gives room again.
	FillDisk, FreeDisk func()
}

// childLocation is the environment variable that makes the test binary the process that is killed.
const childLocation = "STORETEST_CHILD_LOCATION"

// Main runs the tests, or, in the child process that the kill test starts, writes until it is killed. check runs
// after the tests, for instance goleak.Find, and may be nil.
func Main(m *testing.M, openAt func(location string) (Stores, error), check func() error) {
	if location := os.Getenv(childLocation); location != "" {
		os.Exit(writeUntilKilled(location, openAt))
	}
	runAndExit(m, check)
}

// runAndExit runs the tests and then check, which may be nil.
func runAndExit(m *testing.M, check func() error) {
	status := m.Run()
	if check != nil && status == 0 {
		if err := check(); err != nil {
			println(err.Error())
			status = 1
		}
	}
	os.Exit(status)
}

// Run runs the suite. open gives an empty backend and registers its end with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Stores) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Stores)
	}{
		{"log/round trip", logRoundTrip},
		{"log/duplicate key", logDuplicate},
		{"log/keeps no reference", logKeepsNoReference},
		{"log/read from every position", logReadEveryPosition},
		{"log/read bounds", logReadBounds},
		{"log/many writers", logManyWriters},
		{"log/one key, many writers", logOneKey},
		{"log/limits", logLimits},
		{"log/giving up", logGivingUp},
		{"log/expired", logExpired},
		{"log/expires while it is read", expireWhileRead},
		{"log/given up", logGivenUp},
		{"log/prune bounds", pruneBounds},
		{"runs/retention listings", retentionListings},
		{"fence/stale writer", fenceStaleWriter},
		{"fence/race", fenceRace},
		{"fence/real writers", fenceRealWriters},
		{"sessions/round trip and conflicts", sessionConflicts},
		{"sessions/one winner", sessionOneWinner},
		{"sessions/no lost update", sessionNoLostUpdate},
		{"sessions/listings", sessionListings},
		{"runs/conflicts", runConflicts},
		{"runs/one insert", runOneInsert},
		{"runs/listings", runListings},
		{"runs/session order", runSessionOrder},
		{"runs/back from the end of a session", runSessionBack},
		{"runs/all epochs of a session", runAllEpochs},
		{"runs/unfinished", runUnfinished},
		{"agents/conflicts", agentConflicts},
		{"agents/slug races", agentSlugRaces},
		{"agents/listings", agentListings},
		{"agents/versions", agentVersions},
		{"attachments/conflicts", attachmentConflicts},
		{"attachments/text", attachmentText},
		{"attachments/unused", contentUnused},
		{"values/first one wins", valuesFirstWins},
		{"documents/every field", documentsEveryField},
		{"documents/hostile text", documentsHostileText},
		{"documents/any text", documentsAnyText},
		{"documents/refused text", documentsRefusedText},
		{"documents/limits", documentsLimits},
		{"documents/reopen", documentsReopen},
		{"faults/unknown outcome, durable", func(t *testing.T, s Stores) { faultUnknown(t, s, true) }},
		{"faults/unknown outcome, lost", func(t *testing.T, s Stores) { faultUnknown(t, s, false) }},
		{"faults/unknown outcome of documents", faultUnknownDocuments},
		{"faults/disk full", faultDiskFull},
		{"crash/kill", crashKill},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// noError stops the test.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// wantError stops the test unless err is target.
func wantError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want %v", err, target)
	}
}

// isDuplicate reports a taken key.
func isDuplicate(err error) bool {
	var d *event.DuplicateError
	return errors.As(err, &d)
}

// reopen closes and opens.
func (s Stores) reopen(t *testing.T) Stores {
	t.Helper()
	noError(t, s.Close())
	return s.Reopen(t)
}

// outcomes runs f n times at once and returns the errors in order.
func outcomes(n int, f func(i int) error) []error {
	start, errs, done := make(chan struct{}), make([]error, n), make(chan struct{})
	for i := range n {
		go func() {
			<-start
			errs[i] = f(i)
			done <- struct{}{}
		}()
	}
	close(start)
	for range n {
		<-done
	}
	return errs
}

// oneWinner checks that one outcome is nil and the others are lost, and returns the winner's number.
func oneWinner(t *testing.T, errs []error, lost func(error) bool) int {
	t.Helper()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Fatalf("two winners: %d and %d", winner, i)
		case err == nil:
			winner = i
		case !lost(err):
			t.Fatalf("loser %d got %v", i, err)
		}
	}
	if winner < 0 {
		t.Fatalf("no winner: %v", errs)
	}
	return winner
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// readAll reads a run's log to its end in pages.
func readAll(ctx context.Context, t *testing.T, log event.Log, runID string, page int) []event.Chunk {
	t.Helper()
	var all []event.Chunk
	for after := int64(0); ; {
		cs, err := log.Read(ctx, runID, after, page)
		noError(t, err)
		if len(cs) == 0 {
			return all
		}
		for _, c := range cs {
			if c.First != after+1 {
				t.Fatalf("run %s: chunk starts at %d, want %d", runID, c.First, after+1)
			}
			after = c.Last
		}
		all = append(all, cs...)
	}
}
