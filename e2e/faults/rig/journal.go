package rig

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// journal tells what was done when.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func newJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failed to make journal: %w", err)
	}
	return &journal{file: f}, nil
}

func (j *journal) write(what, text string, about ...any) {
	line, err := json.Marshal(struct {
		At    time.Time `json:"at"`
		What  string    `json:"what"`
		Text  string    `json:"text,omitempty"`
		About []any     `json:"about,omitempty"`
	}{time.Now(), what, text, about})
	if err != nil {
		return // a journal is not worth a failed run
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.file.Write(append(line, '\n'))
}

func (j *journal) close() { _ = j.file.Close() }
