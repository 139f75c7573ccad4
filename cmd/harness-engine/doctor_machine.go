package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/broker"
	"github.com/harness-engine/harness-engine/worker"
)

// Bounds of what a check calls fine.
const (
	leastDisk     = 256 << 20 // bytes free, below which the engine soon refuses work
	ampleDisk     = 2 << 30
	answerTimeout = 10 * time.Second // of an HTTP server, on a machine that is slow
)

// longestSocket is the longest path of a socket within the data folder.
var longestSocket = filepath.Join(dirSandboxes, "sbx", "sbx_01234567890123456789", "s")

func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("failed to resolve %s: %w", path, err)
	}
	return abs, nil
}

// existing is the path, or the folder above it that is there.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

func checkDataFolder(_ context.Context, c doctorCmd) []finding {
	const name = "data folder"
	help := "choose another folder with --data, or give this user the right to write there"
	dir := existing(c.Data)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return []finding{{name, verdictMissing, c.Data + " cannot be looked at: " + err.Error(), help}}
	case !info.IsDir():
		return []finding{{name, verdictMissing, dir + " is no folder", help}}
	}
	switch err := tryWrite(dir); {
	case err != nil:
		return []finding{{name, verdictMissing, dir + " cannot be written to: " + err.Error(), help}}
	case dir != c.Data:
		return []finding{{name, verdictOK, c.Data + " (the engine makes it)", ""}}
	case info.Mode().Perm()&0o077 != 0:
		return []finding{{name, verdictNote, c.Data + " may be looked into by other users", "chmod 700 " + c.Data}}
	}
	return []finding{{name, verdictOK, c.Data, ""}}
}

// tryWrite makes a file and removes it: rights alone do not tell, for instance of a disk that is mounted read-only.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func checkDisk(_ context.Context, c doctorCmd) []finding {
	const name, help = "disk", "make room, or choose a folder on another disk with --data"
	var s unix.Statfs_t
	if err := unix.Statfs(existing(c.Data), &s); err != nil {
		return []finding{{name, verdictNote, "the room on the disk cannot be told: " + err.Error(), ""}}
	}
	free := s.Bavail * uint64(s.Bsize)
	detail := fmt.Sprintf("%.1f GiB free", float64(free)/(1<<30))
	switch {
	case free < leastDisk:
		return []finding{{name, verdictMissing, detail, help}}
	case free < ampleDisk:
		return []finding{{name, verdictNote, detail, help}}
	}
	return []finding{{name, verdictOK, detail, ""}}
}

func checkSocketPath(_ context.Context, c doctorCmd) []finding {
	const name = "socket paths"
	longest := len(filepath.Join(c.Data, longestSocket))
	detail := fmt.Sprintf("%d bytes of at most %d", longest, worker.MaxSocketPath)
	if over := longest - worker.MaxSocketPath; over > 0 {
		return []finding{{name, verdictMissing, detail, fmt.Sprintf("choose a data folder whose path is %d bytes shorter with --data", over)}}
	}
	return []finding{{name, verdictOK, detail, ""}}
}

// checkEngine says whether an engine runs on the data folder, and otherwise whether one could listen.
func checkEngine(ctx context.Context, c doctorCmd) []finding {
	const name = "engine"
	running, err := dataFolder(c.Data).running(ctx)
	if err == nil {
		switch status, err := answer(ctx, running.url()+"/readyz"); {
		case err != nil:
			return []finding{{name, verdictNote, fmt.Sprintf("process %d is there, but does not answer at %s", running.PID, running.url()), "see its log"}}
		case status != http.StatusOK:
			return []finding{{name, verdictNote, fmt.Sprintf("running at %s, but not ready (%d)", running.url(), status), "see its log"}}
		}
		return []finding{{name, verdictOK, fmt.Sprintf("running at %s, ready", running.url()), ""}}
	}
	return append([]finding{{name, verdictNote, "not running on this data folder", "start one: harness-engine serve --dev --data " + quote(c.Data)}}, checkPort(ctx, c)...)
}

func checkPort(ctx context.Context, c doctorCmd) []finding {
	const name = "port"
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return []finding{{name, verdictMissing, "nothing can listen on " + c.Addr + ": " + err.Error(), "choose another address with --addr"}}
	}
	_ = l.Close() // it was only a try
	return []finding{{name, verdictOK, c.Addr + " is free", ""}}
}

// answer is the status that a server answers with.
func answer(ctx context.Context, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	res.Body.Close()
	return res.StatusCode, nil
}

// checkModelKeys says which providers are configured, and never what a key is.
func checkModelKeys(context.Context, doctorCmd) []finding {
	const name = "model keys"
	configured := broker.UpstreamsFromEnv(os.Getenv)
	if len(configured) == 0 {
		return []finding{{name, verdictNote, "none: `serve --dev` answers with the built-in fake model",
			"set ANTHROPIC_API_KEY or OPENAI_API_KEY for the engine"}}
	}
	var with, without []string
	for _, provider := range slices.Sorted(maps.Keys(configured)) {
		if configured[provider].Key == "" {
			without = append(without, provider)
		} else {
			with = append(with, provider)
		}
	}
	if len(without) > 0 {
		return []finding{{name, verdictNote, "address without a key: " + strings.Join(without, ", "), "set the key unless the address needs none"}}
	}
	return []finding{{name, verdictOK, strings.Join(with, ", "), ""}}
}

func checkOpenFGA(ctx context.Context, c doctorCmd) []finding {
	const name = "OpenFGA"
	if c.OpenFGAURL == "" {
		return []finding{{name, verdictOK, "embedded", ""}}
	}
	status, err := answer(ctx, strings.TrimSuffix(c.OpenFGAURL, "/")+"/healthz")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("it answers %d", status)
	}
	if err != nil {
		return []finding{{name, verdictMissing, "the server cannot be reached: " + err.Error(), "start it, or leave --openfga-url out for the embedded one"}}
	}
	return []finding{{name, verdictOK, "your server answers", ""}}
}
