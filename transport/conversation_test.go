package transport_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/resolvers"
)

func (w *world) startBy(subject, agentID, conversation, text, policy string) reply {
	w.t.Helper()
	return w.must(subject, startRun, vars{"input": vars{"agentId": agentID, "conversationId": conversation, "message": vars{"text": text}, "busyPolicy": policy}})
}

const readQueue = `query($s: ID!) { session(id: $s) { status activeRunId lastActivity queue { id status queuePosition ord epoch } } }`

func TestRunsWaitForTheirTurn(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	first, sessionID := w.start("alice", a, "c", "wait")
	var queued []string
	for range 3 {
		id, _ := w.startBy("alice", a, "c", "answer", "ENQUEUE").at("startRun", "run", "id").(string)
		queued = append(queued, id)
	}
	order := func(r reply) (ids []any) {
		queue, _ := r.at("session", "queue").([]any)
		for i := range queue {
			if r.at("session", "queue", i, "status") != "QUEUED" || r.at("session", "queue", i, "queuePosition") != float64(i+1) || r.at("session", "queue", i, "ord") != nil {
				t.Errorf("place %d: %v", i+1, r.at("session", "queue", i))
			}
			ids = append(ids, r.at("session", "queue", i, "id"))
		}
		return ids
	}
	r := w.must("alice", readQueue, vars{"s": sessionID})
	if fmt.Sprint(order(r)) != fmt.Sprint(queued) || r.at("session", "status") != "RUNNING" || r.at("session", "activeRunId") != first {
		t.Errorf("queue: %v", r.Data)
	}
	if r := w.startBy("alice", a, "c", "answer", "REJECT"); r.at("startRun", "__typename") != "SessionBusy" || r.at("startRun", "activeRunId") != first {
		t.Errorf("not refused: %v", r.Data)
	}
	w.must("alice", `mutation($id: ID!) { cancelRun(runId: $id) { id } }`, vars{"id": queued[1]})
	if last := w.subscribe("alice", queued[1], 0).all(); len(last) != 2 || last[1]["type"] != "run.cancelled" {
		t.Errorf("cancelled while it waited: %v", last)
	}
	urgent, _ := w.startBy("alice", a, "c", "answer", "INTERRUPT").at("startRun", "run", "id").(string)
	if last := w.subscribe("alice", first, 0).toTheEnd(); last["type"] != "run.cancelled" || last["reason"] != "superseded" {
		t.Errorf("interrupted: %v", last)
	}
	for _, id := range []string{urgent, queued[0], queued[2]} {
		if last := w.subscribe("alice", id, 0).toTheEnd(); last["type"] != "run.finished" {
			t.Errorf("%s: %v", id, last)
		}
	}
	w.idle("alice", sessionID)
	r = w.must("alice", `query($s: ID!) { session(id: $s) { lastActivity queue { id } runs { edges { node { id ord endedAt queuePosition } } } } }`, vars{"s": sessionID})
	var ran []any
	edges, _ := r.at("session", "runs", "edges").([]any)
	var latest any
	for i := range edges {
		ran = append(ran, r.at("session", "runs", "edges", i, "node", "id"))
		if r.at("session", "runs", "edges", i, "node", "ord") != float64(i+1) || r.at("session", "runs", "edges", i, "node", "queuePosition") != nil {
			t.Errorf("run %d: %v", i, edges[i])
		}
		if at := r.at("session", "runs", "edges", i, "node", "endedAt"); latest == nil || at.(string) > latest.(string) {
			latest = at
		}
	}
	if want := []any{first, queued[1], urgent, queued[0], queued[2]}; fmt.Sprint(ran) != fmt.Sprint(want) {
		t.Errorf("they ran in order %v, want %v", ran, want)
	}
	if r.at("session", "lastActivity") != latest || len(r.at("session", "queue").([]any)) != 0 {
		t.Errorf("last activity %v, want %v", r.at("session", "lastActivity"), latest)
	}
}

const sessionEvents = `subscription($s: ID!, $after: SessionCursor) { sessionEvents(sessionId: $s, after: $after) { runId ord epoch through caughtUp events { sequence type runId } } }`

// feedBatch is one batch of sessionEvents.
type feedBatch struct {
	RunID    string
	Ord      int
	Epoch    int
	Through  string
	CaughtUp bool
	Events   []struct {
		Sequence int
		Type     string
	}
}

// payload reads the data of a next frame.
func (c *client) payload(into any) {
	c.w.t.Helper()
	f := c.next()
	var p struct {
		Data   json.RawMessage
		Errors []any
	}
	if f.Type != "next" || json.Unmarshal(f.Payload, &p) != nil || len(p.Errors) > 0 || json.Unmarshal(p.Data, into) != nil {
		c.w.t.Fatalf("frame %s %s", f.Type, f.Payload)
	}
}

