package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// call is one transition with its arguments, which are made for the state that it is done on.
type call struct {
	kind, name string
	do         func(Binding) (Binding, []Dropped, error)
	want       func(state, Binding) (verdict string, r result) // verdict is empty where the call succeeds
	once       bool                                            // done again at once it changes nothing
	at         func(Binding) time.Time                         // time of the operation, where it matters
}

// result is what a call makes of a binding, beside its revision, operation and time.
type result struct {
	binding Binding
	dropped []Dropped
}

// everyVerdict has what the rules below can say: each must come up in some state.
var everyVerdict = []string{
	"admit: ", "admit: unchanged", "admit: busy", "admit: full",
	"claim: ", "claim: not active", "reclaim: ", "reclaim: not active", "reclaim: fenced",
	"replace: ", "replace: not active", "replace: fenced", "discard: ", "discard: not active", "discard: fenced",
	"give up: ", "give up: unchanged", "retire: ", "retire: unchanged", "finish: ", "finish: unchanged", "finish: fenced",
	"commit: ", "commit: not active", "commit: fenced", "commit: cleared", "commit: unchanged", "commit: other worker",
	"resume: ", "resume: unchanged", "resume: busy", "resume: conflict", "resume: conflict RESUMED", "resume: conflict DISMISSED",
	"resume: conflict EXPIRED", "resume: conflict SUPERSEDED", "resume: conflict CLEARED",
	"settle: ", "settle: unchanged", "settle: conflict", "settle: conflict RESUMED", "settle: conflict DISMISSED",
	"settle: conflict EXPIRED", "settle: conflict SUPERSEDED", "settle: conflict CLEARED",
	"cancel queued: ", "cancel queued: unchanged", "drop: ", "clear: ",
}

// calls are all the calls on b. A queue that is neither short nor almost full only has to grow: it is no other kind of
// state.
func calls(b Binding) []call {
	if n := len(b.Queue); n > 2 && n < MaxQueue-1 {
		return admissions(b)
	}
	return slices.Concat(admissions(b), leases(b), commits(b), decisions(b), removals(b))
}

var matrixPin = Pin{AgentVersion: 7, Harness: "scripted"}

// activated is what becoming active means.
func activated(b Binding, q Queued) Binding {
	if b.AgentVersion == 0 {
		b.AgentVersion, b.Harness = q.Pin.AgentVersion, q.Pin.Harness
	}
	b.LeaseGen++
	b.Active = &Active{Run: q.Run, Ord: b.NextOrd, Epoch: b.Epoch, Pin: Pin{b.AgentVersion, b.Harness}, Gen: b.LeaseGen, Owner: "me"}
	b.NextOrd++
	return b
}

// freed is what a conversation without an active run does: an interrupt holds the queue up, unless
// its head is urgent; else its head is next.
func freed(b Binding) Binding {
	if len(b.Queue) == 0 || b.Pending != nil && !b.Queue[0].Urgent {
		return b
	}
	if b.Pending != nil {
		b = settledAs(b, Superseded)
	}
	q := b.Queue[0]
	if b.Queue = slices.Clone(b.Queue[1:]); len(b.Queue) == 0 {
		b.Queue = nil
	}
	return activated(b, q)
}

func settledAs(b Binding, how Settlement) Binding {
	b.Decided = &Decided{Interrupt: b.Pending.Interrupt, Revision: b.Pending.Revision, How: how}
	b.Pending = nil
	return b
}

// droppedAs is what leaving the queue without being activated means.
func droppedAs(b Binding, q Queued) (Binding, Dropped) {
	b.LeaseGen++
	d := Dropped{Lease: Lease{Run: q.Run, Gen: b.LeaseGen}, Ord: b.NextOrd, Epoch: b.Epoch, Pin: q.Pin}
	if b.AgentVersion != 0 {
		d.Pin = Pin{b.AgentVersion, b.Harness}
	}
	b.NextOrd++
	return b, d
}

