package transport_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/blob"
)

// got is an answer of a path beside /graphql.
type got struct {
	status int
	header http.Header
	body   string
}

// json reads the answer's members.
func (g got) json() (m map[string]any) {
	_ = json.Unmarshal([]byte(g.body), &m)
	return m
}

// call sends a request as the subject; nobody for "". The header that keeps foreign pages out is set unless a test has
// one of its own.
func (w *world) call(subject, method, path string, header http.Header, body io.Reader) got {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, method, w.http.URL+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("X-Harness-Csrf", "1")
	for k, v := range header {
		req.Header[k] = v
	}
	if subject != "" {
		req.Header.Set("Authorization", "Bearer "+w.token(subject))
	}
	resp, err := w.http.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got{resp.StatusCode, resp.Header, string(content)}
}

func named(name, mediaType string) http.Header {
	h := http.Header{}
	if name != "" {
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	}
	if mediaType != "" {
		h.Set("Content-Type", mediaType)
	}
	return h
}

// part is one of a form: a file where it has a name.
type part struct{ field, name, mediaType, content string }

func form(parts ...part) (http.Header, io.Reader) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		disposition := fmt.Sprintf(`form-data; name=%q`, p.field)
		if p.name != "" {
			disposition += fmt.Sprintf(`; filename=%q`, p.name)
		}
		h.Set("Content-Disposition", disposition)
		if p.mediaType != "" {
			h.Set("Content-Type", p.mediaType)
		}
		out, _ := w.CreatePart(h) // a buffer takes every write
		_, _ = io.WriteString(out, p.content)
	}
	_ = w.Close()
	return http.Header{"Content-Type": {w.FormDataContentType()}}, &body
}

// upload stores a file and returns its id.
func (w *world) upload(subject, name, mediaType, content string) string {
	w.t.Helper()
	g := w.call(subject, http.MethodPost, "/v1/attachments", named(name, mediaType), strings.NewReader(content))
	id, _ := g.json()["id"].(string)
	if g.status != http.StatusCreated || id == "" {
		w.t.Fatalf("not stored: %d %s", g.status, g.body)
	}
	return id
}

func TestFilesGoInAndComeBack(t *testing.T) {
	w := newWorld(t, option{})
	const content = "grüße\n"
	sum := sha256.Sum256([]byte(content))
	header, body := form(part{"file", "notes.md", "text/markdown", content})
	for name, g := range map[string]got{
		"raw":  w.call("alice", http.MethodPost, "/v1/attachments", named("notes.md", "text/markdown"), strings.NewReader(content)),
		"form": w.call("alice", http.MethodPost, "/v1/attachments", header, body),
	} {
		m := g.json()
		if g.status != http.StatusCreated || m["name"] != "notes.md" || m["mediaType"] != "text/markdown" || m["size"] != float64(len(content)) || m["sha256"] != hex.EncodeToString(sum[:]) || len(m) != 5 {
			t.Fatalf("%s: %d %s", name, g.status, g.body)
		}
		back := w.call("alice", http.MethodGet, g.header.Get("Location"), nil, nil)
		if back.status != http.StatusOK || back.body != content || back.header.Get("Content-Type") != "text/markdown; charset=utf-8" ||
			back.header.Get("Content-Disposition") != "attachment; filename=notes.md" || back.header.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(back.header.Get("Content-Security-Policy"), "sandbox") || back.header.Get("Cache-Control") != "no-store" || back.header.Get("Content-Length") != fmt.Sprint(len(content)) {
			t.Errorf("%s back: %d %v %q", name, back.status, back.header, back.body)
		}
		// Of somebody else's there is nothing to know.
		for _, path := range []string{g.header.Get("Location"), "/v1/attachments/att_none", "/v1/attachments/x"} {
			if g := w.call("bob", http.MethodGet, path, nil, nil); g.status != http.StatusNotFound || g.json()["code"] != "NOT_FOUND" || g.json()["detail"] != "attachment not found" {
				t.Errorf("%s by a stranger: %d %s", path, g.status, g.body)
			}
		}
	}
	// A name may be anything that can be shown.
	g := w.call("alice", http.MethodPost, "/v1/attachments", http.Header{"Content-Disposition": {"attachment; filename*=UTF-8''%E2%82%AC%20%22q%22.txt"}}, strings.NewReader("x"))
	if g.json()["name"] != `€ "q".txt` {
		t.Errorf("named %s", g.body)
	}
	if g := w.call("alice", http.MethodGet, g.header.Get("Location"), nil, nil); g.status != http.StatusOK || strings.ContainsAny(g.header.Get("Content-Disposition"), "\r\n€") {
		t.Errorf("back: %d %v", g.status, g.header)
	}
}

