package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// How a client is treated.
const (
	clientTimeout = 10 * time.Minute
	cutsPerClient = 2
	eventsBetween = 12 // events that it prints on a connection before the next cut
	spoken        = 200
	everyMs       = 60
)

// clientProgram is a program of docs/clients.md.
type clientProgram struct {
	file string   // in the folder clients
	run  []string // what runs it, before the file
	asks bool     // it makes a query, too
}

// clientPrograms are all of them; each makes a mutation and follows a run.
var clientPrograms = []clientProgram{
	{file: "graphql-ws.mjs", run: []string{"node"}, asks: true},
	{file: "graphql-sse.mjs", run: []string{"node"}, asks: true},
	{file: "apollo.mjs", run: []string{"node"}, asks: true},
	{file: "urql.mjs", run: []string{"node"}, asks: true},
	{file: "curl-graphql.sh", run: []string{"bash"}},
	{file: "curl-events.sh", run: []string{"bash"}},
	{file: "gorilla/main.go"},
}

// tryClients runs every client program behind a proxy of its own, all at once: first with what a client has to live
// with, then with a token that expires under way, which it must not live with.
func tryClients(ctx context.Context, s *stage) error {
	short, err := s.talker(ctx, "talker", spoken)
	if err != nil {
		return err
	}
	long, err := s.talker(ctx, "long-talker", 5*spoken)
	if err != nil {
		return err
	}
	gorilla := filepath.Join(s.data, "gorilla")
	build := exec.CommandContext(ctx, "go", "build", "-o", gorilla, "./"+filepath.Join(s.dir, "clients", "gorilla"))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("failed to build clients/gorilla: %w\n%s", err, out)
	}
	return errors.Join(tryCuts(ctx, s, short, gorilla), tryExpiry(ctx, s, long, gorilla))
}

// talker saves an agent that says so many words, slowly, and the last one when it is told to.
func (s *stage) talker(ctx context.Context, slug string, words int) (enginetest.Agent, error) {
	options, err := json.Marshal(map[string]any{"steps": []enginetest.Step{
		enginetest.Reason("Somebody wants to see a stream."),
		enginetest.Call("look", `{"at":"the river"}`, "it flows"),
		enginetest.CountHeld(words, everyMs*time.Millisecond), // however long the slowest program takes to begin, the run is at work
	}})
	if err != nil {
		return enginetest.Agent{}, err
	}
	return s.client.Save(ctx, enginetest.SaveInput{Draft: enginetest.Draft{
		Name: "Talker", Slug: slug, Harness: &enginetest.HarnessChoice{ID: scripted, Options: options},
	}})
}

// newTrials prepares a trial of each program.
func newTrials(s *stage, programs []clientProgram, agent enginetest.Agent, gorilla, token string) (trials []*trial, end func(), err error) {
	end = func() {
		for _, t := range trials {
			t.heard.door.close()
		}
	}
	for _, p := range programs {
		t, err := newTrial(s, p, agent, gorilla, token)
		if err != nil {
			end()
			return nil, nil, err
		}
		trials = append(trials, t)
	}
	return trials, end, nil
}

// tryCuts cuts every program off again and again, replaces the engine, and compares what they printed with the log.
func tryCuts(ctx context.Context, s *stage, agent enginetest.Agent, gorilla string) error {
	trials, end, err := newTrials(s, clientPrograms, agent, gorilla, s.client.Target().Token)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeoutCause(ctx, clientTimeout, errors.New("it did not come to the run's end"))
	defer cancel()
	var all sync.WaitGroup
	for _, t := range trials {
		all.Go(func() { t.err = t.run(ctx) })
	}
	// When every client has come back twice and reads again, the engine ends as operators end it, and another goes on.
	for _, t := range trials {
		select {
		case <-t.heard.settled:
		case <-ctx.Done():
		}
	}
	moveErr := s.replaceEngine(ctx, trials)
	moveErr = errors.Join(moveErr, s.engine.Release(ctx, ""))
	all.Wait()
	failed := 0
	for _, t := range trials {
		verdict := ""
		if t.err == nil {
			verdict, t.err = t.judge(ctx, s)
		}
		if t.err != nil {
			failed++
			verdict = "FAILED: " + t.err.Error()
		}
		fmt.Printf("  %-16s %s\n", t.program.file, verdict)
	}
	if failed > 0 {
		err = fmt.Errorf("%d client programs failed", failed)
	}
	return errors.Join(moveErr, err)
}

// nowhere is an address at which nobody listens.
const nowhere = "127.0.0.1:0"

// replaceEngine ends the engine with SIGTERM, starts it anew, and has the proxies go there.
func (s *stage) replaceEngine(ctx context.Context, trials []*trial) error {
	if err := s.engine.Stop(); err != nil {
		return err
	}
	for _, t := range trials {
		t.heard.door.move(nowhere) // its address may be somebody else's by now
	}
	if err := s.engine.Restart(ctx); err != nil {
		return err
	}
	s.client.Close()
	s.client = s.engine.Client()
	for _, t := range trials {
		t.heard.door.move(s.address())
	}
	return nil
}

// trial is one program at work.
type trial struct {
	program clientProgram
	agent   enginetest.Agent
	command []string
	env     []string
	heard   *hearing
	err     error
}

