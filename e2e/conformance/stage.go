package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/openfga"
)

// What the engine of the stage is given beside its defaults.
const (
	callerStreams = 60 // streams of one caller
	allStreams    = 300
	scripted      = "scripted"
)

// stage is an engine with an OpenFGA server outside of it, so that a permission can be taken away under its feet.
type stage struct {
	dir    string // of this package
	data   string
	fga    *openfga.Embedded
	tuples *openfga.Client
	engine *enginetest.Engine
	client *enginetest.Client // the development subject, an administrator
}

func newStage(ctx context.Context, bin, dir string, verbose bool) (_ *stage, err error) {
	binaries, err := enginetest.FindBinaries(bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		return nil, fmt.Errorf("the clients are not installed: run `make conformance-client`: %w", err)
	}
	s := &stage{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.data, err = os.MkdirTemp("", "harness-conf-"); err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	if s.fga, err = openfga.StartEmbedded(ctx, openfga.EmbeddedOptions{Path: filepath.Join(s.data, "outside.sqlite"), Logger: quiet}); err != nil {
		return nil, err
	}
	var log io.Writer
	if verbose {
		log = os.Stderr
	}
	s.engine, err = enginetest.Start(ctx, enginetest.Options{
		Binaries: binaries, Data: filepath.Join(s.data, "engine"), Log: log,
		Args: []string{
			"--openfga-url", s.fga.Endpoint(), "--openfga-token", s.fga.Token(),
			"--max-caller-streams", strconv.Itoa(callerStreams), "--max-streams", strconv.Itoa(allStreams),
			"--idle-worker", "5s",
		},
	})
	if err != nil {
		return nil, err
	}
	s.client = s.engine.Client()
	s.tuples, err = openfga.NewClient(ctx, openfga.ClientOptions{Endpoint: s.fga.Endpoint(), Token: s.fga.Token(), Logger: quiet})
	return s, err
}

// close ends the engine, what it left, and the rest.
func (s *stage) close() error {
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Cleanup())
	}
	if s.client != nil {
		s.client.Close()
	}
	if s.tuples != nil {
		s.tuples.Close()
	}
	if s.fga != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		errs = append(errs, s.fga.Close(ctx))
	}
	if s.data != "" {
		errs = append(errs, os.RemoveAll(s.data))
	}
	return errors.Join(errs...)
}

// address is where the engine listens, host:port.
func (s *stage) address() string { return strings.TrimPrefix(s.engine.URL(), "http://") }

// closeMembership takes the platform from everybody but its administrator.
func (s *stage) closeMembership(ctx context.Context) error {
	return s.tuples.Apply(ctx, authz.Platform(), authz.PlatformTuples([]string{"dev"}, nil, false))
}

// node is a Node program of this package, with what the client programs are told.
func (s *stage) node(ctx context.Context, file string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", append([]string{file}, args...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "TOKEN="+s.client.Target().Token)
	return cmd
}

// audit runs the audits of graphql-http.
func audit(ctx context.Context, s *stage) error {
	cmd := s.node(ctx, "audits.mjs", s.engine.URL()+"/graphql")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("not every audit of graphql-http is ok: %w", err)
	}
	return nil
}
