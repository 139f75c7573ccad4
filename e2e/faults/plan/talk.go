package plan

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Policies of a start while another run is active.
const (
	Reject    = "REJECT"
	Enqueue   = "ENQUEUE"
	Interrupt = "INTERRUPT"
)

// Decisions on an interrupt.
const (
	Approve   = "approve"
	Edit      = "edit"
	Refuse    = "reject"
	Dismiss   = "dismiss"
	Supersede = "supersede" // no word on it: the next message takes its place
)

// Ask is one start of a run.
type Ask struct {
	Key     string // idempotency key; its text is also in the message
	Message string
	Policy  string
	Twice   bool // asked for again, at the same time, on another replica
	Differ  bool // afterwards another request is made under the same key
}

// Turn is one step of a conversation.
type Turn struct {
	First  Ask
	Rival  *Ask          // asked for while the first is at work
	Rest   time.Duration // between the two
	Cancel time.Duration // after which the first is cancelled; 0: it is not
	Clear  time.Duration // after which the conversation is cleared; 0: it is not
	// What is said to a question that ends the turn, and whether it is said twice at once, and whether another word
	// follows it.
	Decision           string
	Doubly, Contradict bool
	Leave              int // events after which a watcher goes away and comes back elsewhere; 0: never
}

// Talk is one conversation's side of a plan: an endless row of turns.
type Talk struct {
	N     int
	Node  bool // with the Node harness
	r     *rand.Rand
	turns int
}

// Talk begins the row of conversation n, from 0.
func (p Plan) Talk(n int) *Talk {
	return &Talk{N: n, Node: n < p.Options.Node, r: rand.New(rand.NewPCG(p.Options.Seed, streamTalks+uint64(n)))}
}

// Next draws the next turn.
func (t *Talk) Next() Turn {
	t.turns++
	turn := Turn{First: t.ask("a", t.pick(Reject, Enqueue, Interrupt)), Decision: t.pick(Approve, Approve, Edit, Refuse, Dismiss, Supersede)}
	turn.Doubly, turn.Contradict = t.chance(4), t.chance(5)
	if t.chance(3) {
		rival := t.ask("b", t.pick(Reject, Enqueue, Interrupt))
		turn.Rival, turn.Rest = &rival, t.time(600*time.Millisecond)
	}
	if t.chance(8) {
		turn.Cancel = time.Millisecond + t.time(800*time.Millisecond)
	}
	if t.chance(14) {
		turn.Clear = time.Millisecond + t.time(900*time.Millisecond)
	}
	if t.chance(2) {
		turn.Leave = 1 + t.r.IntN(12)
	}
	return turn
}

func (t *Talk) ask(part, policy string) Ask {
	a := Ask{Key: fmt.Sprintf("k%d-%d%s", t.N, t.turns, part), Policy: policy, Twice: t.chance(4), Differ: t.chance(6)}
	if t.Node {
		a.Message = t.prompt(a.Key)
	} else {
		a.Message = t.script(a.Key)
	}
	return a
}

func (t *Talk) chance(in int) bool { return t.r.IntN(in) == 0 }

func (t *Talk) pick(of ...string) string { return of[t.r.IntN(len(of))] }

func (t *Talk) time(most time.Duration) time.Duration { return upTo(t.r, most) }
