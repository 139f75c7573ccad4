package enginetest

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Patience of a promise in time on a machine that is slow, busy or stopped for a moment: as many times as this of the
// slowest small act that was done meanwhile may be added to it.
const paceFactor = 20

// pacePause is the time between two small acts. What wakes late from it is counted, too.
const pacePause = 10 * time.Millisecond

// Pace measures what the machine makes of a small act while something is waited for. A promise in seconds can be held against
// that, on any machine.
type Pace struct {
	stop context.CancelFunc
	done chan struct{}
	slow time.Duration // valid after done
	err  error
}

// Pace begins to measure with a query of this engine, which has to stay, and a write that is synced to the disk of its data
// folder. Within or Slowest ends it.
func (e *Engine) Pace(ctx context.Context) *Pace {
	c := e.Client()
	return newPace(ctx, c.Close, func(ctx context.Context) error {
		if err := c.Do(ctx, `{ viewer { subject } }`, nil, nil); err != nil {
			return err
		}
		return syncedWrite(e.Data())
	})
}

// FolderPace is Engine.Pace where there is no engine to ask: a write that is synced to the disk of the folder.
func FolderPace(ctx context.Context, folder string) *Pace {
	return newPace(ctx, func() {}, func(context.Context) error { return syncedWrite(folder) })
}

func newPace(ctx context.Context, end func(), act func(context.Context) error) *Pace {
	ctx, stop := context.WithCancel(ctx)
	p := &Pace{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer end()
		for first := true; first || ctx.Err() == nil; first = false {
			began := time.Now()
			if err := act(context.WithoutCancel(ctx)); err != nil {
				p.err = err
				return
			}
			select {
			case <-time.After(pacePause):
			case <-ctx.Done():
			}
			p.slow = max(p.slow, time.Since(began))
		}
	}()
	return p
}

func syncedWrite(folder string) error {
	f, err := os.CreateTemp(folder, "pace-")
	if err != nil {
		return fmt.Errorf("failed to make a file: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer f.Close()
	if _, err := f.WriteString("pace"); err != nil {
		return fmt.Errorf("failed to write a file: %w", err)
	}
	return f.Sync()
}

// Within ends the measurement, and fails where something took longer than promised, with what the machine's own slowness
// in that time excuses.
func (p *Pace) Within(what string, took, promised time.Duration) error {
	slow, err := p.Slowest()
	if err != nil {
		return err
	}
	if most := promised + paceFactor*slow; took > most {
		return fmt.Errorf("%s after %s, want %s, or on a machine whose small acts take up to %s at most %s", what, took, promised, slow, most)
	}
	return nil
}

// Slowest ends the measurement and returns how long the slowest act took, with the pause behind it.
func (p *Pace) Slowest() (time.Duration, error) {
	p.stop()
	<-p.done
	if p.err != nil {
		return 0, fmt.Errorf("failed to measure the machine's pace: %w", p.err)
	}
	return p.slow, nil
}
