package worker

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker/folder"
)

// StateCodec is the form of the thread states that workers pack and restore.
const StateCodec = folder.Codec

// Bounds of a thread state beside harness.MaxStateBytes.
const (
	MaxStateContent = 256 << 20 // bytes of its files together
	MaxStateEntries = 20_000    // files and folders

	packTime    = time.Minute
	restoreTime = 2 * time.Minute
)

var stateLimits = folder.Limits{Packed: harness.MaxStateBytes, Content: MaxStateContent, Entries: MaxStateEntries}

// thread is the native state as the host knows it. Host.mu guards it.
type thread struct {
	restored bool         // the state folder was filled from head
	head     harness.Head // state that the next turn may start from; what the engine committed
	last     *packed      // state as of the end of the last turn, until the next begins; nil where none ended here
}

// packed is the native state at the end of a run: a file, or why there is none.
type packed struct {
	run       string
	file      string
	hash      string
	size      int64
	err       error
	committed bool
}

// drop removes the file. Whoever reads it goes on reading.
func (p *packed) drop() {
	if p != nil && p.file != "" {
		_ = os.Remove(p.file)
		p.file = ""
	}
}

func (p *packed) uncommitted() bool { return p != nil && !p.committed }

// begin lets a turn start from the head that the engine names: the one that this worker has, or the one that the last
// turn's state has become. An engine need not have said so by a commit: that it knows the hash says as much.
func (t *thread) begin(head harness.Head) *Error {
	last := t.last
	switch {
	case !last.uncommitted() && head == t.head:
	case last.uncommitted() && last.err == nil && head.Hash == last.hash && head.Rev >= t.head.Rev:
		t.head = head
	default:
		return staleHead
	}
	last.drop()
	t.last = nil
	return nil
}

// commit makes the last turn's state the head. That it is the head already is no error, whichever run made it.
func (t *thread) commit(run string, head harness.Head) *Error {
	last := t.last
	switch {
	case head == t.head && !last.uncommitted():
		return nil
	case last.uncommitted() && last.run == run && last.err != nil:
		return stateFailed
	case last.uncommitted() && last.run == run && head.Hash == last.hash && head.Rev > t.head.Rev:
		t.head, last.committed = head, true
		last.drop()
		return nil
	}
	return staleHead
}

var (
	staleHead   = &Error{Code: CodeStaleHead, Message: "this worker has another thread state"}
	noState     = &Error{Code: CodeNoState, Message: "the harness keeps no state that could be committed"}
	stateFailed = &Error{Code: CodeStateFailed, Message: "the state of the run's end could not be packed"}
)

// Commit tells that the state of the run's end is the head.
func (h *Host) Commit(c Caller, runID string, head harness.Head) error {
	if err := validateHead("head", head); err != nil {
		return err
	}
	if head.Rev == 0 {
		return bad("head.rev", "must be at least 1")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter(c); err != nil {
		return err
	}
	if _, ok := h.runs[runID]; ok || head != h.thread.head { // an engine may ask a worker that began with the head
		if err := h.keeper(c, runID); err != nil {
			return err
		}
	}
	if err := h.thread.commit(runID, head); err != nil {
		return err
	}
	return nil
}

// keeper checks the caller of State and Commit: the run has ended, on a harness that keeps state. The caller holds h.mu.
func (h *Host) keeper(c Caller, runID string) error {
	t, err := h.find(c, runID)
	switch {
	case err != nil:
		return err
	case t == h.active:
		return &Error{Code: CodeBusy, Message: "the run has not ended"}
	}
	if statePaths(h.driver) == nil {
		return noState
	}
	return nil
}

// statePaths is what the driver keeps between turns, nil where it keeps nothing.
func statePaths(d Driver) []string {
	if s, ok := d.(Stateful); ok {
		if paths := s.StatePaths(); len(paths) > 0 {
			return paths
		}
	}
	return nil
}

// State opens the packed state of the run's end. The caller closes the file, and calls leave.
func (h *Host) State(c Caller, runID string) (f *os.File, p packed, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.keeper(c, runID); err != nil {
		return nil, packed{}, nil, err
	}
	switch last := h.thread.last; {
	case last == nil || last.run != runID || last.committed:
		return nil, packed{}, nil, &Error{Code: CodeGone, Message: "the state was committed, or another turn has started"}
	case last.err != nil:
		return nil, packed{}, nil, stateFailed
	default:
		if f, err = os.Open(last.file); err != nil {
			return nil, packed{}, nil, fmt.Errorf("failed to open packed state of run %s: %w", runID, err)
		}
		return f, *last, h.attendance.enter(), nil
	}
}

// pack keeps the native state of a turn that has ended, before anybody can read its terminal. A driver that did not
// return may still write, so there is nothing to keep then.
func (h *Host) pack(t *turn, stuck bool) *packed {
	paths := statePaths(h.driver)
	if paths == nil {
		return nil
	}
	p := &packed{run: t.spec.RunID}
	if stuck {
		p.err = errors.New("the driver did not return")
		return p
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), packTime, errors.New("it takes too long"))
	defer cancel()
	packing := make(chan struct{})
	defer close(packing)
	go func() {
		select {
		case <-t.gaveUp:
			cancel()
		case <-packing:
		}
	}()
	begin := time.Now()
	if p.err = guarded(func() error { return h.packTo(ctx, paths, p) }); p.err != nil {
		h.o.Log.Error("failed to pack thread state, the turn will not be committed", "run", p.run, "error", p.err)
		p.drop()
		return p
	}
	h.o.Log.Debug("thread state packed", "run", p.run, "bytes", p.size, "took", time.Since(begin))
	return p
}

