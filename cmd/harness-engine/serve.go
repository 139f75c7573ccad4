package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/harness-engine/harness-engine/transport/auth"
)

// drainTimeout bounds a graceful shutdown, and deadTimeout that of an engine whose store is dead: it can end nothing that it has
// begun, and its runs wait for another engine.
const (
	drainTimeout = 20 * time.Second
	deadTimeout  = 500 * time.Millisecond
)

// Bounds of --lease.
const (
	minLease = 500 * time.Millisecond
	maxLease = time.Minute
)

// devSubject is who the token belongs to that --dev prints.
const devSubject = "dev"

type serveCmd struct {
	Dev         bool   `help:"Development: print a token at start, allow harnesses without certification and workers without isolation, and answer model calls with the built-in fake where no key is set."`
	Addr        string `default:"127.0.0.1:8080" help:"Where to listen; port 0 takes a free one."`
	Data        string `default:"data" type:"path" help:"Folder for everything the engine keeps. Several engines of one host may share it."`
	Environment string `default:"default" help:"Name of this deployment; part of who owns what."`

	Admin         []string `help:"Subjects that administer the platform."`
	AllowedOrigin []string `help:"Web origins that may call the API, beside the engine's own."`
	Playground    bool     `default:"true" negatable:"" help:"Serve /playground."`

	AllowUnisolated   bool          `help:"Allow workers that are ordinary processes of this user. Each run says so."`
	AllowExperimental bool          `help:"Allow harnesses without certification."`
	DisableHarness    []string      `help:"Harnesses that agents may not use."`
	WorkerBinary      string        `type:"path" help:"The harness-worker binary; default: beside this one."`
	NodeDir           string        `type:"path" help:"Folder of the Node agents; default: worker/node beside this binary's folder."`
	MaxRuns           int           `default:"256" help:"Runs that may be in work at once."`
	MaxWorkers        int           `default:"32" help:"Workers that may live at once."`
	MaxRunTime        time.Duration `default:"1h" help:"Longest run of an agent that sets no limit."`
	IdleWorker        time.Duration `default:"10m" help:"How long a worker waits for the next turn of its conversation."`
	InterruptDeadline time.Duration `default:"24h" help:"How long a person has to decide an interrupt of an agent that sets no limit."`

	MaxStreams          int `default:"10000" help:"WebSockets and event streams that may be open at once."`
	MaxCallerStreams    int `default:"1000" help:"Of them those of one caller."`
	MaxOperations       int `default:"256" help:"Operations that are executed at once; others wait, and callers take turns."`
	MaxCallerOperations int `default:"32" help:"Of them those of one caller."`

	Retain time.Duration `default:"0" help:"How long the log of a run is kept after the run's end, for instance 720h; 0: for ever. The run itself stays."`

	Lease time.Duration `default:"3s" help:"How long an engine that does not say that it lives keeps its runs; the same for all on the data folder. 500ms to 1m."`

	FakeModel bool `help:"Answer all model calls with the built-in fake."`

	OpenFGAURL   string `name:"openfga-url" help:"An OpenFGA server of yours; default: an embedded one."`
	OpenFGAStore string `name:"openfga-store" help:"Id of the store on it; default: found or made by name."`
	OpenFGAModel string `name:"openfga-model" help:"Id of the authorization model; default: the engine's own, written where it is missing."`
	OpenFGAToken string `name:"openfga-token" help:"Bearer token for it."`

	Pprof    string     `placeholder:"ADDR" help:"Serve profiles of this process (net/http/pprof) at this loopback address; off by default."`
	LogLevel slog.Level `default:"info" help:"debug, info, warn or error."`
}

// Help is shown by serve --help.
func (serveCmd) Help() string {
	return `Model keys are read from ANTHROPIC_API_KEY and OPENAI_API_KEY (with ANTHROPIC_BASE_URL and OPENAI_BASE_URL for another
address). They stay in this process: workers reach the model through a proxy.

SIGTERM and Ctrl-C drain: clients are moved on, and runs in work go on in their workers until another engine on the data
folder, or the next start, takes them over.`
}

func (c serveCmd) Run(ctx context.Context) error {
	if !c.Dev {
		return errors.New("serve needs --dev: development tokens are the only way to authenticate so far")
	}
	if c.Dev {
		c.AllowUnisolated, c.AllowExperimental = true, true
		if !slices.Contains(c.Admin, devSubject) {
			c.Admin = append(c.Admin, devSubject)
		}
	}
	if c.Retain < 0 {
		return fmt.Errorf("--retain is %s, it must not be negative", c.Retain)
	}
	if c.Lease < minLease || c.Lease > maxLease {
		return fmt.Errorf("--lease is %s, it must be %s to %s", c.Lease, minLease, maxLease)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	slog.SetDefault(log)

	if c.Pprof != "" {
		stop, err := servePprof(c.Pprof, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("failed to listen on %s: %w", c.Addr, err)
	}
	defer func() { _ = listener.Close() }()

	addr := listener.Addr().String()
	e, err := assemble(ctx, c, addr, log)
	if err != nil {
		return err
	}
	if err := c.announce(e.tokens, addr, e.fake != nil); err != nil {
		return errors.Join(err, e.close(context.WithoutCancel(ctx)))
	}
	err = e.serve(ctx, listener)
	log.Info("shutting down")
	ending, cancel := e.ending(ctx)
	defer cancel()
	return errors.Join(err, e.close(ending))
}

// announce prints where the engine is to be found. Standard output has only this, one line each; logs go to standard error.
func (c serveCmd) announce(tokens *auth.Dev, addr string, fake bool) error {
	fmt.Printf("listening on http://%s\n", addr)
	if fake {
		fmt.Println("model: the built-in fake (set ANTHROPIC_API_KEY or OPENAI_API_KEY for a real one)")
	}
	token, err := tokens.MintDev(devSubject, 24*time.Hour)
	if err != nil {
		return err
	}
	if c.Playground {
		fmt.Printf("playground: http://%s/playground#token=%s\n", addr, token)
	}
	fmt.Printf("token: %s\n", token)
	return nil
}
