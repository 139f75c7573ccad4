package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store/storetest"
)

// TestUpgradeFromTheFirstRelease opens a database that an engine with the first two migrations has filled: everything is
// there, and what is looked up is computed anew.
func TestUpgradeFromTheFirstRelease(t *testing.T) {
	path := newPath(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := connect(path, "", readerCache, 1)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	steps, err := loadMigrations(migrationFiles)
	if err != nil {
		t.Fatal(err)
	}
	errClaim := claimFile(t.Context(), conn)
	_, errApply := migrate(t.Context(), conn, steps[:2])
	if err := errors.Join(errClaim, errApply); err != nil {
		t.Fatal(err)
	}
	old := map[string]session.Binding{}
	var busy []string
	pinned := 0
	for i, change := range []func(*session.Binding){
		func(b *session.Binding) { b.AgentVersion = 0 },
		func(b *session.Binding) { b.Active = &session.Active{Run: "run_1", Gen: 1} },
		func(b *session.Binding) { b.Draining = "run_1"; b.AgentVersion = 0 },
		func(b *session.Binding) {
			b.Pending = &session.Pending{Interrupt: "int_1", Run: "run_1", Request: json.RawMessage(`{}`)}
		},
		func(b *session.Binding) { b.Key.ConversationID = "a\x00\"\\ \u2028" },
	} {
		b := session.Binding{
			ID: fmt.Sprintf("ses_%d", i), Rev: 1, AgentVersion: 3, Epoch: 1, NextOrd: 1, CreatedAt: time.Unix(1, 0).UTC(), UpdatedAt: time.Unix(1, 0).UTC(),
			Key: session.Key{Environment: "dev", Subject: "alice", AgentID: "agt_1"},
		}
		change(&b)
		old[b.ID] = b
		if b.AgentVersion != 0 {
			pinned++
		}
		wasBusy := b.Active != nil || b.Draining != "" // as the old engine had it
		if wasBusy || b.Pending != nil {
			busy = append(busy, b.ID)
		}
		body, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.ExecContext(t.Context(), "INSERT INTO sessions (id, rev, environment, subject, agent, busy, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
			b.ID, b.Rev, b.Key.Environment, b.Key.Subject, b.Key.AgentID, wasBusy, string(body))
		if err != nil {
			t.Fatal(err)
		}
	}
	// A document of an engine that wrote what has no value as null.
	const nulls = `{"id":"ses_9","rev":1,"key":{"environment":"dev","subject":"alice","agentId":"agt_1"},"active":null,"pending":null,"draining":null}`
	if _, err := conn.ExecContext(t.Context(), "INSERT INTO sessions (id, rev, environment, subject, agent, busy, body) VALUES ('ses_9', 1, 'dev', 'alice', 'agt_1', 1, ?)", nulls); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}

	s := openAt(t, Options{Path: path})
	got, err := s.BusySessions(t.Context(), "", 100)
	var listed []string
	for _, b := range got {
		listed = append(listed, b.ID)
	}
	if err != nil || !slices.Equal(listed, busy) {
		t.Errorf("busy are %v, %v, want %v", got, err, busy)
	}
	if n, err := s.PinnedSessions(t.Context(), "dev", "agt_1", 100); err != nil || n != pinned {
		t.Errorf("pinned are %d, %v, want %d", n, err, pinned)
	}
	for id, want := range old {
		got, err := s.Session(t.Context(), id)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v, want %+v", id, got, err, want)
		}
		got.Rev++
		got.AgentVersion, got.Active, got.Draining, got.Pending = 0, nil, "", nil
		if err := s.UpdateSession(t.Context(), got); err != nil {
			t.Error(err)
		}
	}
	if got, err := s.BusySessions(t.Context(), "", 100); err != nil || len(got) != 0 {
		t.Errorf("busy at last are %v, %v", got, err)
	}
	if n, err := s.PinnedSessions(t.Context(), "dev", "agt_1", 100); err != nil || n != 0 {
		t.Errorf("pinned at last are %d, %v", n, err)
	}
	a := file.Attachment{ID: "att_1", Environment: "dev", Owner: "alice", Hash: "h", CreatedAt: time.Unix(1, 0).UTC()}
	if err := errors.Join(s.InsertAttachment(t.Context(), a), s.Append(t.Context(), storetest.MakeChunk("run_1", 1, 1, 1, "eng_a", 0))); err != nil {
		t.Error(err)
	}
}
