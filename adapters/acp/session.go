package acp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode"
	"unicode/utf8"
)

// sessionFile holds the native session's id in the worker's state folder, so that another worker of the conversation
// resumes it.
const sessionFile = "acp-session.json"

const maxSessionID = 512

type sessionRecord struct {
	SessionID string `json:"sessionId"`
}

// StatePaths implements worker.Stateful: the files, relative to the state folder, that another worker needs to go on with
// the conversation.
func (s stateful) StatePaths() []string {
	paths := slices.Clone(s.d.profile.StatePaths)
	if !slices.Contains(paths, sessionFile) {
		paths = append(paths, sessionFile)
	}
	return paths
}

// loadSession reads the native session's id; empty when there is none yet.
func loadSession(folder string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(folder, sessionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("failed to read session file: %w", err)
	}
	var r sessionRecord
	if err := json.Unmarshal(raw, &r); err != nil || !validSessionID(r.SessionID) {
		return "", fmt.Errorf("failed to read session file: damaged")
	}
	return r.SessionID, nil
}

// saveSession makes the native session's id durable: a file is renamed into place only when it is whole.
func saveSession(folder, id string) error {
	raw, err := json.Marshal(sessionRecord{SessionID: id})
	if err != nil {
		return fmt.Errorf("failed to encode session file: %w", err)
	}
	if err := replaceFile(folder, sessionFile, raw); err != nil {
		return fmt.Errorf("failed to write session file: %w", err)
	}
	return nil
}

func replaceFile(folder, name string, content []byte) (err error) {
	f, err := os.CreateTemp(folder, "."+name+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), filepath.Join(folder, name)); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// validSessionID reports whether a native id can be kept and shown in logs.
func validSessionID(id string) bool {
	if id == "" || len(id) > maxSessionID || !utf8.ValidString(id) {
		return false
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}
