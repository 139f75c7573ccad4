package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answering serves answers in turn, the last one again and again, and keeps what was asked.
func answering(t *testing.T, answers ...string) (*Client, *[]string) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked = append(asked, string(raw))
		a := answers[min(len(asked), len(answers))-1]
		if a == "" { // no answer at all
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, a)
	}))
	t.Cleanup(s.Close)
	c := New(Options{Target: Target{URL: s.URL}})
	t.Cleanup(c.Close)
	return c, &asked
}

func TestAgentByName(t *testing.T) {
	page := func(slug, next string) string {
		return `{"data":{"agents":{"edges":[{"node":{"id":"agt_` + slug + `","slug":"` + slug + `"}}],"pageInfo":{"hasNextPage":` + next + `,"endCursor":"c"}}}}`
	}
	c, asked := answering(t, page("one", "true"), page("two", "false"))
	if a, err := c.Agent(t.Context(), "two"); err != nil || a.ID != "agt_two" {
		t.Fatalf("got %+v, %v", a, err)
	}
	if len(*asked) != 2 || !strings.Contains((*asked)[1], `"after":"c"`) {
		t.Errorf("asked %q", *asked)
	}
	if _, err := c.Agent(t.Context(), "three"); Code(err) != CodeNotFound {
		t.Errorf("got %v, want %s", err, CodeNotFound)
	}
	c, _ = answering(t, `{"data":{"agent":null}}`)
	if _, err := c.Agent(t.Context(), "agt_x"); Code(err) != CodeNotFound {
		t.Errorf("got %v, want %s", err, CodeNotFound)
	}
}

func TestTranscriptAsksForTheEnd(t *testing.T) {
	c, asked := answering(t,
		`{"data":{"session":{"messages":{"edges":[{"node":{"text":"c"}},{"node":{"text":"d"}}],"pageInfo":{"hasPreviousPage":true}}}}}`)
	last, earlier, err := c.Transcript(t.Context(), "ses_x", 2)
	if err != nil || !earlier || len(last) != 2 || last[0].Text != "c" || last[1].Text != "d" {
		t.Errorf("got %+v, earlier ones %v, %v", last, earlier, err)
	}
	if len(*asked) != 1 || !strings.Contains((*asked)[0], `"last":2`) {
		t.Errorf("asked %q", *asked)
	}
}

func TestInterruptsOfBothKinds(t *testing.T) {
	c, _ := answering(t, `{"data":{"session":{"pendingInterrupt":{"__typename":"FormInterrupt","id":"int_a","runId":"run_a","revision":1,
		"status":"PENDING","expiresAt":"2026-05-04T12:30:00.000Z","formPrompt":"Who?","fields":[{"name":"who","kind":"string","required":true,"choices":[]}]}}}}`,
		`{"data":{"session":{"pendingInterrupt":{"__typename":"ToolApprovalInterrupt","id":"int_b","revision":2,"status":"PENDING",
		"callPrompt":null,"calls":[{"toolCallId":"c1","name":"rm","arguments":{"path":"a"},"allowed":["approve"]}]}}}}`,
		`{"data":{"session":{"pendingInterrupt":null}}}`,
		`{"data":{"session":{"pendingInterrupt":{"__typename":"RiddleInterrupt","id":"int_c"}}}}`)
	form, err := c.Pending(t.Context(), "ses_x")
	if err != nil || form.Kind != KindForm || form.Prompt != "Who?" || form.Fields[0].Name != "who" || form.Deadline == nil {
		t.Errorf("form: %+v, %v", form, err)
	}
	approval, err := c.Pending(t.Context(), "ses_x")
	if err != nil || approval.Kind != KindApproval || approval.Revision != 2 || string(approval.Calls[0].Arguments) != `{"path":"a"}` {
		t.Errorf("approval: %+v, %v", approval, err)
	}
	if none, err := c.Pending(t.Context(), "ses_x"); none != nil || err != nil {
		t.Errorf("none: %+v, %v", none, err)
	}
	if _, err := c.Pending(t.Context(), "ses_x"); err == nil || !strings.Contains(err.Error(), "RiddleInterrupt") {
		t.Errorf("unknown type: %v", err)
	}
}

