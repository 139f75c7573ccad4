package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/bench/peers/play"
	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// subject is a server whose fan-out is measured: the engine or a peer.
type subject interface {
	title() string
	pid() int
	addr() string
	token() string
	// prepare makes runs that play the script once start is called. They can be subscribed to before.
	prepare(ctx context.Context, s play.Script, runs int) (ids []string, start func(context.Context) error, err error)
}

// engineSubject is a built engine with its real path: workers that play scripts, their journals, the log on the disk.
type engineSubject struct {
	engine *enginetest.Engine
	client *enginetest.Client
	agent  string
	secret string
}

func startEngine(ctx context.Context, o enginetest.Options) (*engineSubject, error) {
	// All subscribers are one caller's: who else may read a run is not the benchmark's matter.
	o.Args = append([]string{"--max-streams", "20000", "--max-caller-streams", "20000"}, o.Args...)
	engine, err := enginetest.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &engineSubject{engine: engine, client: engine.Client()}
	s.secret = s.client.Target().Token
	agent, err := s.client.NewAgent(ctx, "bench", "scripted")
	if err != nil {
		s.close()
		return nil, fmt.Errorf("failed to save an agent: %w", err)
	}
	s.agent = agent.ID
	return s, nil
}

func (e *engineSubject) title() string { return "engine" }
func (e *engineSubject) pid() int      { return e.engine.PID() }
func (e *engineSubject) addr() string  { return strings.TrimPrefix(e.engine.URL(), "http://") }
func (e *engineSubject) token() string { return e.secret }

// close ends the engine and what it left. An engine that does not end well is worth a word, and spoils no figure.
func (e *engineSubject) close() {
	e.client.Close()
	if err := errors.Join(e.engine.Stop(), e.engine.Cleanup()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// prepare queues a run in each of some conversations behind one that only waits. Ending that one starts the other, on a
// worker that is there already.
func (e *engineSubject) prepare(ctx context.Context, s play.Script, runs int) ([]string, func(context.Context) error, error) {
	message := enginetest.Script(scripted(s, time.Duration(runs)*startPause)...)
	ids, blockers := make([]string, runs), make([]string, runs)
	for i := range runs {
		in := enginetest.StartInput{AgentID: e.agent, ConversationID: fmt.Sprintf("fan-out-%d", i), Message: enginetest.Input{Text: enginetest.Script(enginetest.Hang())}}
		blocker, err := e.start(ctx, in)
		if err != nil {
			return nil, nil, err
		}
		in.Message.Text, in.BusyPolicy = message, "ENQUEUE"
		run, err := e.start(ctx, in)
		if err != nil {
			return nil, nil, err
		}
		blockers[i], ids[i] = blocker, run
	}
	for _, id := range blockers {
		if err := e.running(ctx, id); err != nil {
			return nil, nil, err
		}
	}
	return ids, func(ctx context.Context) error {
		for _, id := range blockers {
			if _, err := e.client.Cancel(ctx, id); err != nil {
				return fmt.Errorf("failed to end a run that waits: %w", err)
			}
		}
		return nil
	}, nil
}

// start starts a run; a conversation whose last run is still settling is asked again.
func (e *engineSubject) start(ctx context.Context, in enginetest.StartInput) (string, error) {
	for {
		run, err := e.client.Start(ctx, in)
		var refusal *enginetest.Refusal
		switch {
		case err == nil:
			return run.ID, nil
		case !errors.As(err, &refusal) || refusal.Code != "SESSION_BUSY":
			return "", fmt.Errorf("failed to start a run: %w", err)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return "", err
		}
	}
}

func (e *engineSubject) running(ctx context.Context, id string) error {
	for {
		run, err := e.client.Run(ctx, id)
		if err != nil {
			return fmt.Errorf("failed to read run %s: %w", id, err)
		}
		switch run.Status {
		case "RUNNING":
			return nil
		case "QUEUED":
		default:
			return fmt.Errorf("run %s is %s", id, run.Status)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// scripted is the script in the grammar of docs/scripted.md, with so much more of a pause before what is measured.
func scripted(s play.Script, more time.Duration) []enginetest.Step {
	say := func(n int) enginetest.Step {
		return enginetest.SayOften(s.Word, n, time.Duration(s.EveryMS)*time.Millisecond)
	}
	wait := func(ms int) enginetest.Step { return enginetest.Step{"delay_ms": ms} }
	return []enginetest.Step{say(s.Warm), wait(s.PauseMS + int(more.Milliseconds())), say(s.Count), wait(s.PauseMS)}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
