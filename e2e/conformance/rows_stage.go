package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// Bounds of what the engine promises when it goes or takes something away.
const (
	revocation = 5 * time.Second
	drainBound = 20*time.Second + patience
	drained    = 40 // sockets that are open when the engine is told to end
)

// stageRows are the rows that change the stage, in their order; the last one takes the engine away.
func stageRows() []row {
	return []row{
		{fmt.Sprintf("a socket beyond the caller's %d", callerStreams), "refused", probeCallerCap},
		{fmt.Sprintf("a socket beyond the engine's %d", allStreams), "refused", probeTotalCap},
		{"access that is taken away", "error FORBIDDEN within 5 s", probeRevocation},
		{"SIGTERM", "close 1012, not all at once", probeDrain},
	}
}

// hold opens sockets of one caller until one is refused, and says after how many and how.
func hold(ctx context.Context, s *stage, most int, token string) (held []wire, refusal error) {
	for range most {
		w, err := initiated(ctx, s, nil, token)
		if err == nil {
			err = w.echo() // a refusal may follow the acknowledgement
		}
		if err != nil {
			return held, err
		}
		held = append(held, w)
		go w.idle()
	}
	return held, nil
}

// idle answers pings until the connection ends: nobody has to be quick to open all that are held.
func (w wire) idle() {
	for {
		if _, err := w.hear(drainBound); err != nil {
			return
		}
	}
}

func release(held []wire) {
	for _, w := range held {
		w.end()
	}
}

func probeCallerCap(ctx context.Context, s *stage) (string, error) {
	crowd, err := s.engine.ClientAs(ctx, "crowd")
	if err != nil {
		return "", err
	}
	defer crowd.Close()
	held, refusal := hold(ctx, s, callerStreams+1, crowd.Target().Token)
	defer release(held)
	if refusal == nil || len(held) != callerStreams {
		return fmt.Sprintf("%d opened", len(held)), errors.Join(errors.New("(not where the bound is)"), refusal)
	}
	// Others are not refused for it.
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", fmt.Errorf("another caller: %w", err)
	}
	defer w.end()
	return said(refusal), w.echo()
}

func probeTotalCap(ctx context.Context, s *stage) (string, error) {
	var all []wire
	defer func() { release(all) }()
	for n := 0; ; n++ {
		crowd, err := s.engine.ClientAs(ctx, fmt.Sprintf("crowd-%d", n))
		if err != nil {
			return "", err
		}
		token := crowd.Target().Token
		crowd.Close()
		held, refusal := hold(ctx, s, callerStreams, token)
		all = append(all, held...)
		if refusal != nil {
			if len(all) > allStreams || len(all) < allStreams-callerStreams {
				return fmt.Sprintf("%d opened", len(all)), refusal
			}
			return said(refusal), nil
		}
		if len(all) > allStreams {
			return fmt.Sprintf("%d opened", len(all)), errors.New("(none was refused)")
		}
	}
}

// said is a refusal in a few words.
func said(refusal error) string {
	text := refusal.Error()
	return text[:min(len(text), 90)]
}

// probeRevocation takes the platform from its members while one of them follows what needs it.
func probeRevocation(ctx context.Context, s *stage) (string, error) {
	guest, err := s.engine.ClientAs(ctx, "guest")
	if err != nil {
		return "", err
	}
	defer guest.Close()
	w, err := initiated(ctx, s, nil, guest.Target().Token)
	if err != nil {
		return "", err
	}
	defer w.end()
	if err := w.subscribe("1", "subscription { sessionChanged { id } }"); err != nil {
		return "", err
	}
	if err := w.echo(); err != nil {
		return "", err
	}
	pace := s.engine.Pace(ctx)
	if err := s.closeMembership(ctx); err != nil {
		return "", err
	}
	began := time.Now()
	f, err := w.hear(patience)
	took := time.Since(began)
	late := pace.Within("access ended", took, revocation)
	if err != nil {
		return "", err
	}
	seen := fmt.Sprintf("%s after %s", f.Type, took.Round(10*time.Millisecond))
	switch {
	case f.Type != "error" || !strings.Contains(string(f.Payload), `"FORBIDDEN"`):
		return seen, fmt.Errorf("%s", f.Payload)
	case late != nil:
		return seen, late
	}
	return "FORBIDDEN as " + seen, w.echo() // the socket itself stays
}

// probeDrain tells the engine to end while sockets are open.
func probeDrain(ctx context.Context, s *stage) (string, error) {
	run, err := s.hanging(ctx)
	if err != nil {
		return "", err
	}
	closed, errs := make([]time.Time, drained), make([]error, drained)
	var all sync.WaitGroup
	for i := range drained {
		w, err := initiated(ctx, s, nil)
		if err != nil {
			return "", err
		}
		defer w.end()
		if i%2 == 0 {
			if err := w.subscribe("1", events(run.ID, 0)); err != nil {
				return "", err
			}
			if err := w.expect("next"); err != nil {
				return "", err
			}
		}
		all.Go(func() {
			_, errs[i] = w.closes(websocket.CloseServiceRestart, drainBound, false)
			closed[i] = time.Now()
		})
	}
	pace, began := enginetest.FolderPace(ctx, s.data), time.Now()
	stopErr := s.engine.Stop()
	all.Wait()
	if err := errors.Join(append(errs, stopErr)...); err != nil {
		return "", err
	}
	stood, err := pace.Slowest()
	if err != nil {
		return "", err
	}
	first, last := closed[0].Sub(began), closed[0].Sub(began)
	for _, at := range closed {
		first, last = min(first, at.Sub(began)), max(last, at.Sub(began))
	}
	seen := fmt.Sprintf("%d sockets, 1012 after %s to %s", drained, first.Round(time.Millisecond), last.Round(time.Millisecond))
	// Whoever stands still sees at once what came one after the other.
	if last-first < 25*time.Millisecond && stood < 25*time.Millisecond {
		return seen, errors.New("(all at once: clients come back in step)")
	}
	return seen, nil
}
