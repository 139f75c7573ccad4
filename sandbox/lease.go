package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// A worker remembers the highest lease generation that has called it, and refuses lower ones. One that hangs, or that has
// not come up yet, refuses nothing; so the same is in the file "lease" of the sandbox's folder, with a word when the sandbox is
// being ended. Whoever attaches writes its generation first, whoever ends writes the word first, both under the lock of the
// folder: an engine whose lease is over ends nothing that another one has, and nobody attaches to what is being ended.
const (
	leaseFile = "lease"
	endedWord = "ended"
)

// AnyLease is above every lease generation: of whoever ends a worker that is nobody's.
const AnyLease = math.MaxInt64

// recorded is the content of a lease file.
type recorded struct {
	gen   int64 // highest lease generation; 0: none
	ended bool  // the sandbox is being ended
}

// parseLease reads the content of a lease file. What cannot be read was torn by a machine that lost power, after which no
// worker lives: it says nothing.
func parseLease(s string) recorded {
	number, word, _ := strings.Cut(strings.TrimSuffix(s, "\n"), " ")
	gen, err := strconv.ParseInt(number, 10, 64)
	if err != nil || gen < 0 || word != "" && word != endedWord {
		return recorded{}
	}
	return recorded{gen: gen, ended: word != ""}
}

func (r recorded) String() string {
	if r.ended {
		return fmt.Sprintf("%d %s\n", r.gen, endedWord)
	}
	return fmt.Sprintf("%d\n", r.gen)
}

func readLease(dir string) (recorded, error) {
	raw, err := os.ReadFile(filepath.Join(dir, leaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return recorded{}, nil
	}
	if err != nil {
		return recorded{}, fmt.Errorf("failed to read lease: %w", err)
	}
	return parseLease(string(raw)), nil
}

// holdLease writes down that an engine with this lease generation uses the sandbox. harness.ErrStaleLease where a higher one
// has, harness.ErrGone where the sandbox is gone or being ended, harness.ErrUnreachable where another engine does not let the
// folder go.
func holdLease(ctx context.Context, s Spec, gen int64) error {
	return changeLease(ctx, s, func(r recorded) (recorded, error) {
		switch {
		case r.ended:
			return r, fmt.Errorf("%w: it is being ended", harness.ErrGone)
		case r.gen > gen:
			return r, harness.ErrStaleLease
		}
		return recorded{gen: gen}, nil
	})
}

// endLease writes down that the sandbox is being ended by an engine with this lease generation; harness.ErrStaleLease where a
// higher one has it. A sandbox without a folder has no lease.
func endLease(ctx context.Context, s Spec, gen int64) error {
	err := changeLease(ctx, s, func(r recorded) (recorded, error) {
		if r.gen > gen {
			return r, harness.ErrStaleLease
		}
		return recorded{gen: r.gen, ended: true}, nil
	})
	if errors.Is(err, harness.ErrGone) {
		return nil
	}
	return err
}

func changeLease(ctx context.Context, s Spec, change func(recorded) (recorded, error)) error {
	dir, err := os.Open(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return harness.ErrGone
	}
	if err != nil {
		return err
	}
	defer dir.Close() // which lets the lock go
	if err := lockFolder(ctx, dir); err != nil {
		return fmt.Errorf("%w: %w", harness.ErrUnreachable, err)
	}
	r, err := readLease(s.Dir)
	if err != nil {
		return err
	}
	next, err := change(r)
	if err != nil || next == r {
		return err
	}
	path := filepath.Join(s.Dir, leaseFile)
	if err := os.WriteFile(path+".new", []byte(next.String()), 0o600); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // removed since it was opened
			return harness.ErrGone
		}
		return fmt.Errorf("failed to write lease: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("failed to write lease: %w", err)
	}
	return nil
}
