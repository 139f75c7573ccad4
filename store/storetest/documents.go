package storetest

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store"
)

// hostile is text that stores have been known to change, cut, or run.
var hostile = []string{
	"", " ", "\x00", "a\x00b", "\x01\x02\x1b[31m\x7f", "\r\n\t", "\"", "\\", "\\u0000", `\ufffd`, "\ufffd", "</script>&amp;", "\u2028\u2029", "\ufeffBOM",
	"'; DROP TABLE runs; --", "%s%n?&#;", "$where", "a.b", "__proto__", "\u202eright to left\u202c", "e\u0301 \u00e9", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
	"\ufffe\uffff", "\U0010ffff", "\ue000", strings.Repeat("\U0001f600", 20000), "NaN", "null", "1e400", "\u0130\u0131\u1e9e",
}

// textDocuments makes one document of each kind that holds the text wherever a client may put text.
func textDocuments(text string) (session.Binding, run.Run, agent.Version) {
	b := binding(fresh("ses"), "dev", "alice", "agt_1")
	b.Key.ConversationID, b.LastOp, b.Queue = text, text, []session.Queued{{Run: text}}
	r := runDoc(fresh("run"), "dev", "alice", b.ID, "agt_1", run.StatusQueued)
	r.Input.Text, r.IdempotencyKey, r.Output = text, text, []run.Message{{ID: "msg_1", Text: text}}
	quoted, _ := json.Marshal(text)
	v := agent.Version{AgentID: fresh("agt"), Number: 1, CreatedAt: when, Blueprint: agent.Blueprint{
		Name: text, Description: text, Prompt: agent.Prompt{System: text, Variables: map[string]string{"v": text, text + "k": "v"}},
		Harness: agent.Harness{Options: json.RawMessage(`{"text":` + string(quoted) + `}`)},
	}}
	return b, r, v
}

// filled makes a document of which no field has its zero value, whatever fields it has.
func filled[T any]() (out T) {
	fill(reflect.ValueOf(&out).Elem())
	return out
}

func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes([]byte(`{"raw":[1]}`))
		return
	case time.Time:
		v.Set(reflect.ValueOf(when))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(elem)
		v.SetMapIndex(reflect.ValueOf("text").Convert(v.Type().Key()), elem)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	default:
		panic("no value for " + v.Type().String())
	}
}

// documentsEveryField: whatever a document has comes back, at once and after the backend was opened again.
func documentsEveryField(t *testing.T, s Stores) {
	ctx := t.Context()
	b, r, a, v, f := filled[session.Binding](), filled[run.Run](), filled[agent.Agent](), filled[agent.Version](), filled[file.Attachment]()
	b.Rev, r.Rev, a.Rev = 1, 1, 1
	r.Status = run.StatusFinished // the one that goes with the mark of retention
	noError(t, errors.Join(s.Sessions.InsertSession(ctx, b), s.Runs.InsertRun(ctx, r), s.Agents.InsertAgent(ctx, a),
		s.Agents.InsertVersion(ctx, v), s.Files.InsertAttachment(ctx, f)))
	for range 2 {
		gotB, errB := s.Sessions.Session(ctx, b.ID)
		gotR, errR := s.Runs.Run(ctx, r.ID)
		gotA, errA := s.Agents.Agent(ctx, a.ID)
		gotV, errV := s.Agents.Version(ctx, v.AgentID, v.Number)
		gotF, errF := s.Files.Attachment(ctx, f.ID)
		noError(t, errors.Join(errB, errR, errA, errV, errF))
		for _, pair := range [][2]any{{gotB, b}, {gotR, r}, {gotA, a}, {gotV, v}, {gotF, f}} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Fatalf("got  %+v\nwant %+v", pair[0], pair[1])
			}
		}
		s = s.reopen(t)
	}
}

// fataler is what *testing.T and *rapid.T share.
type fataler interface {
	Fatalf(format string, args ...any)
}

func roundTrip(t *testing.T, fail fataler, s Stores, text string) {
	ctx := t.Context()
	b, r, v := textDocuments(text)
	if err := errors.Join(s.Sessions.InsertSession(ctx, b), s.Runs.InsertRun(ctx, r), s.Agents.InsertVersion(ctx, v)); err != nil {
		fail.Fatalf("text %.40q is refused: %v", text, err)
	}
	gotB, errB := s.Sessions.Session(ctx, b.ID)
	gotR, errR := s.Runs.Run(ctx, r.ID)
	gotV, errV := s.Agents.Version(ctx, v.AgentID, 1)
	if err := errors.Join(errB, errR, errV); err != nil {
		fail.Fatalf("text %.40q cannot be read: %v", text, err)
	}
	if !reflect.DeepEqual(gotB, b) || !reflect.DeepEqual(gotR, r) || !reflect.DeepEqual(gotV, v) {
		fail.Fatalf("text %.40q came back changed", text)
	}
}

func documentsHostileText(t *testing.T, s Stores) {
	for _, text := range hostile {
		roundTrip(t, t, s, text)
	}
}

func documentsAnyText(t *testing.T, s Stores) {
	rapid.Check(t, func(rt *rapid.T) { roundTrip(t, rt, s, rapid.String().Draw(rt, "text")) })
}