func admissions(b Binding) (out []call) {
	runs := map[string]string{"a new run": fmt.Sprintf("run-%d", b.Rev)}
	if b.Active != nil {
		runs["the active run"] = b.Active.Run
	}
	if n := len(b.Queue); n > 0 {
		runs["the last of the queue"] = b.Queue[n-1].Run
	}
	for what, run := range runs {
		for _, policy := range []Policy{Reject, Enqueue, Interrupt} {
			q := Queued{Run: run, Pin: matrixPin}
			out = append(out, call{
				kind: "admit", name: fmt.Sprintf("admit %s by %s", what, policy), once: true,
				do: func(b Binding) (Binding, []Dropped, error) {
					n, err := Admit(b, run, "me", matrixPin, policy, matrixOp(b))
					return n, nil, err
				},
				want: func(s state, b Binding) (string, result) {
					jumps := policy == Interrupt
					switch {
					case what != "a new run":
						return "unchanged", result{}
					case s.phase == free && (s.queued == 0 && (s.pending == "" || policy != Enqueue) || jumps):
						if s.pending != "" {
							b = settledAs(b, Superseded)
						}
						return "", result{binding: activated(b, q)}
					case policy == Reject && s.phase == free: // behind an interrupt, and behind those who wait for it
						return "busy with " + b.Queue[0].Run, result{}
					case policy == Reject:
						return "busy with " + b.Active.Run, result{}
					case s.queued == MaxQueue:
						return "full", result{}
					case jumps:
						urgent := q
						urgent.Urgent = true
						b.Queue = append([]Queued{urgent}, b.Queue...)
					default:
						b.Queue = append(slices.Clone(b.Queue), q)
					}
					return "", result{binding: b}
				},
			})
		}
	}
	return out
}

// held are the leases that somebody may hold, and what the rules say of them; the verdict is empty for the good one.
func held(b Binding) map[string]Lease {
	out := map[string]Lease{"a run that is not active": {Run: "run-none", Gen: b.LeaseGen}}
	if b.Active != nil {
		out["the lease"] = Lease{Run: b.Active.Run, Gen: b.Active.Gen}
		out["a lower generation"] = Lease{Run: b.Active.Run, Gen: b.Active.Gen - 1}
		out["a generation of nobody"] = Lease{Run: b.Active.Run, Gen: b.LeaseGen + 1}
	}
	return out
}

func refusal(what string) string {
	switch what {
	case "the lease":
		return ""
	case "a run that is not active":
		return "not active"
	}
	return "fenced"
}

func leases(b Binding) (out []call) {
	for what, l := range held(b) {
		add := func(kind string, do func(Binding) (Binding, error), want func(Binding) Binding) {
			out = append(out, call{
				kind: kind, name: kind + " by " + what, once: kind == "finish",
				do: func(b Binding) (Binding, []Dropped, error) {
					n, err := do(b)
					return n, nil, err
				},
				want: func(_ state, b Binding) (string, result) {
					verdict := refusal(what)
					if kind == "finish" && verdict == "not active" {
						verdict = "unchanged" // it was freed before
					}
					if verdict != "" {
						return verdict, result{}
					}
					return "", result{binding: want(b)}
				},
			})
		}
		add("reclaim", func(b Binding) (Binding, error) { return Reclaim(b, l, matrixOp(b)) }, func(b Binding) Binding {
			a := *b.Active
			b.LeaseGen++
			a.Gen = b.LeaseGen
			b.Active = &a
			return b
		})
		addr := func(gen int64) string { return fmt.Sprint("worker-", gen) }
		add("replace", func(b Binding) (Binding, error) { return Replace(b, l, addr, matrixOp(b)) }, func(b Binding) Binding {
			b.SandboxGen++
			b.Sandbox = &Sandbox{Gen: b.SandboxGen, Addr: addr(b.SandboxGen)}
			return b
		})
		add("discard", func(b Binding) (Binding, error) { return Discard(b, l, matrixOp(b)) }, func(b Binding) Binding {
			b.SandboxGen++
			b.Sandbox = nil
			return b
		})
		add("finish", func(b Binding) (Binding, error) { return Finish(b, l, "me", matrixOp(b)) }, func(b Binding) Binding {
			if b.Draining != "" {
				b.Sandbox = nil
			}
			b.Active, b.Draining = nil, ""
			return freed(b)
		})
		if refusal(what) == "fenced" {
			continue // a claim asks for no lease
		}
		out = append(out, call{
			kind: "give up", name: "giving up of " + what, once: true,
			do: func(b Binding) (Binding, []Dropped, error) {
				n, err := GiveUp(b, l.Run, "me", matrixOp(b))
				return n, nil, err
			},
			want: func(s state, b Binding) (string, result) {
				if b.Active == nil || b.Active.Run != l.Run {
					return "unchanged", result{}
				}
				if s.pending == "own" {
					b = settledAs(b, Superseded)
				}
				b.SandboxGen++
				b.Sandbox, b.Active, b.Draining = nil, nil, ""
				return "", result{binding: freed(b)}
			},
		})
		out = append(out, call{
			kind: "claim", name: "claim of " + what,
			do: func(b Binding) (Binding, []Dropped, error) {
				n, err := Claim(b, l.Run, "other", matrixOp(b))
				return n, nil, err
			},
			want: func(_ state, b Binding) (string, result) {
				if b.Active == nil || b.Active.Run != l.Run {
					return "not active", result{}
				}
				a := *b.Active
				b.LeaseGen++
				a.Gen, a.Owner = b.LeaseGen, "other"
				b.Active = &a
				return "", result{binding: b}
			},
		})
	}
	return out
}

