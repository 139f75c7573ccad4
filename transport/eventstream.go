package transport

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/transport"

	"github.com/harness-engine/harness-engine/resolvers"
)

// eventStream is the stock SSE transport, marked as one that carries subscriptions, and ended with the server.
type eventStream struct {
	transport.SSE
	life context.Context
}

// Do implements graphql.Transport. The stock transport's pings come from a goroutine that may outlive the handler, so
// the writer is closed behind it.
func (e eventStream) Do(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	_, ok := w.(http.Flusher)
	if !ok {
		e.SSE.Do(w, r, exec)
		return
	}
	// The request has been read; the listener's deadline for that would end the stream (net/http goes on reading, to see
	// the client leave).
	if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return // the connection is gone
	}
	out := &closingWriter{ResponseWriter: w}
	defer out.close()
	ctx, cancel := context.WithCancelCause(resolvers.WithStream(r.Context(), resolvers.StreamMessages))
	defer cancel(nil)
	defer context.AfterFunc(e.life, func() { cancel(context.Cause(e.life)) })()
	e.SSE.Do(out, r.WithContext(ctx), exec)
}

// closingWriter drops what is written after close.
type closingWriter struct {
	http.ResponseWriter
	mu     sync.Mutex
	closed bool
}

// Write implements io.Writer.
func (w *closingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, http.ErrHandlerTimeout
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *closingWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f, ok := w.ResponseWriter.(http.Flusher); ok && !w.closed {
		f.Flush()
	}
}

func (w *closingWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}
