package integrity_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store/files"
)

// repair mends a folder, dry or not.
func repair(t *testing.T, dir string, dry bool) integrity.Repaired {
	t.Helper()
	w := open(t, dir)
	defer w.close()
	blobs, err := files.NewReader(filepath.Join(dir, "blobs"))
	w.must(err)
	done, err := integrity.Repair(t.Context(), integrity.RepairOptions{
		Options: integrity.Options{Source: w.store, Blobs: blobs}, Runs: w.store, Sessions: w.store, Owner: "eng_repair", DryRun: dry,
		Now: func() time.Time { return when.Add(time.Hour) },
	})
	w.must(err)
	return done
}

// logs are all chunks of a folder, as text.
func logs(t *testing.T, dir string) string {
	t.Helper()
	w := open(t, dir)
	defer w.close()
	text := ""
	for _, id := range []string{done, asked, parted, resumed, live, queued, gone} {
		chunks, err := w.store.Chunks(t.Context(), id, 0, 100)
		w.must(err)
		text += fmt.Sprintln(id, chunks)
	}
	return text
}

func TestRepair(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir)
	held := func(session, runID string, ord int, more string) string {
		return fmt.Sprintf(`UPDATE sessions SET body = json_set(body, '$.active', json('{"run":"%s","ord":%d,"epoch":1,"pin":{"agentVersion":1,"harness":"scripted"},"gen":3,"owner":"e","beat":0}')%s) WHERE id = '%s'`,
			runID, ord, more, session)
	}
	for _, test := range []struct {
		name    string
		damage  func(t *testing.T, dir string)
		changes int
		refused int
		check   func(t *testing.T, w *world)
	}{
		{"nothing", func(*testing.T, string) {}, 0, 0, nil},
		{"a status", set("runs", done, "$.status", "'FAILED'"), 1, 0, func(t *testing.T, w *world) {
			r, err := w.store.Run(t.Context(), done)
			if err != nil || r.Status != "FINISHED" || r.Rev != 2 || len(r.Output) != 1 || r.Output[0].Text != "hello" {
				t.Errorf("%+v, %v", r, err)
			}
		}},
		{"an interrupt keeps what became of it", set("runs", parted, "$.lastSequence", "2"), 1, 0, func(t *testing.T, w *world) {
			r, err := w.store.Run(t.Context(), parted)
			if err != nil || r.LastSequence != 4 || r.Interrupt == nil || r.Interrupt.ResumedBy != resumed {
				t.Errorf("%+v, %v", r, err)
			}
		}},
		{"an end that nobody projected", statements(
			"UPDATE runs SET ended = 0, body = json_remove(json_set(body, '$.status', 'RUNNING'), '$.terminal', '$.endedAt', '$.output') WHERE id = '"+done+"'",
			held(sesDone, done, 1, ""),
		), 2, 0, func(t *testing.T, w *world) {
			b, err := w.store.Session(t.Context(), sesDone)
			if err != nil || b.Active != nil {
				t.Errorf("%+v, %v", b, err)
			}
		}},
		{"a conversation that an ended run holds, with a queue", statements(held(sesDone, done, 1, `, '$.queue', json('[{"run":"run_8next","pin":{"agentVersion":1,"harness":"scripted"}}]')`),
			`INSERT INTO runs SELECT 'run_8next', rev, environment, subject, 'ses_done', epoch, ord, agent, status, listed, ended, created,
			 json_set(body, '$.id', 'run_8next', '$.sessionId', 'ses_done'), ended_at, expired, pruning FROM runs WHERE id = '`+queued+`'`), 1, 0, func(t *testing.T, w *world) {
			b, err := w.store.Session(t.Context(), sesDone)
			if err != nil || b.Active == nil || b.Active.Run != "run_8next" || b.Active.Owner != "eng_repair" || b.Active.Gen != 4 || len(b.Queue) != 0 {
				t.Errorf("%+v, %v", b, err)
			}
		}},
		{"a log", statements("UPDATE chunks SET sha256 = zeroblob(32) WHERE run = '" + done + "' AND first = 2"), 0, 1, nil},
		{"a projection of a damaged log", statements("UPDATE chunks SET sha256 = zeroblob(32) WHERE run = '"+done+"' AND first = 2",
			"UPDATE runs SET body = json_set(body, '$.status', 'FAILED') WHERE id = '"+done+"'"), 0, 1, nil},
		{"a halted run that holds its conversation", statements(halt(done), held(sesDone, done, 1, ""),
			"UPDATE chunks SET sha256 = zeroblob(32) WHERE run = '"+done+"' AND first = 2"), 2, 1, func(t *testing.T, w *world) {
			b, err := w.store.Session(t.Context(), sesDone)
			if err != nil || b.Active != nil {
				t.Errorf("%+v, %v", b, err)
			}
			if r, err := w.store.Run(t.Context(), done); err != nil || r.Status != run.StatusFailed || r.Halted == nil || len(r.Terminal) == 0 {
				t.Errorf("%+v, %v", r, err)
			}
		}},
		{"a halted run whose log is whole", statements(halt(done), held(sesDone, done, 1, "")), 3, 0, nil},
		{"a run that was given up, and holds its conversation", statements(halt(done), held(sesDone, done, 1, ""),
			"UPDATE chunks SET sha256 = zeroblob(32) WHERE run = '"+done+"' AND first = 2",
			"UPDATE runs SET ended = 1, body = json_set(body, '$.status', 'FAILED') WHERE id = '"+done+"'"), 1, 1, func(t *testing.T, w *world) {
			if b, err := w.store.Session(t.Context(), sesDone); err != nil || b.Active != nil {
				t.Errorf("%+v, %v", b, err)
			}
		}},
		{"a state", remove("threads.sub"), 0, 1, nil},
		{"one of each", func(t *testing.T, dir string) {
			remove("threads.sub")(t, dir)
			set("runs", resumed, "$.endedAt", "'2020-01-01T00:00:00Z'")(t, dir)
		}, 1, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := copyOf(t, dir)
			test.damage(t, to)
			before := verify(t.Context(), t, to)
			written := logs(t, to)
			if r := repair(t, to, true); len(r.Changes) > test.changes || len(r.Changes) == 0 && test.changes > 0 || len(r.Refused) != test.refused {
				t.Fatalf("dry: %+v", r)
			}
			if after := verify(t.Context(), t, to); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Fatalf("a dry run changed something: %+v, before %+v", after, before)
			}
			r := repair(t, to, false)
			if len(r.Changes) != test.changes || len(r.Refused) != test.refused {
				t.Fatalf("%+v", r)
			}
			after := verify(t.Context(), t, to)
			if len(after.Findings) != test.refused || len(after.Unsettled) != 0 {
				t.Fatalf("after the repair: %+v", after)
			}
			if again := repair(t, to, false); len(again.Changes) != 0 || len(again.Refused) != test.refused {
				t.Fatalf("a second time: %+v", again)
			}
			if logs(t, to) != written {
				t.Fatal("the repair touched a log")
			}
			if test.check != nil {
				w := open(t, to)
				defer w.close()
				test.check(t, w)
			}
		})
	}
}

// halt is a run at work whose engine has found its log damaged.
func halt(runID string) string {
	return "UPDATE runs SET ended = 0, body = json_remove(json_set(body, '$.status', 'RUNNING', '$.halted', json('{\"at\":\"2026-01-01T00:00:00Z\",\"why\":\"x\"}')), " +
		"'$.terminal', '$.endedAt', '$.output') WHERE id = '" + runID + "'"
}
