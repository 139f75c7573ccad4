package storetest

import (
	"errors"
	"reflect"
	"testing"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// faultUnknown breaks a commit so that its outcome is unknown: the caller is told so, and the same chunk under the
// same key resolves it, whichever it was.
func faultUnknown(t *testing.T, s Stores, durable bool) {
	if s.Faults.FailCommit == nil {
		t.Skip("the backend cannot fail a commit")
	}
	ctx, id := t.Context(), fresh("run")
	before, c := MakeChunk(id, 1, 2, 1, "eng_a", 0), MakeChunk(id, 3, 4, 1, "eng_a", 0)
	noError(t, s.Log.Append(ctx, before))
	s.Faults.FailCommit(durable)
	wantError(t, s.Log.Append(ctx, c), event.ErrUnknownOutcome)

	s = s.reopen(t)
	got, err := s.Log.Get(ctx, id, 3)
	switch {
	case durable && err != nil:
		t.Fatalf("a durable commit is lost: %v", err)
	case durable && !reflect.DeepEqual(got, c):
		t.Fatalf("a durable commit holds %+v", got)
	case !durable:
		wantError(t, err, event.ErrEmpty)
	}
	if err := s.Log.Append(ctx, c); isDuplicate(err) != durable || !durable && err != nil {
		t.Fatalf("the retry got %v", err)
	}
	if all := readAll(ctx, t, s.Log, id, 100); !reflect.DeepEqual(all, []event.Chunk{before, c}) {
		t.Fatalf("the log is %+v", all)
	}
}

func faultUnknownDocuments(t *testing.T, s Stores) {
	if s.Faults.FailCommit == nil {
		t.Skip("the backend cannot fail a commit")
	}
	ctx := t.Context()
	b, r, v := textDocuments("text")
	a := agentDoc(fresh("agt"), "dev", fresh("owner"), "slug", agent.StateActive)
	noError(t, errors.Join(s.Sessions.InsertSession(ctx, b), s.Runs.InsertRun(ctx, r), s.Agents.InsertAgent(ctx, a), s.Agents.InsertVersion(ctx, v)))
	next, f := v, attachmentDoc(fresh("att"), "name")
	next.Number = 2
	b2, r2, a2 := b, r, a
	b2.ID, r2.ID, a2.ID, a2.Slug = fresh("ses"), fresh("run"), fresh("agt"), "other"
	b.Rev, r.Rev, a.Rev = 2, 2, 2
	b.LastOp, r.LastSequence, a.LastOp = "op_new", 9, "op_new"
	for name, test := range map[string]struct {
		write func() error
		want  error
	}{
		"insert session": {func() error { return s.Sessions.InsertSession(ctx, b2) }, session.ErrUnknownOutcome},
		"update session": {func() error { return s.Sessions.UpdateSession(ctx, b) }, session.ErrUnknownOutcome},
		"insert run":     {func() error { return s.Runs.InsertRun(ctx, r2) }, run.ErrUnknownOutcome},
		"update run":     {func() error { return s.Runs.UpdateRun(ctx, r) }, run.ErrUnknownOutcome},
		"insert agent":   {func() error { return s.Agents.InsertAgent(ctx, a2) }, agent.ErrUnknownOutcome},
		"update agent":   {func() error { return s.Agents.UpdateAgent(ctx, a) }, agent.ErrUnknownOutcome},
		"insert file":    {func() error { return s.Files.InsertAttachment(ctx, f) }, file.ErrUnknownOutcome},
		"insert version": {func() error { return s.Agents.InsertVersion(ctx, next) }, agent.ErrUnknownOutcome},
	} {
		noError(t, s.Log.Append(ctx, MakeChunk(fresh("run"), 1, 1, 1, "eng_a", 0)))
		s.Faults.FailCommit(true)
		if err := test.write(); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
		s = s.reopen(t)
	}
	// All of them were durable: whoever reads again finds the mark of its own operation.
	gotB, errB := s.Sessions.Session(ctx, b.ID)
	gotR, errR := s.Runs.Run(ctx, r.ID)
	gotA, errA := s.Agents.Agent(ctx, a.ID)
	last, errV := s.Agents.LastVersion(ctx, v.AgentID)
	gotF, errF := s.Files.Attachment(ctx, f.ID)
	noError(t, errors.Join(errB, errR, errA, errV, errF))
	if gotF != f {
		t.Errorf("a durable attachment is %+v", gotF)
	}
	if gotB.LastOp != "op_new" || gotR.LastSequence != 9 || gotA.LastOp != "op_new" || last != 2 {
		t.Error("a durable update is lost")
	}
	wantError(t, s.Sessions.InsertSession(ctx, b2), session.ErrExists)
	wantError(t, s.Runs.InsertRun(ctx, r2), run.ErrExists)
	wantError(t, s.Agents.InsertAgent(ctx, a2), agent.ErrExists)
	wantError(t, s.Files.InsertAttachment(ctx, f), file.ErrExists)
}

// faultDiskFull fills the disk: writes say so and write nothing, reads go on, and when there is room all goes on.
func faultDiskFull(t *testing.T, s Stores) {
	if s.Faults.FillDisk == nil {
		t.Skip("the backend cannot fill its disk")
	}
	ctx, id := t.Context(), fresh("run")
	first, second := MakeChunk(id, 1, 2, 1, "eng_a", 0), MakeChunk(id, 3, 1, 1, "eng_a", 0)
	noError(t, s.Log.Append(ctx, first))
	b, r, _ := textDocuments("text")
	f := attachmentDoc(fresh("att"), "name")
	s.Faults.FillDisk()
	for range 3 {
		for _, err := range outcomes(8, func(i int) error {
			if i == 0 {
				return s.Log.Append(ctx, second)
			}
			return s.Log.Append(ctx, MakeChunk(fresh("run"), 1, 1, 1, "eng_a", 5000))
		}) {
			wantError(t, err, event.ErrDiskFull)
		}
		wantError(t, s.Sessions.InsertSession(ctx, b), event.ErrDiskFull)
		wantError(t, s.Runs.InsertRun(ctx, r), event.ErrDiskFull)
		wantError(t, s.Files.InsertAttachment(ctx, f), event.ErrDiskFull)
		if all := readAll(ctx, t, s.Log, id, 100); !reflect.DeepEqual(all, []event.Chunk{first}) {
			t.Fatalf("with a full disk the log is %+v", all)
		}
	}
	s.Faults.FreeDisk()
	noError(t, errors.Join(s.Log.Append(ctx, second), s.Sessions.InsertSession(ctx, b), s.Runs.InsertRun(ctx, r), s.Files.InsertAttachment(ctx, f)))
	s = s.reopen(t)
	if all := readAll(ctx, t, s.Log, id, 100); !reflect.DeepEqual(all, []event.Chunk{first, second}) {
		t.Fatalf("after the disk was full the log is %+v", all)
	}
}
