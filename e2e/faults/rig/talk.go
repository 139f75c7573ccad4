package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/e2e/faults/plan"
	"github.com/harness-engine/harness-engine/internal/client"
)

// Harnesses of the conversations.
const (
	scripted   = "scripted"
	deepagents = "deepagents"
)

// Times of a client.
const (
	retryPause = 60 * time.Millisecond
	callLimit  = 30 * time.Second // of one request
	waitLook   = 700 * time.Millisecond
	chainMost  = 4 // decisions in a row
)

// talk is one conversation with everybody who takes part in it from outside: who asks, and who listens.
type talk struct {
	n       int
	rig     *Rig
	spec    *plan.Talk
	agent   string
	clients []*enginetest.Client // one a replica
	cancel  context.CancelFunc
	done    chan struct{} // closed when the last turn is over and everybody has heard everything

	mu      sync.Mutex
	r       *rand.Rand // where to go: no part of the plan, since it is drawn at each reconnect
	session string
	asks    []*judge.Ask
	views   []*watcher
	runs    map[string]bool // acknowledged
	whole   *sessionWatcher
	doing   string
}

func newTalk(ctx context.Context, r *Rig, n int) (*talk, error) {
	t := &talk{n: n, rig: r, spec: r.o.Plan.Talk(n), done: make(chan struct{}), runs: map[string]bool{},
		r: rand.New(rand.NewPCG(r.o.Plan.Options.Seed, uint64(n)))}
	named, err := r.replicas[0].engine.ClientAs(ctx, fmt.Sprintf("talker-%d", n))
	if err != nil {
		return nil, err
	}
	for _, p := range r.replicas {
		t.clients = append(t.clients, enginetest.NewClient(p.proxy.url(), named.Target().Token))
	}
	harness := scripted
	if t.spec.Node {
		harness = deepagents
	}
	a, err := t.clients[0].NewAgent(ctx, fmt.Sprintf("talk-%d", n), harness)
	if err != nil {
		return nil, err
	}
	t.agent = a.ID
	return t, nil
}

func (t *talk) begin(ctx context.Context) {
	ctx, t.cancel = context.WithCancel(ctx)
	go func() {
		defer close(t.done)
		for ctx.Err() == nil && !t.rig.ending.Load() {
			t.turn(ctx, t.spec.Next())
		}
		t.say("waiting for the conversation to be free")
		t.free(ctx)
		t.say("waiting for those who listen to the whole conversation")
		if w := t.listener(); w != nil {
			w.finish(ctx)
		}
		t.say("done")
	}()
}

func (t *talk) stop() {
	if t.cancel != nil {
		t.cancel()
		<-t.done
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.views {
		<-w.done
	}
	if t.whole != nil {
		<-t.whole.done
	}
	for _, c := range t.clients {
		c.Close()
	}
}

func (t *talk) say(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doing = what
}

// describe says what it does now.
func (t *talk) describe() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var open []string
	for _, w := range t.views {
		if !w.ended() {
			open = append(open, fmt.Sprintf("%s at %d (%s)", w.run, w.last(), w.state()))
		}
	}
	return fmt.Sprintf("%s; listened to: %s", t.doing, strings.Join(open, ", "))
}

// count is how many runs it began, how many of them somebody still listens to, and how many events were seen.
func (t *talk) count() (runs, open int, events int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	working := map[string]bool{}
	for _, w := range t.views {
		if !w.ended() {
			working[w.run] = true
		}
		events += w.last()
	}
	return len(t.runs), len(working), events
}

func (t *talk) sessionID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}

func (t *talk) listener() *sessionWatcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.whole
}

// somewhere is a replica to turn to, another one than before where there are several.
func (t *talk) somewhere(before int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.clients) == 1 {
		return 0
	}
	if before < 0 {
		return t.r.IntN(len(t.clients))
	}
	return (before + 1 + t.r.IntN(len(t.clients)-1)) % len(t.clients)
}

