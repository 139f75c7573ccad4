package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// Files in the state folder.
const (
	fileTurns      = "turns.json"
	fileWaiting    = "waiting.json"
	fileUnpackable = "unpackable" // a link, made by the step snapshot_fail: no thread state can hold one
)

// maxWaitingBytes bounds what an interrupted script leaves to play.
const maxWaitingBytes = 32 << 20

// waiting is a script that an interrupt stopped: what waits for the decision, and what is to be played after it.
type waiting struct {
	Version int        `json:"version"`
	Run     string     `json:"run"` // that was interrupted
	Calls   []callStep `json:"calls,omitempty"`
	Form    *formStep  `json:"form,omitempty"`
	Rest    []step     `json:"rest,omitempty"`
}

// store keeps it in the state folder.
type store struct{ dir string }

func (s store) path() string { return filepath.Join(s.dir, fileWaiting) }

func (s store) save(w waiting) error {
	w.Version = 1
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w); err != nil {
		return unwritable(err)
	}
	if b.Len() > maxWaitingBytes {
		return &worker.Failure{
			Category: event.CategoryConfiguration, Code: "script_too_large", Message: "The script after the interrupt is too large to be kept.",
		}
	}
	if err := replaceFile(s.path(), b.Bytes()); err != nil {
		return unwritable(err)
	}
	return nil
}

// load gives what waits; nothing is the zero value.
func (s store) load() (waiting, error) {
	var w waiting
	st, err := os.Stat(s.path())
	if errors.Is(err, os.ErrNotExist) {
		return w, nil
	}
	if err == nil && st.Size() > maxWaitingBytes {
		err = errors.New("the file is too large")
	}
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(s.path())
	}
	if err == nil {
		err = strict(raw, &w)
	}
	if err == nil && w.Version != 1 {
		err = fmt.Errorf("version %d is unknown", w.Version)
	}
	if err != nil {
		return waiting{}, &worker.Failure{
			Category: event.CategoryPersistence, Code: "state_unreadable", Message: "What the conversation waits for cannot be read.", Cause: err,
		}
	}
	return w, nil
}

func (s store) drop() error {
	if err := os.Remove(s.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return unwritable(err)
	}
	return nil
}

func unwritable(err error) error {
	return &worker.Failure{
		Category: event.CategoryPersistence, Code: "state_unwritable", Message: "What the conversation waits for cannot be kept.", Cause: err,
	}
}
