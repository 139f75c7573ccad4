package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// scriptedFeed has what the test gives it.
type scriptedFeed struct {
	mu     sync.Mutex
	items  []resolvers.Item
	end    error // behind the items
	until  time.Time
	notify func()
	dry    bool // notify is due with the next change
	// renew answers Renew; nil: five more seconds.
	renew   func(ctx context.Context) error
	renewed int
}

func (f *scriptedFeed) Poll(context.Context) (resolvers.Item, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.items) > 0 {
		item := f.items[0]
		f.items = f.items[1:]
		f.dry = len(f.items) == 0 && f.end == nil
		item.Waiting = f.dry
		return item, true, nil
	}
	f.dry = f.end == nil
	return resolvers.Item{}, false, f.end
}

func (f *scriptedFeed) Notify(notify func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notify = notify
}

func (f *scriptedFeed) Until() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until
}

func (f *scriptedFeed) Renew(ctx context.Context) error {
	f.mu.Lock()
	f.renewed++
	renew := f.renew
	f.mu.Unlock()
	if renew != nil {
		if err := renew(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = time.Now().Add(5 * time.Second)
	return nil
}

func (f *scriptedFeed) Close() {}

// give adds deliveries, whose cursors are their payloads, and an end behind them.
func (f *scriptedFeed) give(end error, payloads ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range payloads {
		f.items = append(f.items, resolvers.Item{Payload: []byte(p), Cursor: p})
	}
	f.end = end
	if f.dry && f.notify != nil {
		f.dry = false
		f.notify()
	}
}

// pipe is a client: each write with the deadline that it had.
type pipe struct {
	header   http.Header
	mu       sync.Mutex
	status   int
	writes   []string
	deadline time.Time
	late     int // writes without a deadline ahead
	fail     error
}

func (p *pipe) Header() http.Header { return p.header }
func (p *pipe) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return 0, p.fail
	}
	if !p.deadline.After(time.Now()) || p.deadline.After(time.Now().Add(10*time.Second)) {
		p.late++
	}
	p.writes = append(p.writes, string(b))
	return len(b), nil
}
func (p *pipe) FlushError() error                 { return nil }
func (p *pipe) SetReadDeadline(t time.Time) error { return nil }
func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	return nil
}

// take returns what was written since, without heartbeats, and how many of those there were.
func (p *pipe) take() (writes []string, beats int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.writes {
		if w == heartbeat {
			beats++
		} else {
			writes = append(writes, w)
		}
	}
	p.writes = nil
	return writes, beats
}

// following is one stream in a bubble of its own clock.
type following struct {
	feed *scriptedFeed
	pipe *pipe
	end  context.CancelCauseFunc
	done chan error
}

func follow(t *testing.T, feed *scriptedFeed) *following {
	t.Helper()
	if feed.until.IsZero() {
		feed.until = time.Now().Add(5 * time.Second)
	}
	s := &Server{limits: Limits{}.withDefaults()}
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &following{feed: feed, pipe: &pipe{header: http.Header{}}, end: cancel, done: make(chan error, 1)}
	out := s.eventStream(f.pipe)
	go func() {
		f.done <- s.follow(ctx, out, feed, func(i resolvers.Item) { out.message(i.Cursor, "next", i.Payload) })
	}()
	synctest.Wait()
	return f
}

func (f *following) stop() error {
	f.end(errDraining)
	return <-f.done
}

func messages(cursors ...string) string {
	var b strings.Builder
	for _, c := range cursors {
		fmt.Fprintf(&b, "id: %s\nevent: next\ndata: %s\n\n", c, c)
	}
	return b.String()
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// What is there is written at once, in one write; what comes later when it comes.
func TestFollowWritesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &scriptedFeed{}
		feed.give(nil, "1", "2", "3")
		f := follow(t, feed)
		got, beats := f.pipe.take()
		equal(t, "replay", got, messages("1", "2", "3"))
		if beats != 1 || f.pipe.status != 200 || f.pipe.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%d beats, %d, %v", beats, f.pipe.status, f.pipe.header)
		}
		for _, c := range []string{"4", "5"} {
			feed.give(nil, c)
			synctest.Wait()
			got, _ = f.pipe.take()
			equal(t, "live", got, messages(c))
		}
		feed.give(io.EOF, "6")
		if err := <-f.done; !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
		got, _ = f.pipe.take()
		equal(t, "end", got, messages("6"))
		if f.pipe.late > 0 {
			t.Errorf("%d writes without a deadline", f.pipe.late)
		}
	})
}

