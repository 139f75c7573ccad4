package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/worker"
	"github.com/harness-engine/harness-engine/worker/procfs"
	"github.com/harness-engine/harness-engine/worker/shim"
)

// Bounds of what the worker reads at its start.
const (
	minSecret = 16
	maxSecret = 1 << 10
)

// linkMargin is how much longer than itself the shim waits before it ends a worker that nobody looks after.
const linkMargin = 15 * time.Second

// run serves until the host has stopped.
func run(o options) error {
	callSelf("harness-worker")
	// What this worker makes is its user's alone, and other processes of that user cannot read its memory: the secret and
	// the journal are in it.
	unix.Umask(0o077)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("failed to protect memory: %w", err)
	}
	// The engine, its terminal and its connection may go; the worker stays.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)

	log, closeLog, err := logger(o)
	if err != nil {
		return err
	}
	defer closeLog()
	secret, err := readSecret(o.SecretFile)
	if err != nil {
		return err
	}
	for flag, dir := range map[string]string{"state": o.State, "workspace": o.Workspace, "scratch": o.Scratch} {
		if flag == "scratch" && dir == "" {
			continue
		}
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return fmt.Errorf("failed to use --%s: not a folder", flag)
		}
	}
	if o.PidFile != "" {
		if err := procfs.WriteFile(o.PidFile); err != nil {
			return err
		}
	}
	l, err := worker.Listen(o.Socket)
	if err != nil {
		return err
	}
	h, err := worker.NewHost(worker.HostOptions{
		Drivers: drivers(o), Workspace: o.Workspace, State: o.State, Scratch: o.Scratch, Mark: o.Mark,
		OrphanTTL: o.OrphanTTL, ParkedTTL: o.ParkedTTL, Record: os.Getenv(worker.RecordVariable), Log: log,
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		log.Info("stopping", "signal", (<-stop).String())
		h.Stop()
	}()
	server := worker.NewServer(h, secret, log)
	if o.LinkFD != 0 {
		link, err := shim.OpenLink(o.LinkFD)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		go link.Vouch(context.Background(), h.Allowance, min(linkMargin, o.OrphanTTL))
		go func() {
			link.Gone()
			log.Error("the shim is gone, and so is this worker")
			server.Abort() // so that nobody reads the end of a run into what comes now
			h.Abandon()
			os.Exit(1)
		}()
	}
	log.Info("listening", "instance", h.Instance())
	if err := tellReady(o.ReadyFD); err != nil {
		// Whoever started it is dead, and nobody else can bind a worker that was never handed out.
		log.Warn("nobody waits for this worker", "error", err)
		h.Stop()
	}
	err = server.Serve(l)
	h.Stop()
	log.Info("stopped", "instance", h.Instance())
	return err
}

// runShim is the parent of a worker.
func runShim(o shimOptions) error {
	callSelf("harness-shim")
	unix.Umask(0o077)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("failed to protect memory: %w", err)
	}
	if o.Detach {
		args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool { return a == "--detach" })
		return shim.Detach(args)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("shim", os.Getpid())
	args := o.Args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	return shim.Run(shim.Options{Args: args, PidFile: o.PidFile, Lock: o.Lock, Owner: o.Owner, Claim: o.Claim, TTL: o.TTL, Log: log})
}

// callSelf sets what ps(1) and top(1) show, at most 15 bytes: a shim starts programs as /proc/self/exe.
func callSelf(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("failed to read secret: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("failed to read secret: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return "", errors.New("failed to read secret: the file can be read by others")
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("failed to read secret: %w", err)
	}
	secret := strings.TrimSpace(string(raw))
	if len(secret) < minSecret || len(raw) > maxSecret {
		return "", fmt.Errorf("failed to read secret: it must have %d to %d characters", minSecret, maxSecret)
	}
	return secret, nil
}

// tellReady writes a line to the descriptor and closes it. Whoever started the worker sees either the line or, when
// the worker dies before it, the end.
func tellReady(fd uint) error {
	if fd == 0 {
		return nil
	}
	f := os.NewFile(uintptr(fd), "ready")
	if f == nil {
		return errors.New("not a descriptor")
	}
	_, err := io.WriteString(f, "ready\n")
	return errors.Join(err, f.Close())
}

func logger(o options) (*slog.Logger, func(), error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.LogLevel)); err != nil {
		return nil, nil, fmt.Errorf("failed to read --log-level: %w", err)
	}
	out, closeOut := io.Writer(os.Stderr), func() {}
	if o.LogFile != "" {
		f, err := openLog(o.LogFile, maxLogBytes)
		if err != nil {
			return nil, nil, err
		}
		out, closeOut = f, f.close
	}
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})), closeOut, nil
}
