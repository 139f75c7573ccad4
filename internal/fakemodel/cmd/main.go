// Command cmd serves the fake model endpoint on a loopback address until it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

type cli struct {
	Listen     string        `help:"Address to listen on; port 0 picks a free one." default:"127.0.0.1:18080"`
	APIKey     string        `help:"Refuse requests without this key." env:"FAKE_MODEL_API_KEY"`
	DeltaDelay time.Duration `help:"Pause before each delta of text." default:"15ms"`
}

func main() {
	var c cli
	kong.Parse(&c, kong.Description("A model endpoint scripted by markers in the user's text; see docs/fake-model.md."))
	if err := c.run(); err != nil {
		fmt.Fprintln(os.Stderr, "fakemodel:", err)
		os.Exit(1)
	}
}

func (c cli) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("failed to listen on %s: %w", c.Listen, err)
	}
	fmt.Printf("fake model endpoint at http://%s\n", l.Addr())
	srv := &http.Server{
		Handler: fakemodel.New(fakemodel.Options{
			APIKey: c.APIKey, DeltaDelay: c.DeltaDelay, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("failed to serve: %w", err)
	case <-ctx.Done():
	}
	// A hanging reply would wait for ever: close, rather than drain.
	if err := srv.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("failed to close: %w", err)
	}
	return nil
}
