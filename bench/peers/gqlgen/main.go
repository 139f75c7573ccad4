// Command gqlgen serves the benchmark's subscription with gqlgen's stock executor and stock WebSocket transport, and a
// channel a subscriber. It is what the engine would be without a transport and an encoder of its own.
package main

//go:generate go tool -modfile=../../../tools/go.mod gqlgen generate

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/harness-engine/harness-engine/bench/peers/gqlgen/graph"
	"github.com/harness-engine/harness-engine/bench/peers/play"
)

// queued is how many events may wait for one subscriber.
const queued = 64

// hub knows the subscribers of each run. It implements the resolvers.
type hub struct {
	mu   sync.Mutex
	runs map[string]map[chan *graph.RunEventBatch]context.Context
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "gqlgen:", err)
		os.Exit(1)
	}
	h := &hub{runs: map[string]map[chan *graph.RunEventBatch]context.Context{}}
	executor := handler.New(graph.NewExecutableSchema(graph.Config{Resolvers: h}))
	executor.AddTransport(transport.Websocket{})
	executor.SetQueryCache(lru.New[*ast.QueryDocument](100))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /play", play.Handler(h.publish))
	mux.Handle("/graphql", executor)
	play.Announce(l.Addr().String())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if err := server.Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, "gqlgen:", err)
		os.Exit(1)
	}
}

// Query implements graph.ResolverRoot.
func (h *hub) Query() graph.QueryResolver { return h }

// Subscription implements graph.ResolverRoot.
func (h *hub) Subscription() graph.SubscriptionResolver { return h }

// Ready implements graph.QueryResolver.
func (h *hub) Ready(context.Context) (bool, error) { return true, nil }

// RunEvents implements graph.SubscriptionResolver.
func (h *hub) RunEvents(ctx context.Context, runID string, _ int) (<-chan *graph.RunEventBatch, error) {
	c := make(chan *graph.RunEventBatch, queued)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[runID] == nil {
		h.runs[runID] = map[chan *graph.RunEventBatch]context.Context{}
	}
	h.runs[runID][c] = ctx
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.runs[runID], c); len(h.runs[runID]) == 0 {
			delete(h.runs, runID)
		}
	})
	return c, nil
}

// publish hands the event to each subscriber of its run, and waits for those whose queue is full.
func (h *hub) publish(e play.Event) {
	batch := &graph.RunEventBatch{Events: []graph.RunEvent{model(e)}, Through: e.Sequence, CaughtUp: true}
	h.mu.Lock()
	subscribers := make(map[chan *graph.RunEventBatch]context.Context, len(h.runs[e.RunID]))
	for c, ctx := range h.runs[e.RunID] {
		subscribers[c] = ctx
	}
	h.mu.Unlock()
	for c, ctx := range subscribers {
		select {
		case c <- batch:
		case <-ctx.Done():
		}
	}
}

func model(e play.Event) graph.RunEvent {
	none := []string{}
	switch e.Type {
	case play.RunStarted:
		return graph.RunStartedEvent{RunID: e.RunID, Sequence: e.Sequence, Time: e.Stamp(), Namespace: none, Type: e.Type}
	case play.TextStarted:
		return graph.TextStartedEvent{RunID: e.RunID, Sequence: e.Sequence, Time: e.Stamp(), Namespace: none, Type: e.Type, MessageID: e.MessageID, Role: e.Role}
	case play.TextDelta:
		return graph.TextDeltaEvent{RunID: e.RunID, Sequence: e.Sequence, Time: e.Stamp(), Namespace: none, Type: e.Type, MessageID: e.MessageID, Delta: e.Delta}
	case play.TextFinished:
		return graph.TextFinishedEvent{RunID: e.RunID, Sequence: e.Sequence, Time: e.Stamp(), Namespace: none, Type: e.Type, MessageID: e.MessageID}
	default:
		return graph.RunFinishedEvent{RunID: e.RunID, Sequence: e.Sequence, Time: e.Stamp(), Namespace: none, Type: e.Type}
	}
}
