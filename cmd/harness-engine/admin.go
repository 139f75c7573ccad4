package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/engine/replica"
	"github.com/harness-engine/harness-engine/engine/retention"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/replicas"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// adminCmd is for the operator, who can read the data folder: no token, no engine is asked.
type adminCmd struct {
	Verify    verifyCmd    `cmd:"" help:"Check that logs are whole and documents say what the logs say. Reads only; engines may be at work."`
	Repair    repairCmd    `cmd:"" help:"Write documents anew from their logs where they differ. Never touches a log or a blob."`
	Backup    backupCmd    `cmd:"" help:"Copy everything into an empty folder while engines are at work, and check the copy."`
	Restore   restoreCmd   `cmd:"" help:"Make a data folder of a backup."`
	ExpireRun expireRunCmd `cmd:"" help:"Take the log of an ended run away, as retention does."`
}

// dataFlag is the data folder of commands that need one that is there.
type dataFlag struct {
	Data string `default:"data" type:"path" help:"Folder of the engine's data."`
}

func (d dataFlag) path(name string) string { return filepath.Join(d.Data, name) }

// quietLog tells an administrator warnings only.
func quietLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// open opens the store for reading only.
func (d dataFlag) open(ctx context.Context) (*sqlite.Store, *files.Reader, error) {
	s, err := sqlite.OpenReader(ctx, sqlite.Options{Path: d.path(fileStore), Logger: quietLog()})
	if err != nil {
		return nil, nil, err
	}
	blobs, err := files.NewReader(d.path(dirBlobs))
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, blobs, nil
}

// openShared opens the store for writing too, beside engines that have it open. Whoever commits has to be known to the others,
// and to know them: one that stands still in a commit is in everybody's way, and is ended (decision 0009).
func (d dataFlag) openShared(ctx context.Context) (_ *sqlite.Store, leave func(), err error) {
	if _, err := os.Stat(d.path(fileStore)); err != nil {
		return nil, nil, fmt.Errorf("no engine has run with the data folder %s: %w", d.Data, err)
	}
	log := quietLog()
	self := id.New(id.Boot)
	lease := replica.DefaultLease
	engines, err := replicas.Living(ctx, d.path(dirReplicas))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range engines {
		lease = max(lease, e.Lease)
	}
	member, err := replicas.Join(replicas.Options{Folder: d.path(dirReplicas), Info: replicas.Info{ID: self, PID: os.Getpid(), Tool: true}, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	roster := replica.NewRoster(replica.RosterOptions{Self: self, Directory: member, Lease: lease, Logger: log})
	looking, halt := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); roster.Run(looking) }()
	quit := func() {
		halt()
		<-done
		if err := member.Leave(); err != nil {
			log.Warn("not left", "error", err)
		}
	}
	s, err := sqlite.Open(ctx, sqlite.Options{Path: d.path(fileStore), Logger: log, Blocked: func(pid int) {
		killed, err := member.End(context.WithoutCancel(ctx), pid, roster.Still)
		if killed || err != nil {
			log.Error("who had stopped in a commit was ended, so that others can write", "pid", pid, "error", err)
		}
	}})
	if err != nil {
		quit()
		return nil, nil, err
	}
	return s, func() {
		if err := s.Close(); err != nil {
			log.Warn("store not closed", "error", err)
		}
		quit()
	}, nil
}

// progress tells on standard error what is being looked at.
func progress(noun string, done int64) { fmt.Fprintf(os.Stderr, "looked at %d %s\n", done, noun) }

type verifyCmd struct {
	dataFlag
	Pause time.Duration `default:"5s" help:"How long to wait before something that looks wrong is looked at again: longer than the lease of engines that are at work; 0 where none is."`
	JSON  bool          `name:"json" help:"Print the report as JSON."`
	Quiet bool          `help:"No progress on standard error."`
}

// Help is shown by admin verify --help.
func (verifyCmd) Help() string {
	return `Prints a line for each finding and a summary; the exit code is 1 when there is a finding. What an engine has begun and not
finished, and for which the store holds all that is needed, is counted as unsettled and is no finding.`
}

func (c verifyCmd) Run(ctx context.Context) error {
	s, blobs, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	report, err := integrity.Verify(ctx, c.options(s, blobs))
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(report)
	} else {
		for _, f := range report.Findings {
			fmt.Println(f)
		}
		for _, f := range report.Unsettled {
			fmt.Println("unsettled:", f)
		}
		fmt.Println(report.Summary())
	}
	if err == nil && len(report.Findings) > 0 {
		return exitCode(1)
	}
	return err
}

func (c verifyCmd) options(s *sqlite.Store, blobs *files.Reader) integrity.Options {
	o := integrity.Options{Source: s, Blobs: blobs, Pause: c.Pause}
	if !c.Quiet {
		o.Progress = progress
	}
	return o
}

func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("failed to print: %w", err)
	}
	return nil
}

type repairCmd struct {
	verifyCmd
	DryRun bool `help:"Change nothing, and say what would be changed."`
}

// Help is shown by admin repair --help.
func (repairCmd) Help() string {
	return `Verifies first, and then writes run documents anew from their logs and frees conversations of runs that have ended. A run
that an engine has halted because its log is damaged is given up: it becomes FAILED, and its conversation goes on. Prints what it changed, and what it cannot repair; the exit code is 1 when there is something of the latter.`
}

func (c repairCmd) Run(ctx context.Context) error {
	s, leave, err := c.openShared(ctx)
	if err != nil {
		return err
	}
	defer leave()
	blobs, err := files.NewReader(c.path(dirBlobs))
	if err != nil {
		return err
	}
	done, err := integrity.Repair(ctx, integrity.RepairOptions{
		Options: c.options(s, blobs), Runs: s, Sessions: s, Owner: id.New(id.Boot), DryRun: c.DryRun,
		Now: func() time.Time { return time.Now().UTC().Truncate(time.Millisecond) },
	})
	verb := "repaired"
	if c.DryRun {
		verb = "would repair"
	}
	if c.JSON {
		err = errors.Join(err, printJSON(done))
	} else {
		for _, change := range done.Changes {
			fmt.Println(verb+":", change)
		}
		for _, f := range done.Refused {
			fmt.Println("cannot repair:", f)
		}
		fmt.Printf("repair: %d findings, %s %d, refused %d\n", len(done.Report.Findings), verb, len(done.Changes), len(done.Refused))
	}
	if err == nil && len(done.Refused) > 0 {
		return exitCode(1)
	}
	return err
}

type expireRunCmd struct {
	dataFlag
	RunID string `arg:"" name:"run" help:"Id of the run, run_…"`
}

func (c expireRunCmd) Run(ctx context.Context) error {
	s, leave, err := c.openShared(ctx)
	if err != nil {
		return err
	}
	defer leave()
	r, err := retention.New(retention.Options{Store: s, Sessions: s}).Expire(ctx, c.RunID)
	if err != nil {
		return err
	}
	fmt.Printf("expired: %s, events 1 to %d\n", r.ID, r.ExpiredThrough)
	return nil
}
