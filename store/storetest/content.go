package storetest

import (
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
)

// contentUnused lists and removes attachments that no run names, and no other.
func contentUnused(t *testing.T, s Stores) {
	ctx := t.Context()
	attach := func(hash string, at time.Time) file.Attachment {
		a := file.Attachment{ID: fresh("att"), Environment: "dev", Owner: "alice", Name: "a", MediaType: "text/plain", Size: 1, Hash: hash, CreatedAt: at}
		noError(t, s.Files.InsertAttachment(ctx, a))
		return a
	}
	hashes := []string{fresh("hash"), fresh("hash")}
	unused := []file.Attachment{attach(hashes[0], when), attach(hashes[1], when.Add(time.Minute))}
	used, young := attach(hashes[0], when), attach(hashes[1], when.Add(time.Hour))
	r := runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", run.StatusAdmitting)
	r.Input.Attachments = []file.Attachment{used}
	noError(t, s.Runs.InsertRun(ctx, r))
	r.Rev, r.Status, r.Input.Attachments = 2, run.StatusRejected, nil // what was named once stays
	noError(t, s.Runs.UpdateRun(ctx, r))

	before := when.Add(30 * time.Minute)
	for after, want := "", unused; ; {
		got, err := s.Content.UnusedAttachments(ctx, before, after, 1)
		noError(t, err)
		if len(got) == 0 {
			if len(want) > 0 {
				t.Fatalf("%s was not listed", want[0].ID)
			}
			break
		}
		if len(want) == 0 || got[0] != want[0] {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		after, want = got[0].ID, want[1:]
	}
	for id, want := range map[string]bool{unused[0].ID: true, used.ID: false, fresh("att"): false} {
		if gone, err := s.Content.DeleteUnusedAttachment(ctx, id); err != nil || gone != want {
			t.Errorf("%s: removed %t (%v), want %t", id, gone, err, want)
		}
	}
	_, err := s.Files.Attachment(ctx, unused[0].ID)
	wantError(t, err, file.ErrNotFound)
	for _, id := range []string{used.ID, young.ID, unused[1].ID} {
		_, err := s.Files.Attachment(ctx, id)
		noError(t, err)
	}
	for hash, want := range map[string]bool{hashes[0]: true, hashes[1]: true, fresh("hash"): false} {
		if got, err := s.Content.ContentAttached(ctx, hash); err != nil || got != want {
			t.Errorf("content %s: attached %t (%v), want %t", hash, got, err, want)
		}
	}
}