// runEnd is what a commit writes.
type runEnd struct {
	name    string
	head    *Head
	pending *Pending
	bad     bool // whatever the state
}

// commits of a run's end. A run has one end: once it is committed, only the same comes again.
func commits(b Binding) (out []call) {
	s := stateOf(b)
	committed := s.head == "own" || s.pending == "own" || s.settled
	for what, l := range held(b) {
		ask := &Pending{Interrupt: interruptOf(l.Run), Run: l.Run, Revision: 1, Request: json.RawMessage(`{}`)}
		deadline := time.Unix(1e6, 0).UTC()
		limited := *ask
		limited.Deadline = &deadline
		next := Head{Rev: b.Head.Rev + 1, Ref: "r", Hash: fmt.Sprint("h", b.Rev), Codec: "c", Size: 9, ByRun: l.Run, Terminal: json.RawMessage(`{}`)}
		skips, others := next, next
		skips.Rev, others.ByRun = next.Rev+1, "run-other"
		ends := []runEnd{
			{"a head", &next, nil, false}, {"a head and an interrupt", &next, ask, false}, {"an interrupt with a deadline", nil, &limited, false},
			{"a head that skips a revision", &skips, nil, true}, {"a head of another run", &others, ask, true},
		}
		if committed && refusal(what) == "" {
			ends = []runEnd{{"the same interrupt", nil, ask, false}}
			if s.head == "own" {
				same := b.Head
				ends = []runEnd{{"the same head", &same, b.Pending, false}}
			}
		}
		for _, end := range ends {
			for _, worker := range []string{"the worker", "an older worker"} {
				gen := b.SandboxGen
				if worker != "the worker" {
					gen--
				}
				out = append(out, call{
					kind: "commit", name: fmt.Sprintf("commit %s of %s by %s", end.name, worker, what), once: true,
					do: func(b Binding) (Binding, []Dropped, error) {
						n, err := Commit(b, l, gen, end.head, end.pending, matrixOp(b))
						return n, nil, err
					},
					want: func(s state, b Binding) (string, result) {
						switch {
						case refusal(what) != "":
							return refusal(what), result{}
						case s.phase == draining:
							return "cleared", result{}
						case committed:
							return "unchanged", result{}
						case !s.sandbox, worker != "the worker", end.bad:
							return "other worker", result{}
						}
						if end.head != nil {
							b.Head = *end.head
						}
						b.Pending = end.pending
						return "", result{binding: b}
					},
				})
			}
		}
	}
	return out
}