// However much there is, not more than a burst and one message is held at once.
func TestFollowHoldsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &scriptedFeed{}
		big := strings.Repeat("x", burst/4)
		feed.give(io.EOF, big, big, big, big, big, big, big, big, big)
		f := follow(t, feed)
		<-f.done
		got, _ := f.pipe.take()
		if len(got) < 3 || strings.Join(got, "") != messages(big, big, big, big, big, big, big, big, big) {
			t.Errorf("in %d writes", len(got))
		}
		for _, w := range got {
			if len(w) > burst+len(messages(big)) {
				t.Errorf("a write of %d bytes", len(w))
			}
		}
	})
}

func TestFollowKeepsAnIdleStreamAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &scriptedFeed{})
		f.pipe.take()
		time.Sleep(time.Minute + time.Second) // the bubble's clock
		synctest.Wait()
		if _, beats := f.pipe.take(); beats != 6 {
			t.Errorf("%d beats in a minute", beats)
		}
		if f.feed.renewed < 12 || f.feed.renewed > 16 {
			t.Errorf("asked %d times in a minute", f.feed.renewed)
		}
		if err := f.stop(); !errors.Is(err, errDraining) {
			t.Errorf("ended with %v", err)
		}
	})
}

// While nobody says whether the client still may, nothing is written but heartbeats; what came meanwhile follows.
func TestFollowHoldsWithoutAPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan error)
		feed := &scriptedFeed{renew: func(ctx context.Context) error {
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		f := follow(t, feed)
		f.pipe.take()
		time.Sleep(4500 * time.Millisecond) // it is asked for, and the old one still lasts
		feed.give(nil, "1")
		synctest.Wait()
		got, _ := f.pipe.take()
		equal(t, "in time", got, messages("1"))
		time.Sleep(time.Second)
		feed.give(nil, "2")
		time.Sleep(20 * time.Second)
		got, beats := f.pipe.take()
		equal(t, "held", got)
		if beats != 2 {
			t.Errorf("%d beats meanwhile", beats)
		}
		answer <- nil
		synctest.Wait()
		got, _ = f.pipe.take()
		equal(t, "afterwards", got, messages("2"))

		time.Sleep(6 * time.Second)
		feed.give(nil, "3")
		synctest.Wait()
		revoked := problem.New(problem.Forbidden, "ended")
		answer <- revoked
		if err := <-f.done; !errors.Is(err, revoked) {
			t.Errorf("ended with %v", err)
		}
		got, _ = f.pipe.take()
		equal(t, "after the end", got)
	})
}

// The error of a feed comes behind what was there before it.
func TestFollowEndsWithTheFeedsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed, gone := &scriptedFeed{}, problem.New(problem.CursorExpired, "gone")
		feed.give(gone, "1")
		f := follow(t, feed)
		if err := <-f.done; !errors.Is(err, gone) {
			t.Errorf("ended with %v", err)
		}
		got, _ := f.pipe.take()
		equal(t, "before", got, messages("1"))
	})
}

func TestFollowEndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &scriptedFeed{}
		f := follow(t, feed)
		f.pipe.mu.Lock()
		f.pipe.fail = errors.New("broken pipe")
		f.pipe.mu.Unlock()
		feed.give(nil, "1")
		if err := <-f.done; !errors.Is(err, errGone) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestMessagesHaveOneLineEach(t *testing.T) {
	for raw, want := range map[string]string{
		"{\"a\":\n  [1,\r\n2]}": `{"a":[1,2]}`, `{"a":"b\nc"}`: `{"a":"b\nc"}`, "{}": "{}",
	} {
		if got := string(oneLine([]byte(raw))); got != want {
			t.Errorf("%q: %q", raw, got)
		}
	}
	var e eventStream
	e.message("7", "next", []byte("{}"))
	e.message("", "problem", []byte("{}"))
	e.complete()
	if want := "id: 7\nevent: next\ndata: {}\n\nevent: problem\ndata: {}\n\nevent: complete\ndata: \n\n"; !bytes.Equal(e.buf, []byte(want)) {
		t.Errorf("%q", e.buf)
	}
}