// turn plays one turn to its end: until every run that it began has ended, and every question is settled.
func (t *talk) turn(ctx context.Context, turn plan.Turn) {
	t.say("turn " + turn.First.Key)
	var mu sync.Mutex
	var runs []*watcher
	ask := func(a plan.Ask) {
		if w := t.ask(ctx, a, turn.Leave); w != nil {
			mu.Lock()
			defer mu.Unlock()
			runs = append(runs, w)
		}
	}
	ask(turn.First)
	var meanwhile sync.WaitGroup
	if turn.Rival != nil && pause(ctx, turn.Rest) {
		meanwhile.Go(func() { ask(*turn.Rival) })
	}
	mu.Lock()
	first := append([]*watcher(nil), runs...)
	mu.Unlock()
	if turn.Cancel > 0 && len(first) > 0 {
		meanwhile.Go(func() {
			if pause(ctx, turn.Cancel) {
				t.until(ctx, func(ctx context.Context, c *enginetest.Client) error {
					_, err := c.Cancel(ctx, first[0].run)
					return err
				})
			}
		})
	}
	if s := t.sessionID(); turn.Clear > 0 && s != "" {
		meanwhile.Go(func() {
			if pause(ctx, turn.Clear) {
				t.until(ctx, func(ctx context.Context, c *enginetest.Client) error { _, err := c.Clear(ctx, s); return err })
			}
		})
	}
	meanwhile.Wait()
	for depth := 0; len(runs) > 0 && depth < chainMost; depth++ {
		var next []*watcher
		for _, w := range runs {
			t.say("waiting for run " + w.run)
			if !t.await(ctx, w) {
				return
			}
			if q := w.question(); q != nil && turn.Decision != plan.Supersede {
				t.say("deciding " + q.ID)
				if on := t.decide(ctx, *q, turn); on != nil {
					next = append(next, on)
				}
			}
		}
		runs = next
	}
}

// await waits for the end of a run. A question that nobody is going to answer, and behind which the run waits, is dismissed.
func (t *talk) await(ctx context.Context, w *watcher) bool {
	for {
		select {
		case <-w.done:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(waitLook):
		}
		limited, cancel := context.WithTimeout(ctx, callLimit)
		now, err := t.clients[t.somewhere(-1)].Talk(limited, t.sessionID())
		cancel()
		if err == nil && now.Pending != nil && now.ActiveRunID == "" && len(now.Queue) > 0 {
			t.decide(ctx, *now.Pending, plan.Turn{Decision: plan.Dismiss})
		}
	}
}

// answerOf is a decided answer to a request, or false where it only has to be made again.
func answerOf(run string, err error) (judge.Answer, bool) {
	var refusal *enginetest.Refusal
	switch {
	case err == nil:
		return judge.Answer{Run: run}, true
	case errors.As(err, &refusal):
		return judge.Answer{Code: refusal.Code}, refusal.Code != "CAPACITY" && !strings.HasPrefix(refusal.Code, "HARNESS_")
	case client.Passing(err) || errors.Is(err, context.DeadlineExceeded) || enginetest.Code(err) == "":
		return judge.Answer{}, false
	}
	return judge.Answer{Code: enginetest.Code(err)}, true
}

// ask starts a run, as often as it takes to get an answer, and follows it. Nil where it was refused.
func (t *talk) ask(ctx context.Context, a plan.Ask, leave int) *watcher {
	in := enginetest.StartInput{
		AgentID: t.agent, ConversationID: "talk", Message: enginetest.Input{Text: a.Message}, IdempotencyKey: a.Key, BusyPolicy: a.Policy,
	}
	record := t.record(a.Key)
	var session string
	var mu sync.Mutex
	start := func(in enginetest.StartInput, into *[]judge.Answer) string {
		x := t.answered(ctx, func(ctx context.Context, c *enginetest.Client) (string, error) {
			r, err := c.Start(ctx, in)
			if err == nil {
				mu.Lock()
				session = r.SessionID
				mu.Unlock()
			}
			return r.ID, err
		})
		if x != (judge.Answer{}) {
			mu.Lock()
			*into = append(*into, x)
			mu.Unlock()
		}
		return x.Run
	}
	var both sync.WaitGroup
	if a.Twice {
		both.Go(func() { start(in, &record.Answers) })
	}
	run := start(in, &record.Answers)
	both.Wait()
	if a.Differ && len(record.Answers) > 0 {
		other := in
		other.Message.Text = enginetest.Script(enginetest.Say("another request under the key"))
		start(other, &record.Differ)
	}
	if run == "" {
		return nil
	}
	return t.follow(ctx, run, session, leave)
}

