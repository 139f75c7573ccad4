package session

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// The matrix: every reachable state of a binding x every transition with every kind of arguments. States that differ
// only in names and in how often something has happened are one; the walk keeps the first of each kind that it finds.
// What has to come out is in the tables of matrix_rules_test.go, which know nothing of the code.

// phase is who has the conversation.
type phase string

const (
	free     phase = "free"
	active   phase = "active"
	draining phase = "draining" // as active, but of an epoch that is over
)

// state is what the rules look at.
type state struct {
	phase   phase
	pending string // "", "own": of the active run, whose terminal is not logged yet; "waits"
	limited bool   // the pending interrupt has a deadline
	queued  int
	sandbox bool
	pinned  bool
	head    string     // "", "earlier", "own": of the active run
	decided Settlement // of the last interrupt that was settled
	settled bool       // that one is the active run's own
}

func stateOf(b Binding) state {
	s := state{phase: free, queued: len(b.Queue), sandbox: b.Sandbox != nil, pinned: b.AgentVersion != 0}
	run := ""
	if b.Active != nil {
		s.phase, run = active, b.Active.Run
	}
	if b.Draining != "" {
		s.phase = draining
	}
	if b.Pending != nil {
		s.pending, s.limited = "waits", b.Pending.Deadline != nil
		if b.Pending.Run == run {
			s.pending = "own"
		}
	}
	if b.Head.Rev > 0 {
		s.head = "earlier"
		if b.Head.ByRun == run {
			s.head = "own"
		}
	}
	if b.Decided != nil {
		s.decided, s.settled = b.Decided.How, b.Decided.Interrupt == interruptOf(run)
	}
	return s
}

// shape is the part of a state that has to be covered in every combination.
func (s state) shape() string {
	queue := map[int]string{0: "0", 1: "1", MaxQueue: "full"}[s.queued]
	if queue == "" {
		queue = "some"
	}
	return fmt.Sprintf("%s pending=%s queue=%s sandbox=%v", s.phase, s.pending, queue, s.sandbox)
}

// reachable lists the shapes that there are. Others are not: a free conversation never lets a run wait but behind an
// interrupt, and an epoch that is over asks nobody.
func reachable() []string {
	var out []string
	for _, queue := range []string{"0", "1", "some", "full"} {
		for _, sandbox := range []bool{false, true} {
			for _, at := range [][2]string{{"free", ""}, {"free", "waits"}, {"active", ""}, {"active", "own"}, {"draining", ""}} {
				if at != [2]string{"free", ""} || queue == "0" {
					out = append(out, fmt.Sprintf("%s pending=%s queue=%s sandbox=%v", at[0], at[1], queue, sandbox))
				}
			}
		}
	}
	return out
}

func interruptOf(run string) string { return "int-" + run }

// matrixOp is the next operation on b. Times are far from any deadline unless the call says otherwise.
func matrixOp(b Binding) Op {
	return Op{ID: fmt.Sprintf("op-%d", b.Rev+1), Now: time.Unix(b.Rev+1, 0).UTC()}
}