func (w *world) feed(subject, sessionID string, after any) *client {
	w.t.Helper()
	c := w.connect(w.token(subject))
	c.send(frame{ID: "f", Type: "subscribe", Payload: raw(vars{"query": sessionEvents, "variables": vars{"s": sessionID, "after": after}})})
	return c
}

func (c *client) feedBatch() feedBatch {
	c.w.t.Helper()
	var data struct{ SessionEvents feedBatch }
	c.payload(&data)
	return data.SessionEvents
}

// One subscription follows a conversation through its runs, an interrupt and a clear, from any cursor.
func TestAConversationIsFollowed(t *testing.T) {
	w := newWorld(t, option{api: resolvers.Limits{BatchEvents: 2}})
	a := w.agent("alice", "helper")
	answered, sessionID := w.start("alice", a, "c", "answer")
	live := w.feed("alice", sessionID, nil)
	w.subscribe("alice", answered, 0).toTheEnd()
	w.idle("alice", sessionID)
	interrupted, _, interruptID := w.asked("alice", a, "c", "form")
	r := w.resume("alice", interruptID, 1, vars{"form": vars{"name": "Ada"}})
	resumed, _ := r.at("resumeRun", "run", "id").(string)
	w.subscribe("alice", resumed, 0).toTheEnd()
	w.idle("alice", sessionID)
	w.must("alice", `mutation($s: ID!) { clearSession(sessionId: $s) { epoch } }`, vars{"s": sessionID})
	cleared, _ := w.start("alice", a, "c", "answer")
	w.subscribe("alice", cleared, 0).toTheEnd()

	want := []string{answered, interrupted, resumed, cleared}
	type seen struct {
		at      string
		through string
	}
	follow := func(c *client, ord, sequence int) (all []seen) {
		for {
			b := c.feedBatch()
			if len(b.Events) == 0 || len(b.Events) > 2 || b.RunID != want[b.Ord-1] || b.Epoch != map[bool]int{true: 2, false: 1}[b.Ord == 4] {
				t.Fatalf("batch %+v", b)
			}
			for _, e := range b.Events {
				if b.Ord == ord && e.Sequence != sequence+1 || b.Ord != ord && (b.Ord != ord+1 || e.Sequence != 1) {
					t.Fatalf("%d of run %d follows %d of run %d", e.Sequence, b.Ord, sequence, ord)
				}
				ord, sequence = b.Ord, e.Sequence
				all = append(all, seen{fmt.Sprintf("%d/%d %s", b.Ord, e.Sequence, e.Type), b.Through})
			}
			if b.Ord == 4 && b.Events[len(b.Events)-1].Type == "run.finished" {
				if !b.CaughtUp {
					t.Error("not caught up at the end")
				}
				return all
			}
		}
	}
	whole := follow(live, 0, 0)
	for _, at := range []int{0, len(whole) / 3, len(whole) / 2, len(whole) - 3} {
		var ord, sequence int
		if _, err := fmt.Sscanf(whole[at].at, "%d/%d", &ord, &sequence); err != nil {
			t.Fatal(err)
		}
		// A batch's cursor stands behind all of the batch.
		for at+1 < len(whole) && whole[at+1].through == whole[at].through {
			at++
			_, _ = fmt.Sscanf(whole[at].at, "%d/%d", &ord, &sequence)
		}
		if rest := follow(w.feed("alice", sessionID, whole[at].through), ord, sequence); fmt.Sprint(rest) == "" || rest[len(rest)-1].at != whole[len(whole)-1].at || len(rest) != len(whole)-at-1 {
			t.Errorf("after %s: %d events, want %d", whole[at].at, len(rest), len(whole)-at-1)
		}
	}
	if got := whole[0].at; got != "1/1 run.started" {
		t.Errorf("it begins with %s", got)
	}

	other, otherSession := w.start("alice", a, "another", "answer")
	w.subscribe("alice", other, 0).toTheEnd()
	foreign := w.feed("alice", otherSession, nil).feedBatch().Through
	future := base64.RawURLEncoding.EncodeToString([]byte("sessionEvents\x00" + sessionID + "\x0099\x001"))
	for name, cursor := range map[string]any{"foreign": foreign, "future": future, "garbage": "x", "empty": "", "number": 7, "long": string(make([]byte, 2000))} {
		c := w.feed("alice", sessionID, cursor)
		if f := c.next(); f.Type != "error" || !json.Valid(f.Payload) || !containsCode(f, "BAD_USER_INPUT") {
			t.Errorf("%s cursor: %s %s", name, f.Type, f.Payload)
		}
	}
}

func containsCode(f frame, code string) bool {
	var errs []struct{ Extensions map[string]any }
	return json.Unmarshal(f.Payload, &errs) == nil && len(errs) > 0 && errs[0].Extensions["code"] == code
}

const sessionChanged = `subscription { sessionChanged { id status activeRunId queue { id } pendingInterrupt { id status } lastActivity } }`

