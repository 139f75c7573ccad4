package process

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/harness"
)

func BenchmarkStartToFirstEvent(b *testing.B) {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, _, err := newManager(dir, workerPath)
	if err != nil {
		b.Fatal(err)
	}
	n := int64(0)
	for b.Loop() {
		n++
		bind := harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: n}
		r, err := m.Start(b.Context(), bind, 1, m.Reserve(bind), construction(""), nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.StartTurn(b.Context(), harness.Turn{RunID: "run_1", Text: "x"}); err != nil {
			b.Fatal(err)
		}
		s, err := r.Events(b.Context(), "run_1", 0)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		r.Close()
		if err := m.Destroy(b.Context(), m.Reserve(bind), math.MaxInt64); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkEvents(b *testing.B) {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, _, err := newManager(dir, workerPath)
	if err != nil {
		b.Fatal(err)
	}
	r, err := m.Start(b.Context(), binding, 1, m.Reserve(binding), construction(""), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { r.Close(); _ = m.Destroy(context.Background(), m.Reserve(binding), math.MaxInt64) }()
	if err := r.StartTurn(b.Context(), harness.Turn{RunID: "run_1", Text: `{"text":{"chunk":1,"value":"` + strings.Repeat("x", 1_000_000) + `"}}`}); err != nil {
		b.Fatal(err)
	}
	s, err := r.Events(b.Context(), "run_1", 0)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		e, err := s.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if e.Seq%512 == 0 {
			if err := r.Ack(b.Context(), "run_1", e.Seq); err != nil {
				b.Fatal(err)
			}
		}
	}
}