// copyOf shares no memory with b.
func copyOf(b Binding) Binding {
	c := b
	c.Queue = slices.Clone(b.Queue)
	c.Active, c.Sandbox, c.Decided = cloned(b.Active), cloned(b.Sandbox), cloned(b.Decided)
	if c.Pending = cloned(b.Pending); c.Pending != nil {
		c.Pending.Deadline, c.Pending.Request = cloned(b.Pending.Deadline), slices.Clone(b.Pending.Request)
	}
	c.Head.Terminal = slices.Clone(b.Head.Terminal)
	return c
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

var verdictNames = []struct {
	err  error
	name string
}{{ErrFenced, "fenced"}, {ErrNotActive, "not active"}, {ErrCleared, "cleared"}, {ErrWorker, "other worker"}, {ErrUnchanged, "unchanged"}}

// nameOf tells errors apart as the rules do.
func nameOf(err error) string {
	if err == nil {
		return ""
	}
	var busy *BusyError
	var conflict *ConflictError
	switch {
	case errors.As(err, &busy) && busy.Full:
		return "full"
	case errors.As(err, &busy):
		return "busy with " + busy.Run
	case errors.As(err, &conflict):
		return strings.TrimSpace("conflict " + string(conflict.How))
	}
	for _, n := range verdictNames {
		if errors.Is(err, n.err) {
			return n.name
		}
	}
	return err.Error()
}

// judged runs one call on one state and checks everything that holds for each of them. It returns the new state, where
// there is one, and what the rules said.
func judged(t *testing.T, b Binding, s state, c call) (_ Binding, changed bool, verdict string) {
	t.Helper()
	at := func() string { return fmt.Sprintf("%+v: %s", s, c.name) }
	before := copyOf(b)
	after, dropped, err := c.do(b)
	if !reflect.DeepEqual(b, before) {
		t.Fatalf("%s wrote into the binding that it was given", at())
	}
	verdict, want := c.want(s, before)
	if got := nameOf(err); got != verdict {
		t.Fatalf("%s: got %q, want %q", at(), got, verdict)
	}
	if err != nil {
		if !reflect.DeepEqual(after, before) {
			t.Fatalf("%s: refused, and changed to %+v", at(), after)
		}
		return b, false, verdict
	}
	op := matrixOp(before)
	want.binding.Rev, want.binding.LastOp, want.binding.UpdatedAt = before.Rev+1, op.ID, op.Now
	if c.at != nil {
		want.binding.UpdatedAt = c.at(before)
	}
	if !reflect.DeepEqual(after, want.binding) || !reflect.DeepEqual(dropped, want.dropped) {
		t.Fatalf("%s:\ngot  %s dropped %+v\nwant %s dropped %+v", at(), shown(after), dropped, shown(want.binding), want.dropped)
	}
	if err := after.Check(); err != nil {
		t.Fatalf("%s: %v", at(), err)
	}
	for _, m := range []struct {
		what    string
		was, is int64
	}{
		{"epoch", before.Epoch, after.Epoch}, {"lease generation", before.LeaseGen, after.LeaseGen},
		{"worker generation", before.SandboxGen, after.SandboxGen}, {"order", before.NextOrd, after.NextOrd},
	} {
		if m.is < m.was || m.is > m.was+MaxQueue {
			t.Fatalf("%s moved the %s from %d to %d", at(), m.what, m.was, m.is)
		}
	}
	if c.once {
		if _, _, err := c.do(after); !errors.Is(err, ErrUnchanged) {
			t.Fatalf("%s: done again it gives %v", at(), err)
		}
	}
	return after, true, verdict
}

func shown(b Binding) string {
	return fmt.Sprintf("%+v active=%+v sandbox=%+v pending=%+v decided=%+v", b, b.Active, b.Sandbox, b.Pending, b.Decided)
}

// TestMatrix walks from a new binding to every kind of state, and judges every call in each of them.
func TestMatrix(t *testing.T) {
	first := New("ses_x", Key{Environment: "dev", Subject: "alice", AgentID: "agt_x", ConversationID: "c"}, Op{ID: "op-1", Now: time.Unix(1, 0).UTC()})
	seen := map[state]bool{stateOf(first): true}
	shapes, verdicts := map[string]bool{}, map[string]int{}
	judgements := 0
	for todo := []Binding{first}; len(todo) > 0; todo = todo[1:] {
		b := todo[0]
		s := stateOf(b)
		shapes[s.shape()] = true
		for _, c := range calls(b) {
			judgements++
			after, changed, verdict := judged(t, b, s, c)
			verdict, _, _ = strings.Cut(verdict, " with ")
			verdicts[c.kind+": "+verdict]++
			if changed && !seen[stateOf(after)] {
				seen[stateOf(after)] = true
				todo = append(todo, after)
			}
		}
		drained(t, b)
	}
	for _, want := range reachable() {
		if !shapes[want] {
			t.Errorf("never reached: %s", want)
		}
		delete(shapes, want)
	}
	for other := range shapes {
		t.Errorf("reached, and should not be: %s", other)
	}
	for _, v := range everyVerdict {
		if verdicts[v] == 0 {
			t.Errorf("no state gives the verdict %q", v)
		}
		delete(verdicts, v)
	}
	for v, n := range verdicts {
		t.Errorf("%d states give the verdict %q, which is not listed", n, v)
	}
	t.Logf("%d states, %d judgements", len(seen), judgements)
}

// drained: from every state the conversation comes free by ends, deadlines and nothing else, and the runs that waited
// are activated in the order of the queue, each under a higher lease generation and with a higher order.
func drained(t *testing.T, b Binding) {
	t.Helper()
	from := stateOf(b)
	var want, got []string
	for _, q := range b.Queue {
		want = append(want, q.Run)
	}
	gen, ord := b.LeaseGen, b.NextOrd-1
	for range 2*MaxQueue + 4 {
		var next Binding
		var err error
		switch l, busy := b.Lease(); {
		case busy:
			next, err = Finish(b, l, "me", matrixOp(b))
		case b.Pending != nil:
			next, err = Settle(b, b.Pending.Interrupt, b.Pending.Revision, Expired, "me", matrixOp(b))
		default:
			if len(b.Queue) > 0 || !slices.Equal(got, want) {
				t.Fatalf("%+v: came free with %d queued, after %v, want %v", from, len(b.Queue), got, want)
			}
			return
		}
		if err != nil {
			t.Fatalf("%+v: stuck in %+v: %v", from, stateOf(b), err)
		}
		if a := next.Active; a != nil {
			if a.Gen <= gen || a.Ord <= ord {
				t.Fatalf("%+v: %s has generation %d and order %d after %d and %d", from, a.Run, a.Gen, a.Ord, gen, ord)
			}
			got, gen, ord = append(got, a.Run), a.Gen, a.Ord
		}
		b = next
	}
	t.Fatalf("%+v: never comes free", from)
}

// TestEveryFieldIsJudged: a field that is added to the binding has to be taken up here, or the matrix compares less
// than it says.
func TestEveryFieldIsJudged(t *testing.T) {
	known := strings.Fields(`ID Rev Key AgentVersion Harness Epoch LeaseGen SandboxGen Active Sandbox Head Pending Decided Queue Draining
		NextOrd LastOp CreatedAt UpdatedAt`)
	have := map[string]bool{}
	for f := range reflect.TypeFor[Binding]().Fields() {
		have[f.Name] = true
	}
	slices.Sort(known)
	if got := slices.Sorted(maps.Keys(have)); !slices.Equal(got, known) {
		t.Errorf("the binding has the fields %v; copyOf, stateOf and the rules know %v", got, known)
	}
}