func (h *Host) packTo(ctx context.Context, paths []string, p *packed) error {
	f, err := h.scratch("state")
	if err != nil {
		return err
	}
	p.file = f.Name()
	sum := newSum()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 256<<10)
	err = folder.Pack(ctx, w, h.o.State, paths, stateLimits)
	if err = errors.Join(err, w.Flush(), f.Close()); err != nil {
		return err
	}
	p.hash, p.size = sum.hex(), sum.n
	return nil
}

// scratch makes a file that only this worker can read.
func (h *Host) scratch(kind string) (*os.File, error) {
	f, err := os.CreateTemp(h.o.Scratch, "."+h.instance+"-"+kind+"-*")
	if err != nil {
		return nil, fmt.Errorf("failed to make file for thread state: %w", err)
	}
	return f, nil
}

// sum is what is known of bytes that were written to it.
type sum struct {
	hash.Hash
	n int64
}

func newSum() *sum { return &sum{Hash: sha256.New()} }

func (s *sum) Write(p []byte) (int, error) {
	s.n += int64(len(p))
	return s.Hash.Write(p)
}

func (s *sum) hex() string { return hex.EncodeToString(s.Sum(nil)) }

// Restore fills the state folder with a thread state, before Bind. It is idempotent for the same head. Nothing of what
// the folder held before is left, and when it fails nothing is there. As with Bind, whoever knows the secret may.
func (h *Host) Restore(ctx context.Context, codec string, head harness.Head, size int64, body io.Reader) error {
	if err := validateHead("head", head); err != nil {
		return err
	}
	switch {
	case codec != StateCodec:
		return bad(headerStateCodec, "unknown codec")
	case head.Rev == 0:
		return bad(headerHeadRev, "must be at least 1")
	case size < 0 || size > harness.MaxStateBytes:
		return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("a thread state has at most %d bytes", harness.MaxStateBytes)}
	}
	again, err := h.beginRestore(head)
	if err != nil || again {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, restoreTime, errors.New("it takes too long"))
	defer cancel()
	failure := h.restore(ctx, head, size, body)
	if failure != nil {
		if err := folder.Empty(h.o.State); err != nil {
			failure = errors.Join(failure, err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == restoring {
		h.state = unbound
	}
	if failure != nil {
		h.o.Log.Error("failed to restore thread state", "revision", head.Rev, "error", failure)
		return failure
	}
	h.thread.restored, h.thread.head = true, head
	return nil
}

// beginRestore reports whether the head is there already.
func (h *Host) beginRestore(head harness.Head) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state == closing:
		return false, &Error{Code: CodeClosing, Message: "this worker is stopping"}
	case h.state == restoring:
		return false, &Error{Code: CodeBusy, Message: "a thread state is being restored"}
	case h.state != unbound:
		return false, &Error{Code: CodeConflict, Message: "this worker serves a binding already"}
	case h.thread.restored && h.thread.head != head:
		return false, &Error{Code: CodeConflict, Message: "another thread state was restored"}
	case h.thread.restored:
		return true, nil
	}
	h.attendance.touch()
	h.state = restoring
	return false, nil
}

func (h *Host) restore(ctx context.Context, head harness.Head, size int64, body io.Reader) error {
	f, err := h.scratch("restore")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	sum := newSum()
	if _, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(body, size+1)); err != nil {
		return fmt.Errorf("failed to receive thread state: %w", err)
	}
	switch {
	case sum.n != size:
		return bad("", "the body has not the size that was announced")
	case sum.hex() != head.Hash:
		return bad(headerStateHash, "the body has another hash")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("failed to read thread state: %w", err)
	}
	if err := folder.Empty(h.o.State); err != nil {
		return err
	}
	err = folder.Unpack(ctx, f, h.o.State, stateLimits)
	for _, of := range []error{folder.ErrDamaged, folder.ErrKind, folder.ErrTooLarge} {
		if errors.Is(err, of) {
			return errors.Join(bad("", "the body is not a packed thread state"), err)
		}
	}
	return err
}

// prepare makes the state folder hold exactly the head before a driver opens that keeps state.
func (h *Host) prepare(d Driver) error {
	h.mu.Lock()
	restored := h.thread.restored
	h.mu.Unlock()
	switch stateful := statePaths(d) != nil; {
	case stateful && !restored:
		return folder.Empty(h.o.State)
	case !stateful && restored:
		return &Failure{
			Category: event.CategoryPersistence, Code: "state_not_restored",
			Message: "The harness keeps no state that could be restored.",
		}
	}
	return nil
}

// dropPacked removes what was packed, at the end of the host.
func (h *Host) dropPacked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.thread.last.drop()
}

// scratchDir is where packed states are when nothing else is said.
func scratchDir(dir string) string {
	if dir == "" {
		return filepath.Clean(os.TempDir())
	}
	return dir
}