func newTrial(s *stage, p clientProgram, agent enginetest.Agent, gorilla, token string) (*trial, error) {
	t := &trial{program: p, agent: agent, command: []string{gorilla}}
	if len(p.run) > 0 {
		file, err := filepath.Abs(filepath.Join(s.dir, "clients", p.file))
		if err != nil {
			return nil, err
		}
		t.command = append(p.run[:len(p.run):len(p.run)], file)
	}
	door, err := newProxy(s.address())
	if err != nil {
		return nil, err
	}
	t.heard = &hearing{door: door, settled: make(chan struct{})}
	t.env = append(os.Environ(), "ENGINE="+door.url(), "TOKEN="+token, "AGENT="+agent.ID, "TEXT=Hello.")
	return t, nil
}

// run runs the program to its end, and has it cut off again and again.
func (t *trial) run(ctx context.Context) error {
	defer t.heard.settle()
	cmd := exec.CommandContext(ctx, t.command[0], t.command[1:]...)
	cmd.Env = t.env
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := t.heard.read(ctx, out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w after %d events (complete: %t), cut after %v: %w", err, len(t.heard.events), t.heard.complete, t.heard.cuts,
			errors.Join(context.Cause(ctx), readErr, errors.New(tailOf(complaint.String()))))
	}
	return readErr
}

// judge compares what the program said with the log.
func (t *trial) judge(ctx context.Context, s *stage) (string, error) {
	heard := t.heard
	switch {
	case t.program.asks && heard.agent != t.agent.Name:
		return "", fmt.Errorf("the query answered %q, want %q", heard.agent, t.agent.Name)
	case heard.run == "":
		return "", errors.New("no run was started")
	case !heard.complete:
		return "", errors.New("it ended before the run was complete")
	case len(heard.cuts) < cutsPerClient:
		return "", fmt.Errorf("it could be cut %d times only, after events %v", len(heard.cuts), heard.cuts)
	}
	log, err := s.client.Log(ctx, heard.run, 0)
	if err != nil {
		return "", err
	}
	if err := enginetest.CheckLog(log); err != nil {
		return "", err
	}
	if len(enginetest.Find(log, enginetest.RunRecovered)) == 0 {
		return "", errors.New("the run was over before the engine was replaced")
	}
	want := make([]enginetest.Event, len(log))
	for i, e := range log {
		if want[i], err = reduced(e.Sequence, e.Type, e.Delta); err != nil {
			return "", err
		}
	}
	if d := enginetest.Compare(heard.events, want); !d.None() {
		return "", fmt.Errorf("not what the log has: %s", d)
	}
	what := "mutation, subscription"
	if t.program.asks {
		what = "query, " + what
	}
	return fmt.Sprintf("ok: %s; cut after events %v and moved to another engine; %d events, the same as in the log", what, heard.cuts, len(log)), nil
}

// hearing is what a program prints: a line `agent NAME`, a line `run ID`, a line of JSON for each event or batch, and a
// line `complete`. It cuts the program's connections as it reads.
type hearing struct {
	door     *proxy
	agent    string
	run      string
	events   []enginetest.Event
	complete bool
	cuts     []int64
	since    int // events since the last cut
	settled  chan struct{}
	once     sync.Once
}

// settle says that the program reads on behind its last cut, or has ended.
func (h *hearing) settle() { h.once.Do(func() { close(h.settled) }) }

func (h *hearing) read(ctx context.Context, out io.Reader) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		line := lines.Text()
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "agent":
			h.agent = rest
		case "run":
			h.run = rest
		case "complete":
			h.complete = true
		default:
			events, err := eventsOf(lines.Bytes())
			if err != nil {
				return fmt.Errorf("it printed %q: %w", line, err)
			}
			h.events = append(h.events, events...)
			h.since += len(events)
			switch {
			case h.since < eventsBetween:
			case len(h.cuts) == cutsPerClient:
				h.settle()
			default:
				if err := h.door.cutAll(ctx); err != nil {
					return err
				}
				h.cuts = append(h.cuts, enginetest.Last(h.events).Sequence)
				h.since = 0
			}
		}
	}
	return lines.Err()
}

// eventsOf decodes one event, a GraphQL result with a batch of them, or a canonical event.
func eventsOf(line []byte) ([]enginetest.Event, error) {
	type event struct {
		Sequence int64
		Type     string
		Delta    string
		Data     struct{ Delta string }
	}
	var result struct {
		event
		Data struct {
			RunEvents *struct{ Events []event }
			Delta     string
		}
	}
	if err := json.Unmarshal(line, &result); err != nil {
		return nil, err
	}
	found := []event{result.event}
	found[0].Data.Delta = result.Data.Delta
	if result.Data.RunEvents != nil {
		found = result.Data.RunEvents.Events
	}
	var events []enginetest.Event
	for _, e := range found {
		one, err := reduced(e.Sequence, e.Type, e.Delta+e.Data.Delta)
		if err != nil {
			return nil, err
		}
		events = append(events, one)
	}
	return events, nil
}

// reduced is an event with only what every program prints of it: the delta of text, and not of others.
func reduced(sequence int64, kind, delta string) (enginetest.Event, error) {
	if kind != enginetest.TextDelta {
		delta = ""
	}
	raw, err := json.Marshal(map[string]any{"sequence": sequence, "type": kind, "delta": delta})
	if err != nil {
		return enginetest.Event{}, err
	}
	var e enginetest.Event
	err = json.Unmarshal(raw, &e)
	return e, err
}

func tailOf(s string) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-800):]
}
