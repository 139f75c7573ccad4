package main

import (
	"context"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/store/backup"
)

type backupCmd struct {
	dataFlag
	Dest string `arg:"" type:"path" help:"Folder for the backup: empty, or made. Its disk needs the room of the data."`
}

// Help is shown by admin backup --help.
func (backupCmd) Help() string {
	return `Engines may be at work. The backup has the databases as they were at one moment, every blob that they name, and the key
of development tokens. It has no worker's workspace. It is secret: keep it from others. The exit code is 1 where the
store that was copied has findings, which are printed.`
}

func (c backupCmd) Run(ctx context.Context) error {
	begun := time.Now()
	m, report, err := backup.Create(ctx, backup.Options{
		Data: c.Data, Dest: c.Dest, Engine: version(), Database: fileStore, Blobs: dirBlobs,
		Others: []string{fileOpenFGA}, Plain: []string{fileTokenKey},
	})
	if err != nil {
		return err
	}
	fmt.Printf("backup: %d files, %d runs, %d events, took %s\n", len(m.Files), m.Runs, m.Events, time.Since(begun).Round(time.Millisecond))
	return tellFindings(report)
}

type restoreCmd struct {
	dataFlag
	Source string `arg:"" type:"path" help:"The backup."`
}

// Help is shown by admin restore --help.
func (restoreCmd) Help() string {
	return `Makes the data folder, which must be empty or missing, so that no engine can be running in it. Cursors of the original answer
CURSOR_EXPIRED where clients hand back the run's logEpoch. Runs that were at work end as uncertain at the next start. The
exit code is 1 where the restored store has findings, which are printed.`
}

func (c restoreCmd) Run(ctx context.Context) error {
	m, report, err := backup.Restore(ctx, backup.RestoreOptions{
		Source: c.Source, Data: c.Data, Database: fileStore, Blobs: dirBlobs, Incarnation: id.New(id.Log),
	})
	if err != nil {
		return err
	}
	fmt.Printf("restored: %d files, %d runs, %d events, as of %s\n", len(m.Files), m.Runs, m.Events, m.CreatedAt.Format(time.RFC3339))
	return tellFindings(report)
}

// tellFindings prints the findings of a copy.
func tellFindings(report integrity.Report) error {
	for _, f := range report.Findings {
		fmt.Println(f)
	}
	fmt.Println(report.Summary())
	if len(report.Findings) > 0 {
		return exitCode(1)
	}
	return nil
}
