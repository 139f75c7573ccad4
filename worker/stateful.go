package worker

import (
	"github.com/harness-engine/harness-engine/engine/event"
)

// Stateful is a Driver whose native state can go on elsewhere. When a turn has ended the host packs what the paths hold,
// before the turn's terminal can be read; the engine stores it and makes it the head of the conversation. A worker
// begins with exactly the head: before Open the host empties the state folder and restores the head, or nothing where
// there is none. What is in the state folder beside the paths is therefore a cache.
//
// Packing takes regular files and folders; anything else below a path (links, sockets, devices) makes it fail, and the
// turn is then not committed.
type Stateful interface {
	Driver
	// StatePaths lists files and folders relative to Environment.State, with slashes, none above another; what does not
	// exist is left out. No paths mean that the driver keeps no state after all. It is called before Open too; the driver
	// writes nothing below the paths between its turns.
	StatePaths() []string
}

// Parker is a Driver whose interrupted turn can wait for the decision inside this process: Turn returns after it has
// yielded interrupt.requested and run.interrupted while the native call still waits, and a later Turn with t.Resume
// goes on with it, or returns InterruptLost where nothing waits. What waits must not depend on the context of the turn
// that ended; the model cannot be reached meanwhile. A Turn without t.Resume supersedes what waits: the driver ends it
// first. A cancel of the interrupted run ends the driver's processes, and with them what waits.
//
// While something waits the worker is not ended as idle, and lives longer without an engine.
type Parker interface {
	Driver
	// Parked reports whether a native call waits for a decision. It is called at any time, also while other methods run,
	// and must not block.
	Parked() bool
}

// CodeRunInterruptLost is the code of the run.error of a resume whose interrupt is not there any more.
const CodeRunInterruptLost = "interrupt_lost"

// InterruptLost is the failure of a resume that finds nothing to go on with.
func InterruptLost(cause error) *Failure {
	return &Failure{
		Category: event.CategoryUnavailable, Code: CodeRunInterruptLost, Cause: cause,
		Message: "What waited for the decision was lost with its process.",
	}
}
