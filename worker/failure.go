package worker

import "github.com/harness-engine/harness-engine/engine/event"

// Failure is an error of a driver whose code and message are safe to show. A driver may return it from Open and Turn;
// any other error is logged and shown as an internal one.
type Failure struct {
	Category     event.Category
	Code         string // stable, at most 128 bytes
	Message      string // for people; holds no path, address, credential or provider text
	Retryable    bool
	RetryAfterMs int64
	Cause        error // for the log only
}

func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Unwrap gives the internal cause.
func (f *Failure) Unwrap() error { return f.Cause }