type changedSession struct {
	ID               string
	Status           string
	Queue            []struct{ ID string }
	PendingInterrupt *struct{ ID, Status string }
}

// changes reads changes until one of the session says so; only the sessions that are the subject's may be among them.
func (c *client) changes(own []string, sessionID string, done func(changedSession) bool) changedSession {
	c.w.t.Helper()
	for {
		var data struct{ SessionChanged changedSession }
		c.payload(&data)
		s := data.SessionChanged
		if s.ID != sessionID && !slices.Contains(own, s.ID) {
			c.w.t.Errorf("told of %+v", s)
		}
		if s.ID == sessionID && done(s) {
			return s
		}
	}
}

func TestSessionsAreToldAsTheyChange(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	w.share(a, "bob")
	watch := func(subject string) *client {
		c := w.connect(w.token(subject))
		c.send(frame{ID: "c", Type: "subscribe", Payload: raw(vars{"query": sessionChanged})})
		return c
	}
	alice, bob := watch("alice"), watch("bob")
	// Nothing says when a subscription stands: it does when it tells of something.
	stands := func(c *client, subject string) string {
		run, sessionID := w.start(subject, a, "warm-"+subject, "wait")
		told := make(chan struct{})
		go func() {
			defer close(told)
			c.changes(nil, sessionID, func(s changedSession) bool { return s.Status == "IDLE" })
		}()
		for seen := 100 * time.Millisecond; ; seen *= 2 { // for so long it stays
			w.must(subject, `mutation($id: ID!) { cancelRun(runId: $id) { id } }`, vars{"id": run})
			w.idle(subject, sessionID)
			select {
			case <-told:
				return sessionID
			case <-time.After(seen):
				run, _ = w.start(subject, a, "warm-"+subject, "wait")
			}
		}
	}
	quiet := stands(bob, "bob")
	warm := []string{stands(alice, "alice")}

	_, sessionID := w.start("alice", a, "c", "approval")
	s := alice.changes(warm, sessionID, func(s changedSession) bool { return s.Status == "INTERRUPTED" })
	if s.PendingInterrupt == nil || s.PendingInterrupt.Status != "PENDING" {
		t.Errorf("asked: %+v", s)
	}
	w.resume("alice", s.PendingInterrupt.ID, 1, vars{"dismiss": true})
	if s := alice.changes(warm, sessionID, func(s changedSession) bool { return s.Status == "IDLE" }); s.PendingInterrupt != nil {
		t.Errorf("dismissed: %+v", s)
	}
	first, _ := w.start("alice", a, "c", "wait")
	queued := w.startBy("alice", a, "c", "answer", "ENQUEUE")
	second := queued.at("startRun", "run", "id")
	if second == nil {
		t.Fatalf("not queued: %+v", queued)
	}
	if s := alice.changes(warm, sessionID, func(s changedSession) bool { return len(s.Queue) == 1 }); s.Queue[0].ID != second || s.Status != "RUNNING" {
		t.Errorf("queued: %+v", s)
	}
	w.must("alice", `mutation($id: ID!) { cancelRun(runId: $id) { id } }`, vars{"id": first})
	alice.changes(warm, sessionID, func(s changedSession) bool { return s.Status == "IDLE" && len(s.Queue) == 0 })

	// Bob was told of nothing of that; the next that he hears is his own.
	w.start("bob", a, "warm-bob", "answer")
	bob.changes(nil, quiet, func(s changedSession) bool { return s.Status == "IDLE" })
}

// Whoever is put off the platform, or loses a session, is not told any more.
func TestStreamsOfConversationsEndWithThePermission(t *testing.T) {
	w := newWorld(t, option{maxAge: shortAge})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	feed := w.feed("alice", l.session, nil)
	if b := feed.feedBatch(); b.RunID != l.id {
		t.Errorf("got %+v", b)
	}
	changes := w.connect(w.token("alice"))
	changes.send(frame{ID: "c", Type: "subscribe", Payload: raw(vars{"query": sessionChanged})})
	if err := w.client.Apply(w.ctx, authz.Platform(), authz.PlatformTuples([]string{"ada"}, []string{"bob"}, false)); err != nil {
		t.Fatal(err)
	}
	if f := changes.next(); f.Type != "error" || !containsCode(f, "FORBIDDEN") {
		t.Errorf("put off the platform: %s %s", f.Type, f.Payload)
	}
	l.disown()
	if f := feed.next(); f.Type != "error" || !containsCode(f, "FORBIDDEN") {
		t.Errorf("without the session: %s %s", f.Type, f.Payload)
	}
}

// disown gives the session to somebody else.
func (l *log) disown() {
	l.w.t.Helper()
	b, err := l.w.spy.Store.Session(l.w.ctx, l.session)
	if err == nil {
		b.Rev++
		b.Key.Subject = "bob"
		err = l.w.spy.Store.UpdateSession(l.w.ctx, b)
	}
	if err != nil {
		l.w.t.Fatal(err)
	}
}
