package plan

import "math/rand/v2"

// Kind is a kind of fault.
type Kind string

// The kinds.
const (
	EngineKill Kind = "engine-kill" // SIGKILL
	StartKill  Kind = "start-kill"  // SIGKILL, and again while the next one starts and takes over what the one before left
	EngineTerm Kind = "engine-term" // SIGTERM: it hands over
	EngineStop Kind = "engine-stop" // SIGSTOP, longer than the lease, then SIGCONT
	AllKill    Kind = "all-kill"    // SIGKILL of every replica at once
	WorkerKill Kind = "worker-kill" // SIGKILL of one worker, of nothing below it
	WorkerStop Kind = "worker-stop" // SIGSTOP, then SIGCONT
	ShimKill   Kind = "shim-kill"   // SIGKILL of the process above one worker
	SocketCut  Kind = "socket-cut"  // every client connection of a replica is reset
	SocketHold Kind = "socket-hold" // nothing passes between clients and a replica, for a time, then all of it
	SocketShut Kind = "socket-shut" // clients reach no replica, for a time; what is open is reset
	ModelCut   Kind = "model-cut"   // every connection to the model provider is reset
	// The next transaction of a replica's store:
	StoreDelay   Kind = "store-delay"   // begins late, past a takeover
	StoreHold    Kind = "store-hold"    // keeps the database locked before its commit
	StoreRefuse  Kind = "store-refuse"  // writes nothing
	StoreUnknown Kind = "store-unknown" // is committed, but said to be of unknown outcome
	StoreIO      Kind = "store-io"      // fails with an I/O error
	StoreFsync   Kind = "store-fsync"   // fails at the sync, its frames in the file
	StoreFull    Kind = "store-full"    // finds no room, as do all others for a time
	StoreLie     Kind = "store-lie"     // writes nothing and says that it did; never drawn: it is there to prove the machine
)

// weights are how often a kind is drawn, out of their sum.
var weights = []struct {
	kind Kind
	n    int
}{
	{EngineKill, 13}, {StartKill, 4}, {EngineTerm, 4}, {EngineStop, 8}, {AllKill, 2},
	{WorkerKill, 12}, {WorkerStop, 6}, {ShimKill, 4},
	{SocketCut, 12}, {SocketHold, 4}, {SocketShut, 3}, {ModelCut, 5},
	{StoreDelay, 6}, {StoreHold, 3}, {StoreRefuse, 4}, {StoreUnknown, 5}, {StoreIO, 3}, {StoreFsync, 3}, {StoreFull, 4},
}

// Kinds lists all kinds.
func Kinds() []Kind {
	var out []Kind
	for _, w := range weights {
		out = append(out, w.kind)
	}
	return out
}

func drawKind(r *rand.Rand, o Options) Kind {
	total := 0
	for _, w := range weights {
		total += w.n
	}
	n := r.IntN(total)
	for _, w := range weights {
		if n -= w.n; n < 0 {
			return w.kind.possible(o)
		}
	}
	panic("unreachable: the numbers are below the sum of the weights")
}

// possible is the kind, or the one next to it where the options leave it without a meaning.
func (k Kind) possible(o Options) Kind {
	switch {
	case k == ShimKill && !o.Shims:
		return WorkerKill
	case k == ModelCut && o.Node == 0:
		return SocketCut
	case k == AllKill && o.Replicas == 1:
		return EngineKill
	}
	return k
}

// Ends says whether an engine ends by the fault and is started again.
func (k Kind) Ends() bool {
	switch k {
	case EngineKill, StartKill, EngineTerm, AllKill, StoreIO, StoreFsync:
		return true
	}
	return false
}

// lasts are the lengths of faults that last, in leases.
var lasts = map[Kind]struct{ least, most float64 }{
	EngineStop: {1.1, 3},
	StartKill:  {0, 0.6},
	WorkerStop: {0.1, 2},
	SocketHold: {0.1, 1},
	SocketShut: {0.1, 1},
	StoreDelay: {0.1, 3},
	StoreHold:  {0.1, 1.5},
	StoreFull:  {0.2, 2},
}

// Order is the order for the store that the kind means, or "".
func (k Kind) Order() string {
	return map[Kind]string{
		StoreDelay: "delay", StoreHold: "hold", StoreRefuse: "refuse", StoreUnknown: "unknown",
		StoreIO: "io", StoreFsync: "fsync", StoreFull: "full", StoreLie: "lie",
	}[k]
}
