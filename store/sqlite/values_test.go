package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/harness-engine/harness-engine/store"
)

// TestPutOnce: a put whose outcome is not known is resolved by what is there, also when it takes effect late, and also when it
// is the first write of all, whose failure would fail an engine's start.
func TestPutOnce(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		puts []string // what becomes of each put: "ok", "unknown" and durable, "lost", "late" (durable by the next), "refused"
		want error
	}{
		"goes well":                 {[]string{"ok"}, nil},
		"unknown, and durable":      {[]string{"unknown"}, nil},
		"unknown, and lost":         {[]string{"lost", "ok"}, nil},
		"unknown again and again":   {[]string{"lost", "lost", "lost", "unknown"}, nil},
		"unknown, and late":         {[]string{"late", "ok"}, nil},
		"refused":                   {[]string{"refused"}, refused},
		"unknown, and then refused": {[]string{"lost", "refused"}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			var stored []byte
			var late []byte
			puts := 0
			got, err := putOnce(t.Context(), func() error {
				mine := fmt.Append(nil, "value ", puts)
				first := func(v []byte) {
					if stored == nil {
						stored = v
					}
				}
				if late != nil {
					first(late)
				}
				outcome := test.puts[puts]
				puts++
				switch outcome {
				case "refused":
					return refused
				case "ok", "unknown":
					first(mine)
				case "late":
					late = mine
				}
				if outcome == "ok" {
					return nil
				}
				return fmt.Errorf("%w: test", errUnknown)
			}, func() ([]byte, error) {
				if stored == nil {
					return nil, store.ErrNoValue
				}
				return stored, nil
			})
			if !errors.Is(err, test.want) || err == nil && string(got) != string(stored) || puts != len(test.puts) {
				t.Fatalf("got %q, %v after %d puts; stored is %q", got, err, puts, stored)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	puts := 0
	_, err := putOnce(ctx, func() error {
		puts++
		cancel(gone)
		return errUnknown
	}, func() ([]byte, error) { return nil, store.ErrNoValue })
	if !errors.Is(err, gone) || puts != 1 {
		t.Fatalf("%v after %d puts", err, puts)
	}
}