// decide answers a question and follows the run that goes on. Nil where nothing does.
func (t *talk) decide(ctx context.Context, q enginetest.Interrupt, turn plan.Turn) *watcher {
	record := t.record(q.ID)
	var mu sync.Mutex
	resume := func(d enginetest.Decision, into *[]judge.Answer) string {
		x := t.answered(ctx, func(ctx context.Context, c *enginetest.Client) (string, error) {
			r, err := c.Resume(ctx, q, d)
			var refusal *enginetest.Refusal
			if errors.As(err, &refusal) && refusal.Code == "SESSION_BUSY" { // it settles still
				return "", client.ErrCut
			}
			if err == nil && r == nil {
				return "dismissed", nil
			}
			if err != nil {
				return "", err
			}
			return r.ID, nil
		})
		if x != (judge.Answer{}) {
			mu.Lock()
			*into = append(*into, x)
			mu.Unlock()
		}
		return x.Run
	}
	d := decision(q, turn.Decision)
	if d.Dismiss { // an answer without a run; what is checked is that nothing goes on
		resume(d, new([]judge.Answer))
		return nil
	}
	var both sync.WaitGroup
	if turn.Doubly {
		both.Go(func() { resume(d, &record.Answers) })
	}
	run := resume(d, &record.Answers)
	both.Wait()
	if turn.Contradict && run != "" {
		other := plan.Refuse
		if turn.Decision == plan.Refuse {
			other = plan.Approve
		}
		if q.Kind == enginetest.KindApproval {
			resume(decision(q, other), &record.Differ)
		}
	}
	if run == "" {
		return nil
	}
	return t.follow(ctx, run, "", turn.Leave)
}

// decision is the word on a question.
func decision(q enginetest.Interrupt, word string) (d enginetest.Decision) {
	if word == plan.Dismiss {
		return enginetest.Decision{Dismiss: true}
	}
	if q.Kind == enginetest.KindForm {
		return enginetest.Decision{Form: []byte(`{"name":"Ada"}`)}
	}
	for _, c := range q.Calls {
		v := enginetest.Verdict{Approve: true}
		switch word {
		case plan.Edit:
			v = enginetest.Verdict{Edit: &enginetest.Edit{Arguments: []byte(`{"file_path":"edited.txt","content":"edited"}`)}}
		case plan.Refuse:
			v = enginetest.Verdict{Reject: &enginetest.Reject{Message: "no"}}
		}
		d.Calls = append(d.Calls, enginetest.CallDecision{ToolCallID: c.ToolCallID, Verdict: v})
	}
	return d
}

func (t *talk) record(key string) *judge.Ask {
	a := &judge.Ask{Key: key}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asks = append(t.asks, a)
	return a
}

// answered makes a request until somebody answers it, each time elsewhere. The zero answer where the rig ends before.
func (t *talk) answered(ctx context.Context, f func(ctx context.Context, c *enginetest.Client) (string, error)) (x judge.Answer) {
	at := -1
	for ctx.Err() == nil {
		at = t.somewhere(at)
		limited, cancel := context.WithTimeout(ctx, callLimit)
		run, err := f(limited, t.clients[at])
		cancel()
		answer, final := answerOf(run, err)
		if final {
			return answer
		}
		t.rig.journal.write("asked again", fmt.Sprint(err), t.n)
		pause(ctx, retryPause)
	}
	return judge.Answer{}
}

// until makes a request until it is done, or refused for good.
func (t *talk) until(ctx context.Context, f func(ctx context.Context, c *enginetest.Client) error) {
	t.answered(ctx, func(ctx context.Context, c *enginetest.Client) (string, error) { return "", f(ctx, c) })
}

// write has a replica write something that is nobody's evidence.
func (t *talk) write(ctx context.Context, at int) {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	slug := fmt.Sprintf("extra-%d", t.rig.extra.Add(1))
	if _, err := t.clients[at].NewAgent(limited, slug, scripted); err != nil {
		t.rig.journal.write("nothing written", err.Error(), at)
	}
}

// free waits until nothing is at work in the conversation.
func (t *talk) free(ctx context.Context) {
	s := t.sessionID()
	if s == "" {
		return
	}
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		talk, err := t.clients[t.somewhere(-1)].Talk(limited, s)
		cancel()
		if err == nil && talk.ActiveRunID == "" && (len(talk.Queue) == 0 || talk.Pending != nil) {
			if len(talk.Queue) == 0 {
				return
			}
			// A run waits behind a question that nobody will answer.
			t.decide(ctx, *talk.Pending, plan.Turn{Decision: plan.Dismiss})
		}
		pause(ctx, 2*retryPause)
	}
}

// pause waits, and reports false where ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
