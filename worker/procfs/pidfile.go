package procfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// pidFile names a process beyond doubt: by id, start time and boot.
type pidFile struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"` // of the machine, from the kernel
}

const maxPidFile = 1 << 10

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("failed to read boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// WriteFile writes which process this is to a file that only its user can read.
func WriteFile(path string) error {
	self, err := Read(os.Getpid())
	if err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(pidFile{PID: self.PID, Start: self.Start, Boot: boot})
	if err != nil {
		return fmt.Errorf("failed to write pid file: %w", err)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, raw, 0o600); err != nil {
		return fmt.Errorf("failed to write pid file: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("failed to write pid file: %w", err)
	}
	return nil
}

// ReadFile returns the process that wrote the file, or ErrGone when it has ended or there is no file. A zombie has
// ended.
func ReadFile(path string) (Process, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return Process{}, ErrGone
	}
	if err != nil {
		return Process{}, fmt.Errorf("failed to read pid file: %w", err)
	}
	defer f.Close()
	var want pidFile
	if err := json.NewDecoder(io.LimitReader(f, maxPidFile)).Decode(&want); err != nil {
		return Process{}, fmt.Errorf("failed to read pid file: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return Process{}, err
	}
	if boot != want.Boot || want.PID <= 0 {
		return Process{}, ErrGone
	}
	p, err := Read(want.PID)
	if err != nil {
		return Process{}, err
	}
	if p.Start != want.Start || p.Zombie() {
		return Process{}, ErrGone
	}
	return p, nil
}
