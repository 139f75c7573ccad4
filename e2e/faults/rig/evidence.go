package rig

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // the store's file is read beside the engine

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/internal/client"
)

const (
	fileStore = "engine.sqlite"
	readers   = 4 // logs read through the API at once
)

// evidence is everything that the store says.
type evidence struct {
	runs   []run.Run
	chunks map[string][]event.Chunk
}

// read reads the store's file beside whoever has it open.
func (r *Rig) read(ctx context.Context) (evidence, error) {
	out := evidence{chunks: map[string][]event.Chunk{}}
	dsn := url.URL{Scheme: "file", Path: filepath.Join(r.data, fileStore), RawQuery: "mode=ro&_pragma=busy_timeout(60000)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return out, fmt.Errorf("failed to open the store: %w", err)
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT body FROM runs ORDER BY created, id")
	if err != nil {
		return out, fmt.Errorf("failed to read runs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var body []byte
		var doc run.Run
		if err := rows.Scan(&body); err != nil {
			return out, fmt.Errorf("failed to read runs: %w", err)
		}
		if err := json.Unmarshal(body, &doc); err != nil {
			return out, fmt.Errorf("failed to read runs: %w", err)
		}
		out.runs = append(out.runs, doc)
	}
	if err := rows.Err(); err != nil {
		return out, fmt.Errorf("failed to read runs: %w", err)
	}
	chunks, err := db.QueryContext(ctx, "SELECT run, first, last, session, gen, writer, terminal, cursors, facts, sha256, body FROM chunks ORDER BY run, first")
	if err != nil {
		return out, fmt.Errorf("failed to read chunks: %w", err)
	}
	defer chunks.Close()
	for chunks.Next() {
		var c event.Chunk
		var cursors, facts sql.NullString
		var sum []byte
		if err := chunks.Scan(&c.RunID, &c.First, &c.Last, &c.SessionID, &c.Gen, &c.Writer, &c.Terminal, &cursors, &facts, &sum, &c.Body); err != nil {
			return out, fmt.Errorf("failed to read chunks: %w", err)
		}
		copy(c.SHA256[:], sum)
		for raw, into := range map[*sql.NullString]any{&cursors: &c.Cursors, &facts: &c.Facts} {
			if raw.Valid {
				err = errors.Join(err, json.Unmarshal([]byte(raw.String), into))
			}
		}
		if err != nil {
			return out, fmt.Errorf("failed to read chunk %s/%d: %w", c.RunID, c.First, err)
		}
		out.chunks[c.RunID] = append(out.chunks[c.RunID], c)
	}
	return out, chunks.Err()
}

// records reads what the workers say.
func (r *Rig) records(f *judge.Findings) map[string][]judge.Record {
	out := map[string][]judge.Record{}
	folder := filepath.Join(r.o.Folder, dirRecords)
	entries, err := os.ReadDir(folder)
	if err != nil {
		*f = append(*f, judge.Finding{Class: judge.Other, Text: "failed to read records: " + err.Error()})
		return out
	}
	for _, e := range entries {
		file, err := os.Open(filepath.Join(folder, e.Name()))
		if err == nil {
			var rec judge.Record
			rec, err = judge.ReadRecord(file)
			file.Close()
			if rec.Run != "" {
				out[rec.Run] = append(out[rec.Run], rec)
			}
		}
		if err != nil && e.Name() != "" && !strings.Contains(err.Error(), "no head") {
			*f = append(*f, judge.Finding{Class: judge.Other, Text: "record " + e.Name() + ": " + err.Error()})
		}
	}
	return out
}

// readLogs reads every log through the API, from any replica.
func (r *Rig) readLogs(ctx context.Context, store evidence) (map[string][]judge.Seen, error) {
	owners := map[string]*talk{}
	for _, t := range r.talks {
		owners[fmt.Sprintf("talker-%d", t.n)] = t
	}
	var mu sync.Mutex
	var firstErr error
	logs := map[string][]judge.Seen{}
	queue := make(chan run.Run)
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for doc := range queue {
				log, err := r.readLog(ctx, owners[doc.Subject], doc.ID)
				mu.Lock()
				logs[doc.ID] = log
				if err != nil && firstErr == nil {
					firstErr = err
				}
				mu.Unlock()
			}
		})
	}
	for _, doc := range store.runs {
		if doc.Status != run.StatusAdmitting && doc.Status != run.StatusRejected && owners[doc.Subject] != nil {
			queue <- doc
		}
	}
	close(queue)
	group.Wait()
	return logs, firstErr
}

func (r *Rig) readLog(ctx context.Context, t *talk, id string) ([]judge.Seen, error) {
	at := -1
	for {
		at = t.somewhere(at)
		limited, cancel := context.WithTimeout(ctx, callLimit)
		events, err := t.clients[at].Log(limited, id, 0)
		cancel()
		if err == nil {
			out := make([]judge.Seen, len(events))
			for i, e := range events {
				out[i] = judge.Seen{Sequence: e.Sequence, Print: printOf(e)}
			}
			return out, nil
		}
		if !client.Passing(err) && enginetest.Code(err) != "" || !pause(ctx, retryPause) {
			return nil, fmt.Errorf("failed to read log of run %s: %w", id, err)
		}
	}
}
