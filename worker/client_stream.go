package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// streamAhead is how many steps a client reads ahead of its caller.
const streamAhead = 64

// Events implements harness.Runtime.
func (c *Client) Events(ctx context.Context, runID string, after int64) (harness.Stream, error) {
	// The request lives as long as the stream, not as long as ctx.
	life, end := context.WithCancelCause(c.life)
	opening := time.AfterFunc(callTime, func() {
		end(fmt.Errorf("no answer within %v: %w", callTime, harness.ErrUnreachable))
	})
	unlink := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	resp, err := c.send(life, http.MethodGet, runPath(runID, "events")+"?after="+strconv.FormatInt(after, 10), nil) //nolint:bodyclose // closed where the stream ends
	inTime := opening.Stop()
	if linked := unlink(); err == nil && (!inTime || !linked) {
		resp.Body.Close()
		<-life.Done() // whoever ends it has begun to
		err = fmt.Errorf("failed to open events of run %s: %w", runID, context.Cause(life))
	}
	if err != nil {
		end(err)
		return nil, err
	}
	s := &clientStream{steps: make(chan harness.SourceEvent, streamAhead), end: end, done: make(chan struct{})}
	c.streams.Add(1)
	go func() {
		defer c.streams.Done()
		defer close(s.done)
		defer resp.Body.Close()
		s.err = s.pump(life, resp.Body, after)
		close(s.steps)
	}()
	return s, nil
}

// clientStream implements harness.Stream.
type clientStream struct {
	steps chan harness.SourceEvent // closed when err is set
	err   error
	end   context.CancelCauseFunc
	done  chan struct{}
}

// Next implements harness.Stream.
func (s *clientStream) Next(ctx context.Context) (harness.SourceEvent, error) {
	select {
	case e, ok := <-s.steps:
		if !ok {
			return harness.SourceEvent{}, s.err
		}
		return e, nil
	case <-ctx.Done():
		return harness.SourceEvent{}, context.Cause(ctx)
	}
}

var errStreamClosed = fmt.Errorf("stream was closed: %w", harness.ErrUnreachable)

// Close implements harness.Stream.
func (s *clientStream) Close() error {
	s.end(errStreamClosed)
	<-s.done
	return nil
}

// pump reads lines until the stream ends, and returns why it did. A worker that is silent for too long is lost.
func (s *clientStream) pump(ctx context.Context, body io.ReadCloser, after int64) error {
	defer s.end(errStreamClosed)
	silence := time.AfterFunc(SilenceLimit, func() {
		s.end(fmt.Errorf("worker is silent for %v: %w", SilenceLimit, harness.ErrUnreachable))
	})
	defer silence.Stop()
	lines := bufio.NewReaderSize(body, 64<<10)
	for {
		raw, err := readLine(lines, maxLine)
		switch {
		case errors.Is(err, errLineTooLong):
			return fmt.Errorf("failed to read events: %w: %w", ErrProtocol, err)
		case err != nil:
			if cause := context.Cause(ctx); cause != nil && errors.Is(cause, harness.ErrUnreachable) {
				return cause
			}
			return fmt.Errorf("failed to read events: %w: %w", harness.ErrUnreachable, err)
		}
		silence.Reset(SilenceLimit)
		e, end, err := decodeLine(raw, after+1)
		if end {
			return err
		}
		if e.Seq == 0 {
			continue // a heartbeat
		}
		after = e.Seq
		select {
		case s.steps <- e:
		default: // the caller is slow: that is not the worker's silence
			silence.Stop()
			select {
			case s.steps <- e:
			case <-ctx.Done():
				return errStreamClosed
			}
			silence.Reset(SilenceLimit)
		}
	}
}

var errLineTooLong = errors.New("line is too long")

// readLine returns the next line without its end. The result is valid until the next call.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	part, err := r.ReadSlice('\n')
	if err == nil {
		return bytes.TrimSuffix(part, []byte("\n")), nil
	}
	whole := bytes.Clone(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(whole) > limit {
			return nil, errLineTooLong
		}
		part, err = r.ReadSlice('\n')
		whole = append(whole, part...)
	}
	if err != nil { // a line without its end is cut off: what it says is not to be trusted
		return nil, err
	}
	return bytes.TrimSuffix(whole, []byte("\n")), nil
}

// decodeLine reads one line, which must be the step with the number next or a control line. end says that the stream
// ends with err. A heartbeat is an event with number 0.
func decodeLine(raw []byte, next int64) (e harness.SourceEvent, end bool, err error) {
	violated := func(format string, args ...any) (harness.SourceEvent, bool, error) {
		return harness.SourceEvent{}, true, fmt.Errorf("failed to read events: %w: %w", ErrProtocol, fmt.Errorf(format, args...))
	}
	var l line
	if err := decodeStrict(bytes.NewReader(raw), &l); err != nil {
		return violated("line: %w", err)
	}
	step := l.Seq != 0 || l.Events != nil || l.Facts != nil
	kinds := 0
	for _, is := range []bool{step, l.Heartbeat, l.End, l.Closed != ""} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return violated("line: must be one of step, heartbeat, end and closed")
	}
	switch {
	case l.Heartbeat:
		return e, false, nil
	case l.End:
		return e, true, io.EOF
	case l.Closed != "":
		code := Code(l.Closed)
		if statusOf[code] == 0 {
			return violated("closed: unknown code")
		}
		if code == CodeClosing { // the journal went with the worker; ask again to learn so
			return e, true, fmt.Errorf("worker closed the stream: %w", harness.ErrUnreachable)
		}
		return e, true, &Error{Code: code, Message: "the worker closed the stream"}
	case l.Seq != next:
		return violated("step: number %d, expected %d", l.Seq, next)
	}
	e.Seq, e.Facts = l.Seq, l.Facts
	for _, r := range l.Events {
		decoded, err := event.Decode(r)
		if err != nil {
			return violated("step %d: %w", l.Seq, err)
		}
		e.Events = append(e.Events, decoded)
	}
	return e, false, nil
}

var _ harness.Stream = (*clientStream)(nil)
