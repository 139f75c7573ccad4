package main

import (
	"fmt"
	"os"
	"sync"
)

// maxLogBytes bounds a log file; with the one before it a worker's log takes at most twice this.
const maxLogBytes = 1 << 20

// logFile is a file that starts afresh when it is full. The full one is kept, the one before that is not.
type logFile struct {
	path  string
	limit int64

	mu   sync.Mutex
	file *os.File
	size int64
}

func openLog(path string, limit int64) (*logFile, error) {
	l := &logFile{path: path, limit: limit}
	if err := l.open(os.O_APPEND); err != nil {
		return nil, err
	}
	st, err := l.file.Stat()
	if err != nil {
		return nil, fmt.Errorf("failed to open log: %w", err)
	}
	l.size = st.Size()
	return l, nil
}

func (l *logFile) open(how int) error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|how, 0o600)
	if err != nil {
		return fmt.Errorf("failed to open log: %w", err)
	}
	l.file = f
	return nil
}

// Write implements io.Writer. A log that cannot be written never stops the worker.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return len(b), nil
	}
	if l.size > 0 && l.size+int64(len(b)) > l.limit {
		l.turn()
		if l.file == nil {
			return len(b), nil
		}
	}
	n, _ := l.file.Write(b)
	l.size += int64(n)
	return len(b), nil
}

func (l *logFile) turn() {
	_ = l.file.Close()
	l.file = nil
	_ = os.Rename(l.path, l.path+".1")
	if l.open(os.O_TRUNC) == nil {
		l.size = 0
	}
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
