package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

var _ harness.StateKeeper = (*Client)(nil)

// State implements harness.StateKeeper. Reading the body ends with ctx, and with the client. harness.ErrNoState also
// where the state could not be packed; harness.ErrGone when it was committed or another turn has started;
// harness.ErrConflict while the run has not ended.
func (c *Client) State(ctx context.Context, runID string) (harness.State, error) {
	ctx, end := context.WithCancelCause(ctx)
	opening := time.AfterFunc(callTime, func() {
		end(fmt.Errorf("no answer within %v: %w", callTime, harness.ErrUnreachable))
	})
	unlink := context.AfterFunc(c.life, func() { end(errStreamClosed) })
	resp, err := c.send(ctx, http.MethodGet, runPath(runID, "state"), nil) //nolint:bodyclose // closed by whoever reads it
	if inTime := opening.Stop(); err == nil && !inTime {
		resp.Body.Close()
		<-ctx.Done() // the timer has begun to end it
		err = fmt.Errorf("failed to read state of run %s: %w", runID, context.Cause(ctx))
	}
	if err != nil {
		unlink()
		end(err)
		return harness.State{}, err
	}
	s := harness.State{Codec: resp.Header.Get(headerStateCodec), Hash: resp.Header.Get(headerStateHash), Size: resp.ContentLength}
	body := &stateBody{ctx: ctx, body: resp.Body, left: s.Size, done: sync.OnceFunc(func() { unlink(); end(errStreamClosed) })}
	if s.Codec != StateCodec || !hashPattern.MatchString(s.Hash) || s.Size < 0 || s.Size > harness.MaxStateBytes {
		_ = body.Close()
		return harness.State{}, fmt.Errorf("failed to read state of run %s: %w: codec, hash or size is wrong", runID, ErrProtocol)
	}
	s.Body = body
	return s, nil
}

// stateBody gives as many bytes as were announced, or an error.
type stateBody struct {
	ctx  context.Context
	body io.ReadCloser
	left int64
	done func()
}

func (b *stateBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.left -= int64(n)
	switch {
	case err == nil, errors.Is(err, io.EOF) && b.left == 0:
		return n, err
	case context.Cause(b.ctx) != nil:
		err = context.Cause(b.ctx)
	default:
		err = fmt.Errorf("%w: %w", harness.ErrUnreachable, err)
	}
	return n, fmt.Errorf("failed to read thread state: %w", err)
}

func (b *stateBody) Close() error {
	err := b.body.Close()
	b.done()
	return err
}

// Commit implements harness.StateKeeper. harness.ErrConflict when the head is not the state of the run's end. A turn that
// is started with the head does the same.
func (c *Client) Commit(ctx context.Context, runID string, head harness.Head) error {
	return c.call(ctx, callTime, http.MethodPost, runPath(runID, "commit"), commitRequest{Head: head}, nil)
}

// Restore gives a worker that is not bound yet the thread state that it begins with. It is idempotent for the same head;
// after an error nothing of it is there. An error of s.Open or of what it opens is returned as it is, wrapped.
func (c *Client) Restore(ctx context.Context, s harness.Snapshot) error {
	if err := validateHead("head", s.Head); err != nil || s.Rev == 0 || s.Size < 0 || s.Size > harness.MaxStateBytes {
		return fmt.Errorf("failed to restore thread state: revision %d of %d bytes is none: %w", s.Rev, s.Size, errors.Join(err, harness.ErrConflict))
	}
	source, err := s.Open(ctx)
	if err != nil {
		return fmt.Errorf("failed to open thread state %d: %w", s.Rev, err)
	}
	body := &sourceBody{ReadCloser: source}
	ctx, cancel := context.WithTimeoutCause(ctx, restoreTime, fmt.Errorf("no answer within %v: %w", restoreTime, harness.ErrUnreachable))
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	req, err := c.request(ctx, http.MethodPut, "/v1/state", body)
	if err != nil {
		_ = source.Close()
		return err
	}
	req.ContentLength = s.Size
	req.Header.Set(headerStateCodec, s.Codec)
	req.Header.Set(headerStateHash, s.Hash)
	req.Header.Set(headerHeadRev, strconv.FormatInt(s.Rev, 10))
	resp, err := c.do(req)
	if failure := body.failure(); failure != nil {
		err = errors.Join(fmt.Errorf("failed to read thread state %d: %w", s.Rev, failure), err)
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// sourceBody remembers why its source failed: the transport only says that it did.
type sourceBody struct {
	io.ReadCloser
	mu  sync.Mutex
	err error
}

func (b *sourceBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.err = err
	}
	return n, err
}

func (b *sourceBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
