package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/store"
)

// attachmentDoc makes a new attachment document.
func attachmentDoc(id, name string) file.Attachment {
	return file.Attachment{
		ID: id, Environment: "dev", Owner: "alice", Name: name, MediaType: "text/plain", Size: 5, Hash: hashOf([]byte(id)), CreatedAt: when,
	}
}

func attachmentConflicts(t *testing.T, s Stores) {
	ctx := t.Context()
	a := attachmentDoc(fresh("att"), "notes.txt")
	_, err := s.Files.Attachment(ctx, a.ID)
	wantError(t, err, file.ErrNotFound)
	noError(t, s.Files.InsertAttachment(ctx, a))
	got, err := s.Files.Attachment(ctx, a.ID)
	noError(t, err)
	if got != a {
		t.Fatalf("got %+v, want %+v", got, a)
	}
	other := a
	other.Owner, other.Name = "bob", "other.txt"
	for _, again := range []file.Attachment{a, other} {
		wantError(t, s.Files.InsertAttachment(ctx, again), file.ErrExists)
	}
	if got, err := s.Files.Attachment(ctx, a.ID); err != nil || got != a {
		t.Fatalf("a refused insert left %+v, %v", got, err)
	}
	same := attachmentDoc(fresh("att"), "notes.txt") // the same content and name is another attachment
	same.Hash = a.Hash
	noError(t, s.Files.InsertAttachment(ctx, same))
	for range 10 {
		id := fresh("att")
		winner := oneWinner(t, outcomes(12, func(i int) error {
			return s.Files.InsertAttachment(ctx, attachmentDoc(id, fmt.Sprint(i)))
		}), is(file.ErrExists))
		if got, err := s.Files.Attachment(ctx, id); err != nil || got.Name != fmt.Sprint(winner) {
			t.Fatalf("%d won, but the document is %+v, %v", winner, got, err)
		}
	}
}

func attachmentText(t *testing.T, s Stores) {
	ctx := t.Context()
	check := func(fail fataler, name string) {
		a := attachmentDoc(fresh("att"), name)
		if err := s.Files.InsertAttachment(ctx, a); err != nil {
			fail.Fatalf("name %.40q is refused: %v", name, err)
		}
		if got, err := s.Files.Attachment(ctx, a.ID); err != nil || !reflect.DeepEqual(got, a) {
			fail.Fatalf("name %.40q came back as %.40q, %v", name, got.Name, err)
		}
	}
	for _, text := range hostile {
		check(t, text)
	}
	rapid.Check(t, func(rt *rapid.T) { check(rt, rapid.String().Draw(rt, "name")) })

	long := strings.Repeat("k", store.MaxKeyBytes+1)
	for _, bad := range []struct {
		field  string
		want   error
		change func(*file.Attachment)
	}{
		{"name", store.ErrInvalid, func(a *file.Attachment) { a.Name = "\xff" }},
		{"mediaType", store.ErrInvalid, func(a *file.Attachment) { a.MediaType = "a\xc3" }},
		{"id", store.ErrInvalid, func(a *file.Attachment) { a.ID = "" }},
		{"id", store.ErrTooLarge, func(a *file.Attachment) { a.ID = long }},
		{"environment", store.ErrInvalid, func(a *file.Attachment) { a.Environment = "" }},
		{"environment", store.ErrTooLarge, func(a *file.Attachment) { a.Environment = long }},
		{"owner", store.ErrInvalid, func(a *file.Attachment) { a.Owner = "a\nb" }},
		{"owner", store.ErrTooLarge, func(a *file.Attachment) { a.Owner = long }},
		{"hash", store.ErrInvalid, func(a *file.Attachment) { a.Hash = "" }},
		{"size", store.ErrInvalid, func(a *file.Attachment) { a.Size = -1 }},
		{"", store.ErrTooLarge, func(a *file.Attachment) { a.Name = strings.Repeat("x", store.MaxDocumentBytes) }},
	} {
		a := attachmentDoc(fresh("att"), "x")
		id := a.ID
		bad.change(&a)
		if err := s.Files.InsertAttachment(ctx, a); !errors.Is(err, bad.want) || !strings.Contains(err.Error(), bad.field) {
			t.Errorf("bad %s: %v, want %v", bad.field, err, bad.want)
		}
		_, err := s.Files.Attachment(ctx, id)
		wantError(t, err, file.ErrNotFound)
	}
}