// A decision has exactly one member, as @oneOf wants it.
func TestDecisionsEncodeToOneMember(t *testing.T) {
	for want, d := range map[string]any{
		`{"form":{"a":1}}`: Decision{Form: json.RawMessage(`{"a":1}`)},
		`{"dismiss":true}`: Decision{Dismiss: true},
		`{"calls":[{"toolCallId":"c","decision":{"approve":true}}]}`:                   Decision{Calls: []CallDecision{{"c", Verdict{Approve: true}}}},
		`{"calls":[{"toolCallId":"c","decision":{"edit":{"arguments":{}}}}]}`:          Decision{Calls: []CallDecision{{"c", Verdict{Edit: &Edit{json.RawMessage(`{}`)}}}}},
		`{"calls":[{"toolCallId":"c","decision":{"reject":{}}}]}`:                      Decision{Calls: []CallDecision{{"c", Verdict{Reject: &Reject{}}}}},
		`{"calls":[{"toolCallId":"c","decision":{"reject":{"message":"too early"}}}]}`: Decision{Calls: []CallDecision{{"c", Verdict{Reject: &Reject{"too early"}}}}},
	} {
		if got, err := json.Marshal(d); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	c, _ := answering(t, `{"data":{"startRun":{"__typename":"SessionBusy","code":"SESSION_BUSY","message":"busy","activeRunId":"run_a"}}}`)
	_, err := c.Start(t.Context(), StartInput{})
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.ActiveRunID != "run_a" || Passing(err) {
		t.Errorf("start: %v", err)
	}
	c, _ = answering(t, `{"data":{"resumeRun":{"__typename":"InterruptConflict","code":"INTERRUPT_CONFLICT","message":"late","status":"EXPIRED"}}}`)
	if _, err = c.Resume(t.Context(), Interrupt{}, Decision{Dismiss: true}); !errors.As(err, &refusal) || refusal.Status != "EXPIRED" {
		t.Errorf("resume: %v", err)
	}
	c, _ = answering(t, `{"data":{"resumeRun":{"__typename":"ResumeRunSuccess","run":null}}}`)
	if r, err := c.Resume(t.Context(), Interrupt{}, Decision{Dismiss: true}); r != nil || err != nil {
		t.Errorf("dismissed: %v, %v", r, err)
	}
}

// A lost answer is asked for again, with the same request.
func TestRetryRepeatsALostRequest(t *testing.T) {
	c, asked := answering(t, "", "", `{"data":{"startRun":{"__typename":"StartRunSuccess","run":{"id":"run_a"}}}}`)
	told := 0
	var run Run
	err := c.Retry(t.Context(), 0, func(error) { told++ }, func(ctx context.Context) (err error) {
		run, err = c.Start(ctx, StartInput{IdempotencyKey: "key"})
		return err
	})
	if err != nil || run.ID != "run_a" || told != 1 {
		t.Fatalf("got %v, %v, told %d times", run, err, told)
	}
	if len(*asked) != 3 || (*asked)[0] != (*asked)[2] {
		t.Errorf("asked %q", *asked)
	}
}

func TestRetryEnds(t *testing.T) {
	c, asked := answering(t, `{"errors":[{"message":"no","extensions":{"code":"BAD_USER_INPUT","field":"input.message.text"}}]}`)
	ask := func(ctx context.Context) error { return c.Do(ctx, "{ x }", nil, nil) }
	if err := c.Retry(t.Context(), 0, nil, ask); Code(err) != CodeBadUserInput || Field(err) != "input.message.text" || len(*asked) != 1 {
		t.Errorf("refused: %v after %d", err, len(*asked))
	}
	c, asked = answering(t, `{"errors":[{"message":"no","extensions":{"code":"UNAUTHENTICATED"}}]}`)
	if err := c.Retry(t.Context(), 0, nil, ask); Code(err) != CodeUnauthenticated || len(*asked) != 2 {
		t.Errorf("token: %v after %d", err, len(*asked))
	}
	c, _ = answering(t, "")
	if err := c.Retry(t.Context(), 300*time.Millisecond, nil, ask); !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), "gave up") {
		t.Errorf("patience: %v", err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := c.Retry(ctx, 0, func(error) { cancel(why) }, ask); !errors.Is(err, why) {
		t.Errorf("context: %v", err)
	}
}

func TestUpload(t *testing.T) {
	var kind, name, file, content string
	status, answer := http.StatusCreated, `{"id":"att_a","name":"a.txt","mediaType":"text/plain","size":2,"sha256":"x"}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reader, err := r.MultipartReader()
		if err != nil {
			t.Error(err)
			return
		}
		part, err := reader.NextPart()
		if err != nil {
			t.Error(err)
			return
		}
		raw, _ := io.ReadAll(part)
		kind, name, file, content = part.Header.Get("Content-Type"), part.FormName(), part.FileName(), string(raw)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	c := New(Options{Target: Target{URL: s.URL}})
	t.Cleanup(c.Close)
	a, err := c.Upload(t.Context(), `a".txt`, "text/plain", []byte("hi"))
	if err != nil || a.ID != "att_a" || a.Size != 2 {
		t.Fatalf("got %+v, %v", a, err)
	}
	if kind != "text/plain" || name != "file" || file != "a%22.txt" || content != "hi" {
		t.Errorf("sent %q %q %q %q", kind, name, file, content)
	}
	status, answer = http.StatusBadRequest, `{"code":"BAD_USER_INPUT","message":"is no text","field":"file"}`
	if _, err = c.Upload(t.Context(), "a", "text/plain", nil); Code(err) != CodeBadUserInput || Field(err) != "file" {
		t.Errorf("refused: %v", err)
	}
	status, answer = http.StatusBadGateway, `<html>`
	if _, err = c.Upload(t.Context(), "a", "text/plain", nil); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("no JSON: %v", err)
	}
}
