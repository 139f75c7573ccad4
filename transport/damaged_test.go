package transport_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
)

// spoil changes what is stored behind everybody's back.
func (w *world) spoil(statement string, args ...any) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "engine.sqlite")+"?_pragma=busy_timeout(60000)")
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	result, err := db.ExecContext(w.ctx, statement, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		w.t.Fatalf("%s: %d rows (%v)", statement, n, err)
	}
}

// One damaged document costs only itself: lists go on without it, and so do the edges of others.
func TestADamagedDocumentCostsOnlyItself(t *testing.T) {
	w := newWorld(t, option{})
	agents := []string{w.agent("alice", "one"), w.agent("alice", "two"), w.agent("alice", "three")}
	var logs []*log
	for range 5 {
		l := w.log("alice", agents[0])
		l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"})
		logs = append(logs, l)
	}
	w.spoil(`UPDATE agents SET body = '{"id":1}' WHERE id = ?`, agents[1])
	w.spoil(`UPDATE versions SET body = '{' WHERE agent = ?`, agents[2])
	w.spoil(`UPDATE runs SET body = '{' WHERE id = ?`, logs[1].id)
	w.spoil(`UPDATE runs SET body = json_set(body, '$.interrupt', json('{"id":"int_x","revision":1,"request":{"kind":7}}')) WHERE id = ?`, logs[2].id)
	w.spoil(`UPDATE sessions SET body = '[' WHERE id = ?`, logs[3].session)

	ids := func(r reply, list string) (found []any) {
		edges, _ := r.at(list, "edges").([]any)
		for i := range edges {
			found = append(found, r.at(list, "edges", i, "node", "id"))
		}
		return found
	}
	const page = ` { edges { node { id } } pageInfo { hasNextPage endCursor } } }`
	all := func(list string) (found []any) {
		after := any(nil)
		for {
			r := w.must("alice", `query($after: String) { `+list+`(first: 2, after: $after)`+page, vars{"after": after})
			found = append(found, ids(r, list)...)
			if r.at(list, "pageInfo", "hasNextPage") != true {
				return found
			}
			after = r.at(list, "pageInfo", "endCursor")
		}
	}
	same := func(what string, got []any, want ...any) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
	}
	same("agents", all("agents"), agents[0])
	same("sessions", all("sessions"), logs[4].session, logs[2].session, logs[1].session, logs[0].session)
	runs := all("runs")
	if len(runs) < 3 || runs[0] != logs[4].id || runs[len(runs)-1] != logs[0].id {
		t.Errorf("runs: %v", runs)
	}
	r := w.must("alice", `{ runs(first: 10) { edges { node { id sessionId session { id } } } } }`, nil)
	edges, _ := r.at("runs", "edges").([]any)
	for i := range edges {
		of, has := r.at("runs", "edges", i, "node", "sessionId"), r.at("runs", "edges", i, "node", "session") != nil
		if of == logs[0].session && !has || of == logs[3].session && has {
			t.Errorf("session %v shown: %v", of, has)
		}
	}
}
