package enginetest

import (
	"time"

	"go.uber.org/goleak"
)

// leakPatience is how long goroutines may take to end, on a machine that is slow.
const leakPatience = time.Minute

// FindLeaks reports goroutines that do not end.
func FindLeaks() error {
	for deadline := time.Now().Add(leakPatience); ; {
		err := goleak.Find() // which waits itself, for a moment
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
