package enginetest

import (
	"io"
	"sync"
)

// maxTail is how much of an engine's log is kept for messages, in bytes.
const maxTail = 64 << 10

// tail keeps the end of what is written to it and passes everything on.
type tail struct {
	also io.Writer // may be nil

	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer. It never fails: a log is not worth a failed process.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.also != nil {
		_, _ = t.also.Write(p)
	}
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxTail; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