func TestBadUploadsAreRefused(t *testing.T) {
	w := newWorld(t, option{})
	large := strings.Repeat("x", 8<<20+1)
	ask := func(header http.Header, body io.Reader) got {
		return w.call("alice", http.MethodPost, "/v1/attachments", header, body)
	}
	file := part{"file", "a.txt", "text/plain", "x"}
	asForm := func(parts ...part) got { h, b := form(parts...); return ask(h, b) }
	cutForm := func() got {
		h, b := form(part{"file", "a.txt", "text/plain", "hello"})
		raw, _ := io.ReadAll(b)
		return ask(h, bytes.NewReader(raw[:len(raw)-10]))
	}
	w.spy.take()
	for name, c := range map[string]struct {
		got    got
		status int
		field  string
	}{
		"empty":                 {ask(named("a.txt", "text/plain"), http.NoBody), 400, "body"},
		"too large":             {ask(named("a.txt", "text/plain"), strings.NewReader(large)), 413, "body"},
		"far too large":         {ask(named("a.txt", "text/plain"), strings.NewReader(large+large)), 413, "body"},
		"too large in a form":   {asForm(part{"file", "a.txt", "text/plain", large + large}), 413, "body"},
		"not what it is called": {ask(named("a.png", "image/png"), strings.NewReader("hello")), 415, "mediaType"},
		"a page":                {ask(named("a.html", "text/html"), strings.NewReader("<p>")), 415, "mediaType"},
		"binary":                {ask(named("a.txt", "text/plain"), strings.NewReader("\xff\xfe")), 400, "body"},
		"a path":                {ask(named("../a.txt", "text/plain"), strings.NewReader("x")), 400, "name"},
		"bad disposition":       {ask(http.Header{"Content-Disposition": {`attachment; filename="`}}, strings.NewReader("x")), 400, "name"},
		"two files":             {asForm(file, file), 400, "body"},
		"a field before":        {asForm(part{"note", "", "", "x"}, file), 400, "body"},
		"a field behind":        {asForm(file, part{"note", "", "", "x"}), 400, "body"},
		"no part":               {asForm(), 400, "body"},
		"no boundary":           {ask(http.Header{"Content-Type": {"multipart/form-data"}}, strings.NewReader("x")), 400, "body"},
		"another boundary":      {ask(http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, strings.NewReader("hello")), 400, "body"},
		"a form that is cut":    {cutForm(), 400, "body"},
	} {
		m := c.got.json()
		if c.got.status != c.status || m["code"] != "BAD_USER_INPUT" || m["field"] != c.field || m["status"] != float64(c.got.status) ||
			m["type"] != "about:blank" || c.got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", name, c.got.status, c.got.body)
		}
	}
	if ops := w.spy.take(); len(writes(ops)) > 0 {
		t.Errorf("written: %v", ops)
	}
	for name, c := range map[string]struct {
		subject, method, path string
		header                http.Header
		status                int
		code                  string
	}{
		"nobody":             {"", http.MethodPost, "/v1/attachments", nil, 401, "UNAUTHENTICATED"},
		"nobody reads":       {"", http.MethodGet, "/v1/attachments/att_1", nil, 401, "UNAUTHENTICATED"},
		"a bad token":        {"", http.MethodPost, "/v1/attachments", http.Header{"Authorization": {"Bearer x"}}, 401, "UNAUTHENTICATED"},
		"off the platform":   {"mallory", http.MethodPost, "/v1/attachments", nil, 403, "FORBIDDEN"},
		"a foreign page":     {"alice", http.MethodPost, "/v1/attachments", http.Header{"X-Harness-Csrf": nil}, 400, "BAD_USER_INPUT"},
		"a foreign page get": {"alice", http.MethodGet, "/v1/attachments/att_1", http.Header{"X-Harness-Csrf": nil}, 400, "BAD_USER_INPUT"},
		"a foreign origin":   {"alice", http.MethodPost, "/v1/attachments", http.Header{"Origin": {"https://evil.example"}}, 403, "FORBIDDEN"},
		"a method":           {"alice", http.MethodPut, "/v1/attachments", nil, 405, "BAD_USER_INPUT"},
		"delete":             {"alice", http.MethodDelete, "/v1/attachments/att_1", nil, 405, "BAD_USER_INPUT"},
	} {
		g := w.call(c.subject, c.method, c.path, c.header, strings.NewReader("x"))
		if g.status != c.status || g.json()["code"] != c.code || g.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", name, g.status, g.body)
		}
		if c.status == 405 && !strings.Contains(g.header.Get("Allow"), "OPTIONS") {
			t.Errorf("%s: allow %q", name, g.header.Get("Allow"))
		}
	}
	if ops := w.spy.take(); len(ops) > 0 {
		t.Errorf("the store was asked %v", ops)
	}
	if g := w.call("alice", http.MethodOptions, "/v1/attachments", nil, nil); g.status != http.StatusNoContent || !strings.Contains(g.header.Get("Access-Control-Allow-Headers"), "Content-Disposition") {
		t.Errorf("preflight: %d %v", g.status, g.header)
	}
	w.edge.Drain()
	if g := w.call("alice", http.MethodPost, "/v1/attachments", named("a.txt", "text/plain"), strings.NewReader("x")); g.status != http.StatusServiceUnavailable || g.json()["code"] != "CAPACITY" {
		t.Errorf("while it drains: %d %s", g.status, g.body)
	}
}

