package acp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
)

// Errors of a connection.
var (
	errClosed    = errors.New("agent closed the connection")
	errViolation = errors.New("agent broke the protocol")
)

// handler takes what the agent sends by itself. The connection calls it from one goroutine and reads nothing while it
// runs, so a handler that blocks pauses the agent.
type handler interface {
	notification(method string, params json.RawMessage)
	// request answers a request of the agent; nil says that the answer comes later, with reply.
	request(id json.RawMessage, method string, params json.RawMessage) *answer
}

// answer is the outcome of a request of the agent.
type answer struct {
	result any
	err    *RPCError
}

// conn is the client's side of one agent process's standard streams.
type conn struct {
	log     *slog.Logger
	handler handler
	out     chan []byte
	done    chan struct{} // closed when nothing more is read
	loops   sync.WaitGroup

	mu      sync.Mutex
	next    int64
	waiting map[int64]chan message
	err     error // why done is closed
	garbage int
}

func newConn(h handler, log *slog.Logger) *conn {
	return &conn{
		log: log, handler: h, out: make(chan []byte, maxReplies), done: make(chan struct{}),
		waiting: map[int64]chan message{},
	}
}

// dial starts to read from and write to the agent. The caller ends the connection by closing both streams, and then
// calls wait.
func dial(stdin io.WriteCloser, stdout io.Reader, h handler, log *slog.Logger) *conn {
	c := newConn(h, log)
	c.loops.Add(2)
	go c.read(stdout)
	go c.write(stdin)
	return c
}

// wait blocks until the connection's goroutines have ended.
func (c *conn) wait() { c.loops.Wait() }

// failure says why the connection ended.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// call sends a request and waits for its answer: *RPCError when the agent refused, errClosed or errViolation when the
// connection ended.
func (c *conn) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	answer, err := c.start(ctx, method, params)
	if err != nil {
		return nil, err
	}
	return c.await(ctx, answer)
}

// start sends a request; its answer arrives on the channel.
func (c *conn) start(ctx context.Context, method string, params any) (<-chan message, error) {
	answer := make(chan message, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.waiting[id] = answer
	c.mu.Unlock()
	if err := c.send(ctx, outgoing{ID: id, Method: method, Params: params}); err != nil {
		c.forget(id)
		return nil, err
	}
	return answer, nil
}

func (c *conn) await(ctx context.Context, answer <-chan message) (json.RawMessage, error) {
	select {
	case m := <-answer:
		return m.outcome()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.done:
	}
	select { // the answer may have come just before the end
	case m := <-answer:
		return m.outcome()
	default:
		return nil, c.failure()
	}
}

func (m message) outcome() (json.RawMessage, error) {
	if m.Error != nil {
		return nil, m.Error
	}
	return m.Result, nil
}

// reply gives the late answer to a request of the agent.
func (c *conn) reply(ctx context.Context, id json.RawMessage, a answer) error {
	return c.send(ctx, outgoing{ID: id, Result: a.result, Error: a.err})
}

// notify sends a notification.
func (c *conn) notify(ctx context.Context, method string, params any) error {
	return c.send(ctx, outgoing{Method: method, Params: params})
}

func (c *conn) send(ctx context.Context, o outgoing) error {
	line, err := o.encode()
	if err != nil {
		return err
	}
	select {
	case c.out <- line:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
		return c.failure()
	}
}

func (c *conn) forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *conn) write(w io.WriteCloser) {
	defer c.loops.Done()
	for {
		select {
		case line := <-c.out:
			if _, err := w.Write(line); err != nil {
				return // the reader sees the end, too, and tells
			}
		case <-c.done:
			return
		}
	}
}

func (c *conn) read(r io.Reader) {
	defer c.loops.Done()
	c.end(c.readLines(r))
}

// end says that nothing more is read, and why.
func (c *conn) end(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	close(c.done)
}

// readLines reads until the stream ends or the agent has broken the protocol.
func (c *conn) readLines(r io.Reader) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	for s.Scan() {
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := c.line(line); err != nil {
			return err
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line above %d bytes: %w", maxLine, errViolation)
	}
	if s.Err() != nil {
		return fmt.Errorf("failed to read from agent: %w", errors.Join(errClosed, s.Err()))
	}
	return errClosed
}

func (c *conn) line(line []byte) error {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return c.discard("not JSON")
	}
	switch m.kind() {
	case kindRequest:
		return c.answer(m)
	case kindNotification:
		c.handler.notification(m.Method, m.Params)
	case kindResponse:
		return c.resolve(m)
	default:
		return c.discard("not JSON-RPC")
	}
	return nil
}

// answer serves a request of the agent. An agent that asks without reading the answers is cut off.
func (c *conn) answer(m message) error {
	now := c.handler.request(m.ID, m.Method, m.Params)
	if now == nil {
		return nil
	}
	line, err := outgoing{ID: m.ID, Result: now.result, Error: now.err}.encode()
	if err != nil {
		return err
	}
	select {
	case c.out <- line:
		return nil
	default:
		return fmt.Errorf("answers are not read: %w", errViolation)
	}
}

func (c *conn) resolve(m message) error {
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	c.mu.Lock()
	answer, known := c.waiting[id]
	delete(c.waiting, id)
	given := id > 0 && id <= c.next
	c.mu.Unlock()
	switch {
	case err == nil && known:
		answer <- m
		return nil
	case err == nil && given:
		return nil // the answer to a call that nobody waits for any more
	}
	return c.discard("answer to no request")
}

// discard counts a line that means nothing. Some programs print a warning or two where the protocol should be.
func (c *conn) discard(why string) error {
	c.mu.Lock()
	c.garbage++
	n := c.garbage
	c.mu.Unlock()
	c.log.Warn("agent wrote a line that is not of the protocol", "why", why, "count", n)
	if n > maxGarbage {
		return fmt.Errorf("%d lines that are not of the protocol: %w", n, errViolation)
	}
	return nil
}
