package worker

import "fmt"

// ExitError says how a process ended when it did not end with code 0.
type ExitError struct {
	Code   int    // exit code, -1 when a signal ended it
	Signal string // name of the signal, empty when it exited
}

func (e *ExitError) Error() string {
	if e.Signal != "" {
		return "process ended by signal " + e.Signal
	}
	return fmt.Sprintf("process ended with exit code %d", e.Code)
}