// A content that is damaged on the disk is never given as if it were whole.
func TestDamagedFilesAreCutOff(t *testing.T) {
	w := newWorld(t, option{})
	content := strings.Repeat("x", 1<<20)
	id := w.upload("alice", "a.txt", "text/plain", content)
	sum := sha256.Sum256([]byte(content))
	w.damage(blob.Attachments, hex.EncodeToString(sum[:]))
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.http.URL+"/v1/attachments/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Harness-Csrf", "1")
	req.Header.Set("Authorization", "Bearer "+w.token("alice"))
	resp, err := w.http.Client().Do(req)
	if err != nil {
		return // cut off before anything was sent
	}
	defer resp.Body.Close()
	if back, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
		t.Errorf("%d bytes came as if they were whole", len(back))
	}
}

// damage changes a byte of a stored content.
func (w *world) damage(space blob.Space, hash string) {
	w.t.Helper()
	damaged := 0
	err := filepath.WalkDir(filepath.Join(w.dir, "blobs", string(space)), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil || len(raw) == 0 {
			return err
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) == hash {
			damaged++
			raw[len(raw)/2] ^= 1
			return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, raw, 0o600))
		}
		return nil
	})
	if err != nil || damaged != 1 {
		w.t.Fatalf("%d files damaged: %v", damaged, err)
	}
}

func TestMessagesHaveAttachments(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	text, other := w.upload("alice", "a.md", "text/markdown", "# hi"), w.upload("alice", "b.csv", "text/csv", "a,b")
	picture := w.upload("alice", "a.png", "image/png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00")
	foreign := w.upload("bob", "a.md", "text/markdown", "# hi")
	start := func(ids ...any) reply {
		return w.ask("alice", startRun, vars{"input": vars{"agentId": a, "conversationId": "c", "message": vars{"text": "files", "attachments": ids}}})
	}
	r := start(text, other)
	runID, _ := r.at("startRun", "run", "id").(string)
	sessionID, _ := r.at("startRun", "run", "sessionId").(string)
	if runID == "" {
		t.Fatalf("not started: %+v", r)
	}
	w.subscribe("alice", runID, 0).toTheEnd()
	w.idle("alice", sessionID)
	r = w.must("alice", `query($r: ID!, $s: ID!) { run(id: $r) { input { attachments { id name mediaType size sha256 } } output { text } }
		session(id: $s) { messages { edges { node { attachments { id } } } } } }`, vars{"r": runID, "s": sessionID})
	if r.at("run", "input", "attachments", 0, "id") != text || r.at("run", "input", "attachments", 1, "mediaType") != "text/csv" || r.at("run", "input", "attachments", 1, "size") != 3.0 ||
		r.at("session", "messages", "edges", 0, "node", "attachments", 1, "id") != other || len(r.at("session", "messages", "edges", 1, "node", "attachments").([]any)) != 0 {
		t.Errorf("shown: %v", r.Data)
	}
	if r.at("run", "output", 0, "text") != "[a.md text/markdown 4][b.csv text/csv 3]" {
		t.Errorf("the harness got %v", r.at("run", "output"))
	}
	if r := start(picture); r.at("startRun", "__typename") != "HarnessRefused" || r.at("startRun", "code") != "CAPABILITY_UNSUPPORTED" {
		t.Errorf("an image for a harness that takes none: %+v", r)
	}
	for name, ids := range map[string][]any{"foreign": {text, foreign}, "missing": {text, "att_none"}, "twice": {text, text}, "no id": {text, ""}} {
		if r := start(ids...); r.code() != "BAD_USER_INPUT" || r.field() != "input.message.attachments[1]" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	many := make([]any, 9)
	for i := range many {
		many[i] = fmt.Sprint("att_", i)
	}
	if r := start(many...); r.code() != "BAD_USER_INPUT" || r.field() != "input.message.attachments" {
		t.Errorf("many: %+v", r)
	}
	// The same key with other attachments is another request.
	keyed := func(ids ...any) reply {
		return w.must("alice", startRun, vars{"input": vars{"agentId": a, "idempotencyKey": "k", "message": vars{"text": "files", "attachments": ids}}})
	}
	first := keyed(text).at("startRun", "run", "id")
	if r := keyed(text); first == nil || r.at("startRun", "run", "id") != first {
		t.Errorf("again: %v", r.Data)
	}
	if r := keyed(other); r.at("startRun", "__typename") != "IdempotencyConflict" {
		t.Errorf("with another file: %v", r.Data)
	}
}
