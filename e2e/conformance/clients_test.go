package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHearing reads what programs print: single events, GraphQL results with batches, canonical events.
func TestHearing(t *testing.T) {
	want := []enginetest.Event{}
	for _, e := range []struct {
		sequence    int64
		kind, delta string
	}{{1, "run.started", ""}, {2, "text.delta", "a"}, {3, "reasoning.delta", "not compared"}, {4, "run.finished", ""}} {
		one, err := reduced(e.sequence, e.kind, e.delta)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, one)
	}
	for name, said := range map[string]string{
		"events": `agent A
run run_1
{"sequence":1,"type":"run.started"}
{"type":"text.delta","sequence":2,"delta":"a"}
{"sequence":3,"type":"reasoning.delta"}
{"sequence":4,"type":"run.finished"}
complete
`,
		"results": `agent A
run run_1
{"data":{"runEvents":{"events":[{"sequence":1,"type":"run.started"},{"sequence":2,"type":"text.delta","delta":"a"}]}}}
{"data":{"runEvents":{"events":[{"sequence":3,"type":"reasoning.delta"},{"sequence":4,"type":"run.finished"}]}}}
complete
`,
		"canonical events": `agent A
run run_1
{"version":1,"type":"run.started","sequence":1,"data":{"harness":"scripted"}}
{"version":1,"type":"text.delta","sequence":2,"data":{"messageId":"m","delta":"a"}}
{"version":1,"type":"reasoning.delta","sequence":3,"data":{"messageId":"m","delta":"b"}}
{"version":1,"type":"run.finished","sequence":4,"data":{"outcome":"success"}}
complete
`,
	} {
		t.Run(name, func(t *testing.T) {
			h := &hearing{settled: make(chan struct{})}
			if err := h.read(t.Context(), strings.NewReader(said)); err != nil {
				t.Fatal(err)
			}
			if h.agent != "A" || h.run != "run_1" || !h.complete {
				t.Errorf("heard agent %q, run %q, complete %t", h.agent, h.run, h.complete)
			}
			if d := enginetest.Compare(h.events, want); !d.None() {
				t.Errorf("heard something else: %s", d)
			}
			for what, doctored := range map[string][]enginetest.Event{
				"lost":    h.events[1:],
				"doubled": append(h.events[:len(h.events):len(h.events)], h.events[3]),
				"swapped": {h.events[0], h.events[2], h.events[1], h.events[3]},
			} {
				if enginetest.Compare(doctored, want).None() {
					t.Errorf("what was %s is not noticed", what)
				}
			}
			other, err := reduced(2, "text.delta", "b")
			if err != nil {
				t.Fatal(err)
			}
			if enginetest.Compare([]enginetest.Event{h.events[0], other, h.events[2], h.events[3]}, want).None() {
				t.Error("another text is not noticed")
			}
		})
	}
	if err := (&hearing{}).read(t.Context(), strings.NewReader("Error: nothing works\n")); err == nil {
		t.Error("what is no event is taken")
	}
}

// TestProxyCuts: the client gets a part of what comes next, and then nothing.
func TestProxyCuts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := newProxy(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	client, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	before, next := []byte("whole"), bytes.Repeat([]byte("part"), 100)
	if _, err := server.Write(before); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(before))
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, before) {
		t.Fatalf("got %q, %v", got, err)
	}
	if err := p.cutAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write(next); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(client) // a reset or an end
	if len(rest) >= len(next) || !bytes.HasPrefix(next, rest) {
		t.Errorf("got %d bytes of %d", len(rest), len(next))
	}

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.cutAll(gone); err == nil {
		t.Error("a connection that is gone was cut")
	}
}
