package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// picture is a real image.
func picture(t *testing.T, width int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 2))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// mark is what a foreign page cannot send without asking first.
var mark = http.Header{"X-Requested-With": {"e2e"}}

// put uploads a file as a raw body.
func put(t *testing.T, c *enginetest.Client, name, mediaType string, body []byte) enginetest.Answer {
	t.Helper()
	header := mark.Clone()
	if mediaType != "" {
		header.Set("Content-Type", mediaType)
	}
	if name != "" {
		header.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	}
	a, err := c.Send(t.Context(), http.MethodPost, "/v1/attachments", header, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAttachments uploads an image and a text, reads them back, sends them with a message, and finds them with the agent,
// in the run and in the transcript.
func TestAttachments(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		c := clientOf(t, sharedEngine(t))
		agent := newAgent(ctx, t, c, m.harness)
		files := []struct {
			name, mediaType string
			data            []byte
		}{
			{"picture.png", "image/png", picture(t, 3)},
			{"notes.md", "text/markdown", []byte("The password is swordfish.\n")},
		}
		var ids []string
		var want []enginetest.Attachment
		for _, f := range files {
			a, err := c.Upload(ctx, f.name, f.mediaType, f.data)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(f.data)
			w := enginetest.Attachment{ID: a.ID, Name: f.name, MediaType: f.mediaType, Size: int64(len(f.data)), SHA256: hex.EncodeToString(sum[:])}
			if a != w || !strings.HasPrefix(a.ID, "att_") {
				t.Fatalf("the upload gives %+v, want %+v", a, w)
			}
			back, err := c.Send(ctx, http.MethodGet, "/v1/attachments/"+a.ID, mark, nil)
			if err != nil || back.Status != http.StatusOK || !bytes.Equal(back.Body, f.data) ||
				!strings.HasPrefix(back.Header.Get("Content-Disposition"), "attachment") || back.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Fatalf("reading %s back gives %d %v (%v)", f.name, back.Status, back.Header, err)
			}
			ids, want = append(ids, a.ID), append(want, w)
		}
		r, err := c.Start(ctx, enginetest.StartInput{AgentID: agent.ID, ConversationID: "files", Message: enginetest.Input{Text: m.shown, Attachments: ids}})
		if err != nil {
			t.Fatal(err)
		}
		events, err := c.Follow(ctx, r.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantFinished(t, events)
		said := enginetest.Text(events)
		if _, err := c.Free(ctx, r.SessionID); err != nil {
			t.Fatal(err)
		}
		_, events = complete(ctx, t, c, agent.ID, "files", m.recall)
		wantFinished(t, events)
		m.seen(t, said+enginetest.Text(events), want)
		p, err := c.Place(ctx, r.ID)
		if err != nil || fmt.Sprint(p.Input.Attachments) != fmt.Sprint(want) {
			t.Fatalf("the run has the attachments %+v (%v), want %+v", p.Input.Attachments, err, want)
		}
		entries, err := c.Entries(ctx, r.SessionID, 100)
		if err != nil || len(entries) == 0 || fmt.Sprint(entries[0].Attachments) != fmt.Sprint(want) {
			t.Fatalf("the transcript is %+v (%v), want the attachments with its first message", entries, err)
		}
	})
}

