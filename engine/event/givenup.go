package event

import "fmt"

// GivenUpError: the log is damaged, and the run was given up: it ends at Through without a terminal, which is in the run's
// document. What is readable stays so.
type GivenUpError struct {
	RunID   string
	Through int64 // last sequence
}

func (e *GivenUpError) Error() string {
	return fmt.Sprintf("event log: %s was given up at event %d, because its log is damaged", e.RunID, e.Through)
}
