// Package rig runs a plan: real engines on one data folder, real workers, real clients behind proxies, and faults at
// the plan's points. In the end everybody's evidence is judged.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/e2e/faults/plan"
)

// Names in the rig's folder.
const (
	dirData     = "d" // short: the paths of unix sockets below it are
	dirRecords  = "records"
	fileJournal = "journal.ndjson"
)

// Times of the rig.
const (
	progressEvery = 3 * time.Second
	meetWithin    = time.Minute     // for what a fault meets to be there
	settleWithin  = 5 * time.Minute // for everything to come to rest behind the last point
)

// Options of Run.
type Options struct {
	Plan     plan.Plan
	Binaries enginetest.Binaries // built with the tag faults
	Folder   string              // made by the caller; everything is kept in it
	Args     []string            // further arguments of serve
	Verify   bool                // the engine's own `admin verify` is asked, too
	Only     int                 // the only point that is carried out; 0: all
	Settle   time.Duration       // 0: settleWithin
	Progress io.Writer
}

// Report is what came of a run.
type Report struct {
	Points      int // carried out
	Runs        int // judged
	Events      int // in their logs
	Connections int // that clients made to listen
	Fences      int // takeovers in the logs
	Admitted    int // runs whose end admits a loss
	Took        time.Duration
	Findings    judge.Findings
	Kinds       map[plan.Kind]int
	Statuses    map[string]int // of the runs
}

// Clean reports whether nothing was found.
func (r Report) Clean() bool { return len(r.Findings) == 0 }

// Rig is one run of a plan.
type Rig struct {
	o        Options
	data     string
	journal  *journal
	replicas []*replica
	model    *model
	talks    []*talk

	ending      atomic.Bool // no new turn is begun
	points      atomic.Int64
	connections atomic.Int64
	extra       atomic.Int64   // agents that were only made to write something
	group       sync.WaitGroup // of what nobody waits for but the end

	mu    sync.Mutex
	harms map[string][]time.Time // by session
	notes judge.Findings         // what was wrong on the way
	// slowest is how long the slowest small act took on this machine while the plan was carried out.
	slowest time.Duration
	kinds   map[plan.Kind]int
}

// Run carries the plan out and judges the evidence. An error means that the rig itself failed.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Settle == 0 {
		o.Settle = settleWithin
	}
	begun := time.Now()
	r := &Rig{o: o, data: filepath.Join(o.Folder, dirData), harms: map[string][]time.Time{}, kinds: map[plan.Kind]int{}}
	if err := errors.Join(os.MkdirAll(r.data, 0o700), os.MkdirAll(filepath.Join(o.Folder, dirRecords), 0o700)); err != nil {
		return Report{}, fmt.Errorf("failed to make folders: %w", err)
	}
	var err error
	if r.journal, err = newJournal(filepath.Join(o.Folder, fileJournal)); err != nil {
		return Report{}, err
	}
	defer r.journal.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.model, err = newModel(); err != nil {
		return Report{}, err
	}
	defer r.model.close()
	var clean sync.Once
	tidy := func() { clean.Do(r.tidy) }
	defer tidy()
	if err := r.start(ctx); err != nil {
		return Report{}, err
	}
	progress := r.watch(ctx)
	pace := enginetest.FolderPace(ctx, o.Folder)
	r.play(ctx)
	settled := r.settle(ctx)
	var report Report
	if r.slowest, err = pace.Slowest(); err != nil {
		return Report{}, err
	}
	if ctx.Err() == nil {
		report, err = r.judge(ctx, settled)
	} else {
		err = context.Cause(ctx)
	}
	cancel()
	<-progress
	tidy()
	report.Took = time.Since(begun)
	return report, err
}

// start brings the engines up, one after the other, and gives each conversation its caller and agent.
func (r *Rig) start(ctx context.Context) error {
	for n := range r.o.Plan.Options.Replicas {
		p, err := newReplica(r, n)
		if err != nil {
			return err
		}
		r.replicas = append(r.replicas, p)
		if err := p.begin(ctx); err != nil {
			return err
		}
	}
	if err := Order(r.replicas[0].orders, "delay", 0, 0); err != nil {
		return err
	}
	for n := range r.o.Plan.Options.Talks {
		t, err := newTalk(ctx, r, n)
		if err != nil {
			return err
		}
		r.talks = append(r.talks, t)
	}
	if _, err := os.Stat(r.replicas[0].orders); err == nil {
		return errors.New("the engine takes no orders for faults: build it with -tags faults")
	}
	for _, t := range r.talks {
		t.begin(ctx)
	}
	return nil
}

// tidy ends everything that the rig started, whatever state it is in.
func (r *Rig) tidy() {
	r.group.Wait()
	for _, t := range r.talks {
		t.stop()
	}
	for _, p := range r.replicas {
		p.end()
	}
}

// note records something wrong that no evidence will show.
func (r *Rig) note(class judge.Class, run, format string, args ...any) {
	f := judge.Finding{Class: class, Run: run, Text: fmt.Sprintf(format, args...)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, f)
	r.journal.write("finding", f.String())
}

// harm says that a session's worker is killed now.
func (r *Rig) harm(session string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.harms[session] = append(r.harms[session], at)
}

// slackLeast is how long a fault shows after it is over, or seems to show before it began: clocks of the log are milliseconds.
const slackLeast = 2 * time.Second

// slackFactor is how many of the slowest small acts of the machine are added to that.
const slackFactor = 20

// harmed says whether a fault met the session's worker while the run was at work.
func (r *Rig) harmed(session string, from, to time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	slack := slackLeast + slackFactor*r.slowest
	for _, h := range r.harms[session] {
		if h.Before(to.Add(slack)) && h.Add(slack).After(from) {
			return true
		}
	}
	return false
}

// watch tells every few seconds how far it is.
func (r *Rig) watch(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(progressEvery):
			}
			states := ""
			for _, p := range r.replicas {
				states += " " + p.describe()
			}
			runs, open, events := 0, 0, int64(0)
			for _, t := range r.talks {
				a, b, e := t.count()
				runs, open, events = runs+a, open+b, events+e
			}
			r.mu.Lock()
			findings := len(r.notes)
			r.mu.Unlock()
			_, _ = fmt.Fprintf(r.o.Progress, "faults: %3ds  point %d of %d  runs %d (%d at work)  events seen %d  connections %d  engines%s  findings %d\n",
				int(time.Since(begun).Seconds()), r.points.Load(), len(r.o.Plan.Points), runs, open, events, r.connections.Load(), states, findings)
		}
	}()
	return done
}

// settle lets everything come to rest: no new turn, no fault, and every run at its end. False where that did not happen.
func (r *Rig) settle(ctx context.Context) bool {
	r.ending.Store(true)
	r.journal.write("settle", "")
	ctx, cancel := context.WithTimeout(ctx, r.o.Settle)
	defer cancel()
	for _, t := range r.talks {
		select {
		case <-t.done:
		case <-ctx.Done():
			r.hung()
			for _, t := range r.talks {
				t.stop()
			}
			return false
		}
	}
	return true
}

// hung says who does not come to rest, and has the engines print what all their goroutines do. They end by that.
func (r *Rig) hung() {
	for _, t := range r.talks {
		select {
		case <-t.done:
		default:
			r.note(judge.Other, "", "conversation %d of session %s did not come to rest within %s: %s", t.n, t.sessionID(), r.o.Settle, t.describe())
		}
	}
	for _, p := range r.replicas {
		p.dump()
	}
}
