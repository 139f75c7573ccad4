package run

import (
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

// TestPatienceOfACallEndsWithIt: behind a call that was patient, when its worker heard of the cancel is written down. It is for
// the race detector.
func TestPatienceOfACallEndsWithIt(t *testing.T) {
	for range 1000 {
		x := &execution{c: &Coordinator{}, stopping: make(chan struct{})}
		x.c.Limits.CancelGrace = time.Hour
		x.cancel(event.CancelClientRequest)
		_, done := x.patient(t.Context())
		done()
		x.heard = time.Now()
	}
}
