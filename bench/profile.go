package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"
)

// profiler takes CPU profiles of the engine while it is measured, through `serve --pprof`. A nil one takes none.
type profiler struct {
	addr   string // of the engine's profiling listener
	folder string
}

// newProfiler chooses a free port for the engine's listener.
func newProfiler(folder string) (*profiler, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("failed to find a port for profiles: %w", err)
	}
	defer l.Close()
	return &profiler{addr: l.Addr().String(), folder: folder}, nil
}

func (p *profiler) args() []string {
	if p == nil {
		return nil
	}
	return []string{"--pprof", p.addr}
}

// profileFor is the longest profile; it ends with the measurement, at whatever time that is.
const profileFor = 30 * time.Second

// start begins a profile of the subject if it is the engine. stop ends it and writes the file.
func (p *profiler) start(title string, x subject) (stop func() error) {
	if _, isPeer := x.(*peer); p == nil || isPeer {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.take(ctx, title) }()
	return func() error {
		defer cancel()
		return <-done
	}
}

// profileSeconds fits into the shortest measurement.
const profileSeconds = 3

func (p *profiler) take(ctx context.Context, title string) error {
	ctx, cancel := context.WithTimeout(ctx, profileFor)
	defer cancel()
	raw, err := p.get(ctx, fmt.Sprintf("profile?seconds=%d", profileSeconds))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.folder, fileName(title)+".pprof"), raw, 0o644); err != nil {
		return fmt.Errorf("failed to write a profile: %w", err)
	}
	return nil
}

// self profiles this process, where what is measured is part of it, until stop is called.
func (p *profiler) self(title string) (stop func() error, err error) {
	if p == nil {
		return func() error { return nil }, nil
	}
	f, err := os.Create(filepath.Join(p.folder, fileName(title)+".pprof"))
	if err != nil {
		return nil, fmt.Errorf("failed to make a profile's file: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to begin a profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