// TestBadAttachments refuses what cannot be attached, by upload and by message, and names the field.
func TestBadAttachments(t *testing.T) {
	ctx := bounded(t)
	engine := sharedEngine(t)
	c := clientAs(t, engine, "attacher")
	agent := newAgent(ctx, t, c, scripted)
	img := picture(t, 3)

	uploads := []struct {
		name, file, mediaType string
		body                  []byte
		status                int
		field                 string
	}{
		{"nothing", "a.txt", "text/plain", nil, http.StatusBadRequest, "body"},
		{"another image type", "a.jpg", "image/jpeg", img, http.StatusUnsupportedMediaType, "mediaType"},
		{"text that is no image", "a.png", "image/png", []byte("hello"), http.StatusUnsupportedMediaType, "mediaType"},
		{"a type that is not taken", "a.html", "text/html", []byte("<p>"), http.StatusUnsupportedMediaType, "mediaType"},
		{"no text", "a.txt", "text/plain", []byte{0xff, 0xfe, 0x00}, http.StatusBadRequest, "body"},
		{"no JSON", "a.json", "application/json", []byte("{"), http.StatusBadRequest, "body"},
		{"a path", "../a.txt", "text/plain", []byte("hello"), http.StatusBadRequest, "name"},
		{"a long name", strings.Repeat("a", 300), "text/plain", []byte("hello"), http.StatusBadRequest, "name"},
		{"too much", "a.txt", "text/plain", bytes.Repeat([]byte("a"), 8<<20+1), http.StatusRequestEntityTooLarge, "body"},
		{"far too much", "a.txt", "text/plain", bytes.Repeat([]byte("a"), 9<<20), http.StatusRequestEntityTooLarge, "body"},
	}
	for _, u := range uploads {
		a := put(t, c, u.file, u.mediaType, u.body)
		if code, field := a.Problem(); a.Status != u.status || code != "BAD_USER_INPUT" || field != u.field {
			t.Errorf("%s: got %d %s at %q, want %d BAD_USER_INPUT at %s: %.200s", u.name, a.Status, code, field, u.status, u.field, a.Body)
		}
	}
	if a := put(t, c, "most.txt", "text/plain", bytes.Repeat([]byte("a"), 8<<20)); a.Status != http.StatusCreated {
		t.Errorf("as much as may be gives %d: %.200s", a.Status, a.Body)
	}
	nobody := enginetest.NewClient(engine.URL(), "")
	t.Cleanup(nobody.Close)
	if a := put(t, nobody, "a.txt", "text/plain", []byte("hello")); a.Status != http.StatusUnauthorized {
		t.Errorf("a caller without a token gets %d", a.Status)
	}

	upload := func(data []byte) string {
		t.Helper()
		a, err := c.Upload(ctx, "a.txt", "text/plain", data)
		if err != nil {
			t.Fatal(err)
		}
		return a.ID
	}
	small, large := upload([]byte("hello")), upload(bytes.Repeat([]byte("b"), 6<<20))
	second := upload(bytes.Repeat([]byte("c"), 6<<20))
	nine := make([]string, 9)
	for i := range nine {
		nine[i] = upload([]byte(fmt.Sprint("file ", i)))
	}
	stranger := clientAs(t, engine, "mallory")
	theirs, err := stranger.Upload(ctx, "secret.txt", "text/plain", []byte("hello")) // the same content as small
	if err != nil {
		t.Fatal(err)
	}
	const path = "input.message.attachments"
	for _, s := range []struct {
		name  string
		ids   []string
		field string
	}{
		{"an unknown one", []string{small, "att_01arz3ndektsv4rrffq69g5fav"}, path + "[1]"},
		{"no id", []string{"../../etc/passwd"}, path + "[0]"},
		{"somebody else's", []string{theirs.ID}, path + "[0]"},
		{"one twice", []string{small, small}, path + "[1]"},
		{"nine", nine, path},
		{"too much together", []string{large, second}, path},
	} {
		_, err := c.Start(ctx, enginetest.StartInput{AgentID: agent.ID, Message: enginetest.Input{Text: "hello", Attachments: s.ids}})
		if enginetest.Code(err) != "BAD_USER_INPUT" || enginetest.Field(err) != s.field {
			t.Errorf("a message with %s gives %v at %q, want BAD_USER_INPUT at %s", s.name, err, enginetest.Field(err), s.field)
		}
	}
	for name, who := range map[string]*enginetest.Client{"a stranger": c, "nobody": nobody} {
		a, err := who.Send(ctx, http.MethodGet, "/v1/attachments/"+theirs.ID, mark, nil)
		want := map[string]string{"a stranger": "NOT_FOUND", "nobody": "UNAUTHENTICATED"}[name]
		if code, _ := a.Problem(); err != nil || code != want || bytes.Contains(a.Body, []byte("hello")) {
			t.Errorf("somebody else's attachment gives %s %d %.200s (%v), want %s", name, a.Status, a.Body, err, want)
		}
	}
	if a, err := stranger.Send(ctx, http.MethodGet, "/v1/attachments/"+theirs.ID, mark, nil); err != nil || a.Status != http.StatusOK {
		t.Errorf("its owner gets %d (%v)", a.Status, err)
	}
	if n, err := c.Counts(ctx); err != nil || n.Runs != 0 {
		t.Errorf("there are %+v (%v), want no run", n, err)
	}
}
