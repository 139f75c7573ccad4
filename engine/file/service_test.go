package file_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/store/files"
)

// drawer keeps documents of attachments.
type drawer struct {
	mu   sync.Mutex
	docs map[string]file.Attachment
	fail error
}

func (d *drawer) InsertAttachment(_ context.Context, a file.Attachment) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail == nil {
		d.docs[a.ID] = a
	}
	return d.fail
}

func (d *drawer) Attachment(_ context.Context, id string) (file.Attachment, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.docs[id]
	if !ok {
		return a, file.ErrNotFound
	}
	return a, d.fail
}

// full has no room.
type full struct{ blob.Store }

func (full) Put(context.Context, blob.Space, io.Reader, int64, string) (blob.Ref, error) {
	return blob.Ref{}, blob.ErrFull
}

var (
	alice = authz.Caller{Environment: "test", Subject: "alice"}
	at    = time.Date(2026, 5, 4, 12, 30, 0, 123_456_789, time.UTC)
)

func service(t *testing.T) (*file.Service, *drawer, *files.Store) {
	t.Helper()
	blobs, err := files.Open(t.Context(), files.Options{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	d := &drawer{docs: map[string]file.Attachment{}}
	s, err := file.NewService(file.Options{Files: d, Blobs: blobs, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	return s, d, blobs
}

const (
	png  = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00"
	jpeg = "\xff\xd8\xff\xe0\x00\x10JFIF"
	gif  = "GIF89a\x01\x00\x01\x00\x00\x00\x00"
	webp = "RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
)

func TestUploadJudgesTheContent(t *testing.T) {
	s, d, _ := service(t)
	for _, c := range []struct {
		name, declared, content string
		want, field             string // type, or the field that is refused
	}{
		{"a.png", "image/png", png, "image/png", ""},
		{"a.png", "", png, "image/png", ""},
		{"a.jpg", "image/jpeg", jpeg, "image/jpeg", ""},
		{"a.gif", "image/gif", gif, "image/gif", ""},
		{"a.webp", "image/webp", webp, "image/webp", ""},
		{"a.txt", "application/octet-stream", jpeg, "image/jpeg", ""},
		{"a.png", "image/png", jpeg, "", "mediaType"},
		{"a.txt", "text/plain", gif, "", "mediaType"},
		{"a.png", "image/png", "hello", "", "mediaType"},
		{"a.png", "image/png", png[:20], "", "mediaType"},
		{"a.webp", "image/webp", webp[:20], "", "mediaType"},
		{"a.svg", "image/svg+xml", "<svg/>", "", "mediaType"},
		{"a.html", "text/html", "<p>", "", "mediaType"},
		{"a.pdf", "application/pdf", "%PDF-1.7", "", "mediaType"},
		{"a.txt", "nonsense", "x", "", "mediaType"},
		{"a.txt", "text/plain; charset=latin1", "x", "", "mediaType"},
		{"a.txt", "text/plain; charset=UTF-8", "grüße\r\n\t", "text/plain", ""},
		{"a.md", "", "# hi", "text/markdown", ""},
		{"a.CSV", "", "a,b", "text/csv", ""},
		{"a.json", "", `{"a":1}`, "application/json", ""},
		{"a.json", "", `{"a":`, "", "body"},
		{"a.json", "application/json", "hello", "", "body"},
		{"a.md", "text/plain", "# hi", "text/plain", ""},
		{"a", "", "hello", "text/plain", ""},
		{"", "", "hello", "text/plain", ""},
		{"a.txt", "", "", "", "body"},
		{"a.txt", "", "\xff\xfe", "", "body"},
		{"a.txt", "", "a\x00b", "", "body"},
		{"a.txt", "", "\x1b[31m", "", "body"},
		{"a/b.txt", "", "x", "", "name"},
		{`a\b.txt`, "", "x", "", "name"},
		{"..", "", "x", "", "name"},
		{" ", "", "x", "", "name"},
		{"a\n.txt", "", "x", "", "name"},
		{"gpj\u202e.txt", "", "x", "", "name"},
		{"\xff.txt", "", "x", "", "name"},
		{strings.Repeat("x", 256), "", "x", "", "name"},
		{strings.Repeat("x", 255), "", "x", "text/plain", ""},
	} {
		before := len(d.docs)
		a, err := s.Upload(t.Context(), alice, file.Upload{Name: c.name, MediaType: c.declared, Body: iotest.OneByteReader(strings.NewReader(c.content))})
		if c.field != "" {
			p, ok := problem.As(err)
			if !ok || p.Code != problem.BadUserInput || strings.Join(p.Field, ".") != c.field || len(d.docs) != before {
				t.Errorf("%q as %q with %.10q: %v", c.name, c.declared, c.content, err)
			}
			continue
		}
		if err != nil || a.MediaType != c.want || a.Size != int64(len(c.content)) || a.Owner != "alice" || a.Environment != "test" || !a.CreatedAt.Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("%q as %q with %.10q: %+v, %v", c.name, c.declared, c.content, a, err)
			continue
		}
		back, r, err := s.Open(t.Context(), alice, a.ID)
		if err != nil || back != a {
			t.Errorf("%q back: %+v, %v", c.name, back, err)
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil || string(content) != c.content || r.Close() != nil {
			t.Errorf("%q back: %d bytes, %v", c.name, len(content), err)
		}
	}
}

func TestUploadIsBounded(t *testing.T) {
	s, d, blobs := service(t)
	most := bytes.Repeat([]byte("x"), file.MaxBytes)
	if a, err := s.Upload(t.Context(), alice, file.Upload{Body: bytes.NewReader(most)}); err != nil || a.Size != file.MaxBytes {
		t.Errorf("the most: %+v, %v", a.Size, err)
	}
	_, err := s.Upload(t.Context(), alice, file.Upload{Body: io.MultiReader(bytes.NewReader(most), strings.NewReader("x"))})
	if p, ok := problem.As(err); !ok || strings.Join(p.Field, ".") != "body" {
		t.Errorf("one more: %v", err)
	}
	cut := errors.New("cut off")
	if _, err := s.Upload(t.Context(), alice, file.Upload{Body: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(cut))}); !errors.Is(err, cut) || !problem.Is(err, problem.BadUserInput) {
		t.Errorf("cut off: %v", err)
	}
	if len(d.docs) != 1 {
		t.Errorf("%d documents", len(d.docs))
	}
	crowded, err := file.NewService(file.Options{Files: d, Blobs: full{blobs}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crowded.Upload(t.Context(), alice, file.Upload{Body: strings.NewReader("x")}); !problem.Is(err, problem.Capacity) {
		t.Errorf("no room: %v", err)
	}
	d.fail = errors.New("disk")
	if _, err := s.Upload(t.Context(), alice, file.Upload{Body: strings.NewReader("x")}); !errors.Is(err, d.fail) {
		t.Errorf("no document: %v", err)
	}
	if _, err := file.NewService(file.Options{Files: d}); err == nil {
		t.Error("a service without blobs")
	}
}

// An upload that cannot go on holds no others up for longer than its request lives, and waits no longer than its own.
func TestUploadsWaitForRoomInMemory(t *testing.T) {
	s, _, _ := service(t)
	var begun, ended sync.WaitGroup
	stop := make(chan struct{})
	for i := range 16 {
		begun.Add(1)
		ended.Go(func() {
			once := sync.OnceFunc(begun.Done)
			body := readerFunc(func(p []byte) (int, error) { once(); <-stop; return copy(p, "x"), io.EOF })
			who := authz.Caller{Environment: "test", Subject: string(rune('a' + i/4))}
			if _, err := s.Upload(context.Background(), who, file.Upload{Body: body}); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Upload(ctx, alice, file.Upload{Body: strings.NewReader("x")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the one too many: %v", err)
	}
	close(stop)
	ended.Wait()
	if _, err := s.Upload(t.Context(), alice, file.Upload{Body: strings.NewReader("x")}); err != nil {
		t.Error(err)
	}
}

// A caller whose uploads do not go on holds up nobody else.
func TestUploadsOfOneCallerLeaveRoom(t *testing.T) {
	s, _, _ := service(t)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	begun, stop := make(chan struct{}, 40), make(chan struct{})
	for range 40 {
		ended.Go(func() {
			body := readerFunc(func(p []byte) (int, error) { begun <- struct{}{}; <-stop; return copy(p, "x"), io.EOF })
			if _, err := s.Upload(ctx, alice, file.Upload{Body: body}); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for range 4 {
		<-begun
	}
	if _, err := s.Upload(t.Context(), authz.Caller{Environment: "test", Subject: "bob"}, file.Upload{Body: strings.NewReader("x")}); err != nil {
		t.Error(err)
	}
	cancel() // those that wait
	close(stop)
	ended.Wait()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestAttachmentsBelongToTheirOwner(t *testing.T) {
	s, d, blobs := service(t)
	put := func(who authz.Caller, content string) file.Attachment {
		t.Helper()
		a, err := s.Upload(t.Context(), who, file.Upload{Name: "a.txt", Body: strings.NewReader(content)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	mine, foreign := put(alice, "same"), put(authz.Caller{Environment: "test", Subject: "bob"}, "same")
	far := put(authz.Caller{Environment: "other", Subject: "alice"}, "same")
	if mine.Hash != foreign.Hash || mine.ID == foreign.ID {
		t.Errorf("%+v and %+v", mine, foreign)
	}
	for _, id := range []string{foreign.ID, far.ID, "att_none", "", "run_1", "../" + mine.ID} {
		if _, _, err := s.Open(t.Context(), alice, id); !problem.Is(err, problem.NotFound) {
			t.Errorf("opened %q: %v", id, err)
		}
		_, err := s.Check(t.Context(), alice, "input.message.attachments", []string{mine.ID, id})
		if p, ok := problem.As(err); !ok || p.Code != problem.BadUserInput || strings.Join(p.Field, ".") != "input.message.attachments[1]" {
			t.Errorf("checked %q: %v", id, err)
		}
	}
	if found, err := s.Check(t.Context(), alice, "a", []string{mine.ID}); err != nil || len(found) != 1 || found[0] != mine {
		t.Errorf("checked: %+v, %v", found, err)
	}
	if found, err := s.Check(t.Context(), alice, "a", nil); err != nil || len(found) != 0 {
		t.Errorf("checked nothing: %+v, %v", found, err)
	}
	for name, ids := range map[string][]string{"twice": {mine.ID, mine.ID}, "many": {"1", "2", "3", "4", "5", "6", "7", "8", "9"}} {
		if _, err := s.Check(t.Context(), alice, "a", ids); !problem.Is(err, problem.BadUserInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	big := strings.Repeat("x", 6<<20)
	if _, err := s.Check(t.Context(), alice, "a", []string{put(alice, big).ID, put(alice, big).ID}); !problem.Is(err, problem.BadUserInput) {
		t.Errorf("too large together: %v", err)
	}
	if err := blobs.Delete(t.Context(), blob.Attachments, mine.Hash); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Open(t.Context(), alice, mine.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("without its content: %v", err)
	}
	d.fail = errors.New("disk")
	if _, err := s.Check(t.Context(), alice, "a", []string{mine.ID}); !errors.Is(err, d.fail) {
		t.Errorf("a store that fails: %v", err)
	}
}

// Whatever comes in: it is refused with its field, or stored as a type that can be attached, and comes back as it was.
func FuzzUpload(f *testing.F) {
	for _, s := range []string{png, jpeg, gif, webp, "hello", "{}", "\xff", "a\x00"} {
		f.Add("a.txt", "", []byte(s))
		f.Add("a.json", "application/json", []byte(s))
		f.Add("a.png", "image/png", []byte(s))
	}
	blobs, err := files.Open(f.Context(), files.Options{Folder: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = blobs.Close() })
	s, err := file.NewService(file.Options{Files: &drawer{docs: map[string]file.Attachment{}}, Blobs: blobs})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, declared string, content []byte) {
		a, err := s.Upload(context.Background(), alice, file.Upload{Name: name, MediaType: declared, Body: bytes.NewReader(content)})
		if err != nil {
			if p, ok := problem.As(err); !ok || p.Code != problem.BadUserInput || len(p.Field) == 0 {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if file.MediaTypes[a.MediaType] == "" {
			t.Fatalf("stored as %q", a.MediaType)
		}
		_, r, err := s.Open(context.Background(), alice, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		back, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(back, content) || r.Close() != nil {
			t.Fatalf("%d bytes came back of %d: %v", len(back), len(content), err)
		}
	})
}
