package authz

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// gated is a checker whose answers are those of the moment when they are let go.
type gated struct {
	mu    sync.Mutex
	allow bool
	asked []Check
	gate  chan struct{}
}

func (g *gated) Check(ctx context.Context, c Check) (bool, error) {
	g.mu.Lock()
	g.asked = append(g.asked, c)
	allow := g.allow // as it was when the check was sent
	g.mu.Unlock()
	select {
	case <-g.gate:
		return allow, nil
	case <-ctx.Done():
		return false, ErrUnavailable
	}
}

func (g *gated) CheckAll(context.Context, []Check) ([]bool, error) { return nil, ErrUnavailable }

func (g *gated) checks() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.asked)
}

func gatedGuard(t *testing.T, allow bool) (*gated, *Guard) {
	t.Helper()
	c := &gated{allow: allow, gate: make(chan struct{})}
	g, err := NewGuard(GuardOptions{Checker: c, Facts: &ownerships{}, Environment: here})
	if err != nil {
		t.Fatal(err)
	}
	return c, g
}

// Whoever asks the same at the same time gets one answer; everybody else has a question of their own.
func TestEqualChecksInFlightAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gatedGuard(t, true)
		var wg sync.WaitGroup
		begun := time.Now()
		for range 1000 {
			wg.Go(func() {
				if err := g.Require(as(t, "rita"), CanView, Agent("a")); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if until, err := g.Recheck(as(t, "rita"), CanView, Agent("a")); err != nil || !until.Equal(begun.Add(MaxAge)) {
					t.Errorf("until %v, %v", until, err)
				}
			})
		}
		wg.Go(func() {
			if err := g.Require(as(t, "nina"), CanView, Agent("a")); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := g.Require(as(t, "rita"), CanView, Agent("b")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		time.Sleep(time.Second) // the answer is slow
		close(c.gate)
		wg.Wait()
		if n := c.checks(); n != 4 { // of rita a plain and a fresh one
			t.Errorf("%d checks", n)
		}
	})
}

// A question that guards a change is asked anew each time.
func TestChangesAreCheckedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gatedGuard(t, true)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _ = g.Require(as(t, "rita"), CanEdit, Agent("a")) })
			wg.Go(func() { _ = g.Require(as(t, "rita"), CanUse, Agent("a")) })
		}
		synctest.Wait()
		if n := c.checks(); n != 10 {
			t.Errorf("%d checks", n)
		}
		close(c.gate)
		wg.Wait()
	})
}

// A denial that was on its way when the permission was given is not the answer of whoever asked after that.
func TestADenialIsNotTakenFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gatedGuard(t, false)
		early, late := make(chan error, 1), make(chan error, 100)
		go func() { early <- g.Require(as(t, "rita"), CanView, Agent("a")) }()
		synctest.Wait()
		c.mu.Lock()
		c.allow = true
		c.mu.Unlock()
		for range cap(late) {
			go func() { late <- g.Require(as(t, "rita"), CanView, Agent("a")) }()
		}
		synctest.Wait()
		c.gate <- struct{}{} // the denial
		synctest.Wait()
		close(c.gate)
		if err := <-early; !problem.Is(err, problem.NotFound) {
			t.Errorf("the first: %v", err)
		}
		for range cap(late) {
			if err := <-late; err != nil {
				t.Errorf("after the permission: %v", err)
			}
		}
		if n := c.checks(); n != 2 {
			t.Errorf("%d checks", n)
		}
	})
}

// Whoever leaves takes the answer from nobody; when all have left, the question is given up.
func TestAFlightLastsAsLongAsSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gatedGuard(t, true)
		first, leave := context.WithCancel(as(t, "rita"))
		second, leaveToo := context.WithCancel(as(t, "rita"))
		answers := make(chan error, 3)
		go func() { _, err := g.Recheck(first, CanView, Agent("a")); answers <- err }()
		synctest.Wait()
		go func() { _, err := g.Recheck(second, CanView, Agent("a")); answers <- err }()
		synctest.Wait()
		leave()
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("the one who left: %v", err)
		}
		leaveToo()
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("the other one: %v", err)
		}
		synctest.Wait() // nothing is left in the bubble
		go func() { _, err := g.Recheck(as(t, "rita"), CanView, Agent("a")); answers <- err }()
		synctest.Wait()
		close(c.gate)
		if err := <-answers; err != nil {
			t.Errorf("the next one: %v", err)
		}
		if n := c.checks(); n != 2 {
			t.Errorf("%d checks", n)
		}
	})
}
