package event

import "fmt"

// ExpiredError: retention has taken the events up to Through of an ended run, or is about to, and the read began before
// them. Nothing of the log is shown from there: a reader that wants the rest comes back with Through as its cursor, and
// who wants the run's outcome reads its document, which stays.
type ExpiredError struct {
	RunID   string
	Through int64 // last sequence that is gone
	First   int64 // first sequence that may still be read, Through+1; past the end of the log where all of it is gone
}

// Expired is the error of a read of a run whose events up to through are gone.
func Expired(runID string, through int64) *ExpiredError {
	return &ExpiredError{RunID: runID, Through: through, First: through + 1}
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("event log: the events of %s up to %d have expired", e.RunID, e.Through)
}
