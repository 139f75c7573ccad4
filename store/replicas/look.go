package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxMemberBytes bounds a member file.
const maxMemberBytes = 4 << 10

// member is one file of a living engine.
type member struct {
	path string
	info Info
	beat int64 // nanoseconds of the file's time; only compared for being equal
}

// look reads the member files, and removes those that nobody holds a lock on: their engines are dead.
func look(ctx context.Context, folder string) ([]member, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to list engines: %w", err)
	}
	var out []member
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !strings.HasSuffix(e.Name(), memberSuffix) {
			continue
		}
		switch m, alive, err := lookAt(filepath.Join(folder, e.Name())); {
		case err != nil:
			return nil, err
		case alive:
			out = append(out, m)
		}
	}
	return out, nil
}

func lookAt(path string) (m member, alive bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil // it left between the two looks
	}
	if err != nil {
		return m, false, fmt.Errorf("failed to look at engine: %w", err)
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		// A name is given to one engine only, so nobody can have taken it anew.
		_ = os.Remove(path)
		removeFiles(strings.TrimSuffix(path, memberSuffix))
		return m, false, nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return m, false, fmt.Errorf("failed to look at engine %s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return m, false, fmt.Errorf("failed to look at engine: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxMemberBytes))
	if err != nil {
		return m, false, fmt.Errorf("failed to read engine: %w", err)
	}
	m = member{path: path, beat: info.ModTime().UnixNano()}
	if err := json.Unmarshal(raw, &m.info); err != nil || m.info.ID == "" {
		return m, false, fmt.Errorf("failed to read engine %s: it is no member file", path)
	}
	return m, true, nil
}

// removeFiles removes what an engine that has gone kept beside its member file.
func removeFiles(base string) {
	dir, name := filepath.Split(base)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+".") {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