// documentsRefusedText checks that text that cannot be kept as it is gets refused, with the field's name.
func documentsRefusedText(t *testing.T, s Stores) {
	ctx := t.Context()
	for _, bad := range []string{"\xff", "ok\xc3", "\xed\xa0\x80", "a\xf8b"} {
		if utf8.ValidString(bad) {
			t.Fatalf("%q is valid", bad)
		}
		b, r, v := textDocuments("ok")
		b.Key.ConversationID, r.Input.Text = bad, bad
		v.Blueprint.Prompt.Variables = map[string]string{"tone": bad}
		check := func(err error, field string) {
			t.Helper()
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), field) {
				t.Errorf("%q: got %v, want a refusal that names %s", bad, err, field)
			}
		}
		check(s.Sessions.InsertSession(ctx, b), "key.conversationId")
		check(s.Runs.InsertRun(ctx, r), "input.text")
		check(s.Agents.InsertVersion(ctx, v), `blueprint.prompt.variables."tone"`)
		r.Input.Text, r.Output = "ok", []run.Message{{}, {Text: bad}}
		check(s.Runs.InsertRun(ctx, r), "output[1].text")
		r.Output, r.Terminal = nil, json.RawMessage(`"`+bad+`"`)
		check(s.Runs.InsertRun(ctx, r), "terminal")
		r.Terminal, r.Subject = nil, bad
		check(s.Runs.InsertRun(ctx, r), "subject")
		_, err := s.Runs.Run(ctx, r.ID)
		wantError(t, err, run.ErrNotFound)
		_, err = s.Sessions.Session(ctx, b.ID)
		wantError(t, err, session.ErrNotFound)
	}
	r := runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", run.StatusQueued)
	for _, raw := range []string{"{", "", strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)} {
		r.Terminal = json.RawMessage(raw)
		if raw == "" {
			r.Terminal = json.RawMessage("x") // an empty one is left out like none
		}
		wantError(t, s.Runs.InsertRun(ctx, r), store.ErrInvalid)
	}
}

func documentsLimits(t *testing.T, s Stores) {
	ctx := t.Context()
	r := runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", run.StatusQueued)
	r.Input.Text = strings.Repeat("x", store.MaxDocumentBytes-2000)
	noError(t, s.Runs.InsertRun(ctx, r))
	got, err := s.Runs.Run(ctx, r.ID)
	noError(t, err)
	if len(got.Input.Text) != len(r.Input.Text) {
		t.Fatalf("a large document came back with %d bytes", len(got.Input.Text))
	}
	large := r
	large.Input.Text += strings.Repeat("x", 2000)
	large.Rev = 2
	wantError(t, s.Runs.UpdateRun(ctx, large), store.ErrTooLarge)
	large.ID, large.Rev = fresh("run"), 1
	wantError(t, s.Runs.InsertRun(ctx, large), store.ErrTooLarge)
	_, err = s.Runs.Run(ctx, large.ID)
	wantError(t, err, run.ErrNotFound)

	long := strings.Repeat("k", store.MaxKeyBytes+1)
	for field, change := range map[string]func(*run.Run){
		"id":          func(r *run.Run) { r.ID = long },
		"environment": func(r *run.Run) { r.Environment = long },
		"subject":     func(r *run.Run) { r.Subject = long },
		"sessionId":   func(r *run.Run) { r.SessionID = long },
		"agentId":     func(r *run.Run) { r.AgentID = long },
	} {
		bad := runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", run.StatusQueued)
		change(&bad)
		if err := s.Runs.InsertRun(ctx, bad); !errors.Is(err, store.ErrTooLarge) || !strings.Contains(err.Error(), field) {
			t.Errorf("long %s: got %v", field, err)
		}
	}
	_, err = s.Runs.Runs(ctx, run.Filter{Environment: "dev", Subject: long}, run.Position{}, 10)
	wantError(t, err, store.ErrTooLarge)
}

// documentsReopen checks that all of it is there after an ordinary end.
func documentsReopen(t *testing.T, s Stores) {
	ctx := t.Context()
	b, r, v := textDocuments("kept")
	a := agentDoc(fresh("agt"), "dev", fresh("owner"), "kept", agent.StateActive)
	c := MakeChunk(r.ID, 1, 3, 1, "eng_a", 0)
	noError(t, errors.Join(s.Sessions.InsertSession(ctx, b), s.Runs.InsertRun(ctx, r), s.Agents.InsertVersion(ctx, v),
		s.Agents.InsertAgent(ctx, a), s.Log.Append(ctx, c)))
	secret, err := s.Values.PutValueIfAbsent(ctx, "secret", []byte("first"))
	noError(t, err)

	before := s
	s = s.reopen(t)
	wantError(t, before.Log.Append(ctx, MakeChunk(r.ID, 4, 1, 1, "eng_a", 0)), store.ErrClosed)
	wantError(t, before.Runs.InsertRun(ctx, runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", run.StatusQueued)), store.ErrClosed)
	_, err = before.Runs.Run(ctx, r.ID)
	wantError(t, err, store.ErrClosed)

	gotB, errB := s.Sessions.Session(ctx, b.ID)
	gotR, errR := s.Runs.Run(ctx, r.ID)
	gotV, errV := s.Agents.Version(ctx, v.AgentID, 1)
	gotA, errA := s.Agents.Agent(ctx, a.ID)
	gotC, errC := s.Log.Get(ctx, r.ID, 1)
	noError(t, errors.Join(errB, errR, errV, errA, errC))
	if !reflect.DeepEqual([]any{gotB, gotR, gotV, gotA, gotC}, []any{b, r, v, a, c}) {
		t.Error("something changed by closing and opening")
	}
	again, err := s.Values.PutValueIfAbsent(ctx, "secret", []byte("second"))
	noError(t, err)
	if string(again) != string(secret) {
		t.Errorf("the value became %q", again)
	}
}
