package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/bench/peers/play"
	"github.com/harness-engine/harness-engine/bench/swarm"
	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// stallLoad is what the others read beside the one that does not.
type stallLoad struct {
	subscribers int
	words       int
	every       time.Duration
}

// One event goes to all subscribers at about the same time: with few events the p99 would be the slowest one's.
var (
	usualStall = stallLoad{1000, 150, 80 * time.Millisecond}
	quickStall = stallLoad{50, 25, 40 * time.Millisecond}
)

// stallRun is the events of the run that the stalled reader asks for and does not read: far more than what the buffers
// between the two ends hold.
const stallRun = 40_000

// measureStall measures the latency of subscribers of one run with and without one among them that has stopped reading.
func measureStall(ctx context.Context, r rig) ([]Result, error) {
	engine, err := startEngine(ctx, enginetest.Options{Binaries: r.binaries, Data: filepath.Join(r.data, "stall"), Args: r.profile.args()})
	if err != nil {
		return nil, err
	}
	defer engine.close()
	long, _, err := longRun(ctx, engine, "stalled", stallRun)
	if err != nil {
		return nil, err
	}
	title := fmt.Sprintf("a stalled reader among %s", thousands(r.stall.subscribers))
	const note = "latency of the others, from the event's time stamp, beside the same without the stalled one; it has a subscription to the same run and one " +
		"to a long run, of which it reads nothing, and comes back when it sees that it was cut off"
	p99 := &pairs{name: title + ", p99 of the others", unit: "ms", note: note, goal: atMost(1.1)}
	p50 := &pairs{name: title + ", p50 of the others", unit: "ms", note: note}
	for round := range r.rounds {
		var with, without delivered
		// Which of the two comes first changes, so that a drift of the machine hits both.
		for i := range 2 {
			stalled := (i+round)%2 == 0
			d, err := measureStalled(ctx, engine, r.stall, long, stalled, r.profile)
			if err != nil {
				return nil, err
			}
			if stalled {
				with = d
			} else {
				without = d
			}
		}
		p99.add(with.p99, without.p99)
		p50.add(with.p50, without.p50)
	}
	return []Result{p99.result(), p50.result()}, nil
}

// measureStalled plays a run to the subscribers, one of which may be a stalled one.
func measureStalled(ctx context.Context, e *engineSubject, load stallLoad, long string, stalled bool, profile *profiler) (d delivered, err error) {
	readers := load.subscribers
	if stalled {
		readers--
	}
	s := shape{runs: 1, subscribers: readers, words: load.words, every: load.every}
	x := &stalledSubject{engineSubject: e}
	if stalled {
		x.long = long
	}
	defer x.stop()
	return measureFanOut(ctx, x, s, profile)
}

// stalledSubject is an engine with a reader that does not read.
type stalledSubject struct {
	*engineSubject
	long string // run that it asks for; empty: there is none

	cancel context.CancelFunc
	group  sync.WaitGroup
}

// prepare opens the stalled reader as soon as there is a run.
func (s *stalledSubject) prepare(ctx context.Context, p play.Script, runs int) ([]string, func(context.Context) error, error) {
	ids, start, err := s.engineSubject.prepare(ctx, p, runs)
	if err != nil || s.long == "" {
		return ids, start, err
	}
	// It stalls as the first event comes: the time until the server cuts it off begins then.
	return ids, func(ctx context.Context) error {
		stall, cancel := context.WithCancel(context.WithoutCancel(ctx))
		s.cancel = cancel
		first, err := s.open(ctx, ids[0])
		if err != nil {
			return err
		}
		s.group.Go(func() { s.again(stall, first, ids[0]) })
		return start(ctx)
	}, nil
}

func (s *stalledSubject) open(ctx context.Context, run string) (*swarm.Stalled, error) {
	return swarm.OpenStalled(ctx, swarm.Options{Addr: s.addr(), Token: s.token(), Query: swarm.Query, ReceiveBuffer: 4 << 10,
		Variables: func(int) []string { return []string{`{"run":"` + run + `"}`, `{"run":"` + s.long + `"}`} }})
}

// again opens the stalled reader anew whenever the server has cut it off.
func (s *stalledSubject) again(ctx context.Context, c *swarm.Stalled, run string) {
	for {
		err := c.Gone(ctx)
		c.Close()
		if err != nil {
			return
		}
		if c, err = s.open(ctx, run); err != nil {
			return // the engine has gone, or the measurement is over
		}
	}
}

func (s *stalledSubject) stop() {
	if s.cancel != nil {
		s.cancel()
		s.group.Wait()
	}
}
