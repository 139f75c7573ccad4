// Package plan draws what the fault machine does from one number: which faults, in which order and how far apart, and
// what each conversation asks for. The same seed gives the same plan on every machine; only the moments at which its
// parts meet differ.
package plan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Bounds of a plan.
const (
	MaxPoints   = 100_000
	MaxTalks    = 256
	MaxReplicas = 8
)

// Options are everything that a plan depends on.
type Options struct {
	Seed     uint64 `json:"seed"`
	Points   int    `json:"points"`   // 1 to MaxPoints
	Replicas int    `json:"replicas"` // 1 to MaxReplicas
	Talks    int    `json:"talks"`    // conversations at once, 1 to MaxTalks
	Node     int    `json:"node"`     // of them, how many are with the Node harness
	// Lease is how long an engine keeps a run that it does not renew; stops are drawn around it.
	Lease time.Duration `json:"lease"`
	Shims bool          `json:"shims"` // workers have a shim
}

// Check names the field that is out of bounds.
func (o Options) Check() error {
	switch {
	case o.Points < 1 || o.Points > MaxPoints:
		return fmt.Errorf("points is %d, it must be 1 to %d", o.Points, MaxPoints)
	case o.Replicas < 1 || o.Replicas > MaxReplicas:
		return fmt.Errorf("replicas is %d, it must be 1 to %d", o.Replicas, MaxReplicas)
	case o.Talks < 1 || o.Talks > MaxTalks:
		return fmt.Errorf("talks is %d, it must be 1 to %d", o.Talks, MaxTalks)
	case o.Node < 0 || o.Node > o.Talks:
		return fmt.Errorf("node is %d, it must be 0 to talks", o.Node)
	case o.Lease < 100*time.Millisecond || o.Lease > time.Minute:
		return fmt.Errorf("lease is %s, it must be 100ms to 1m", o.Lease)
	}
	return nil
}

// Point is one fault at one moment.
type Point struct {
	N       int           `json:"n"` // from 1
	Kind    Kind          `json:"kind"`
	After   time.Duration `json:"after"`   // since the point before
	Replica int           `json:"replica"` // whom it meets, where it meets a replica
	Pick    uint64        `json:"pick"`    // chooses among what is there: workers
	For     time.Duration `json:"for"`     // how long it lasts, where it lasts
	Pause   time.Duration `json:"pause"`   // until what was killed is started again
}

// String is one line of a printed plan.
func (p Point) String() string {
	s := fmt.Sprintf("%4d +%-4d %-13s replica %d pick %02d", p.N, p.After.Milliseconds(), p.Kind, p.Replica, p.Pick%100)
	if p.For > 0 {
		s += fmt.Sprintf(" for %s", p.For)
	}
	if p.Pause > 0 {
		s += fmt.Sprintf(" pause %s", p.Pause)
	}
	return s
}

// Plan is what one seed means.
type Plan struct {
	Options Options `json:"options"`
	Points  []Point `json:"points"`
}

// String is a line for each point.
func (p Plan) String() string {
	var b strings.Builder
	for _, x := range p.Points {
		b.WriteString(x.String() + "\n")
	}
	return b.String()
}

// Streams of random numbers, one for each purpose: a longer plan begins like a shorter one.
const (
	streamPoints = 1
	streamTalks  = 1 << 20
)

// Times between points.
const (
	gapLeast = 120 * time.Millisecond
	gapMore  = 260 * time.Millisecond
)

// New draws a plan.
func New(o Options) (Plan, error) {
	if err := o.Check(); err != nil {
		return Plan{}, fmt.Errorf("failed to make plan: %w", err)
	}
	r := rand.New(rand.NewPCG(o.Seed, streamPoints))
	p := Plan{Options: o, Points: make([]Point, o.Points)}
	for i := range p.Points {
		p.Points[i] = draw(r, i+1, o)
	}
	return p, nil
}

func draw(r *rand.Rand, n int, o Options) Point {
	p := Point{N: n, Kind: drawKind(r, o), After: gapLeast + upTo(r, gapMore), Replica: r.IntN(o.Replicas), Pick: r.Uint64()}
	length, pause := r.Float64(), r.Float64() // drawn always: a kind's change does not shift what follows
	if l := lasts[p.Kind]; l.most > 0 {
		p.For = round(time.Duration(float64(o.Lease) * (l.least + length*(l.most-l.least))))
	}
	if p.Kind.Ends() {
		p.Pause = round(time.Duration(pause * pause * float64(pauseMost)))
	}
	return p
}

// pauseMost is the longest that a killed engine stays away.
const pauseMost = 1500 * time.Millisecond

func upTo(r *rand.Rand, d time.Duration) time.Duration {
	return round(time.Duration(r.Int64N(int64(d))))
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
