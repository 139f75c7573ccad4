package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Bounds of what is remembered.
const (
	maxTurns     = 200
	maxTurnBytes = 2 << 10
	maxFileBytes = 4 << 20
)

// memory is what the user said in earlier turns of the conversation, in the state folder.
type memory struct {
	path  string
	turns []string // oldest first
}

type memoryFile struct {
	Version int      `json:"version"`
	Turns   []string `json:"turns"`
}

func openMemory(state string) (*memory, error) {
	m := &memory{path: filepath.Join(state, fileTurns)}
	st, err := os.Stat(m.path)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read turns: %w", err)
	}
	if st.Size() > maxFileBytes {
		return nil, errors.New("failed to read turns: the file is too large")
	}
	raw, err := os.ReadFile(m.path)
	if err != nil {
		return nil, fmt.Errorf("failed to read turns: %w", err)
	}
	var f memoryFile
	if err := strict(raw, &f); err != nil || f.Version != 1 {
		return nil, fmt.Errorf("failed to read turns: the file is not what was written: %w", err)
	}
	m.turns = f.Turns
	return m, nil
}

// add remembers a turn durably: the file is always either the old or the new one.
func (m *memory) add(text string) error {
	turns := append(m.turns, cut(text))
	turns = turns[max(0, len(turns)-maxTurns):]
	raw, err := json.Marshal(memoryFile{Version: 1, Turns: turns})
	if err != nil {
		return fmt.Errorf("failed to write turns: %w", err)
	}
	if err := replaceFile(m.path, raw); err != nil {
		return fmt.Errorf("failed to write turns: %w", err)
	}
	m.turns = turns
	return nil
}

func cut(text string) string {
	if len(text) <= maxTurnBytes {
		return text
	}
	n := maxTurnBytes
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// replaceFile writes a file beside the old one, makes it durable and puts it in the old one's place.
func replaceFile(path string, raw []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".turns-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails when the renaming went well
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// recall is what is remembered, as a message.
func recall(turns []string) string {
	var b strings.Builder
	switch len(turns) {
	case 0:
		return "I remember nothing."
	case 1:
		b.WriteString("I remember 1 message:")
	default:
		fmt.Fprintf(&b, "I remember %d messages:", len(turns))
	}
	for i, t := range turns {
		fmt.Fprintf(&b, "\n%d. %s", i+1, t)
	}
	return b.String()
}
