package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/internal/folder"
	"github.com/harness-engine/harness-engine/store/storetest"
)

// TestTwoEnginesShareTheFile writes through two stores at once: each commit is one of both or of none, and each reads
// what the other has committed.
func TestTwoEnginesShareTheFile(t *testing.T) {
	first := openAt(t, Options{Path: newPath(t)})
	second := openAt(t, Options{Path: first.opts.Path})
	const runs, chunks = 8, 50
	var won, lost atomic.Int64
	var writers sync.WaitGroup
	for i := range runs {
		for n, s := range []*Store{first, second} { // both write the same keys
			writers.Go(func() {
				for k := range int64(chunks) {
					c := storetest.MakeChunk(fmt.Sprintf("run_%d", i), k+1, 1, int64(n+1), fmt.Sprintf("eng_%d", n), 0)
					var taken *event.DuplicateError
					switch err := s.Append(t.Context(), c); {
					case err == nil:
						won.Add(1)
					case errors.As(err, &taken):
						lost.Add(1)
					default:
						t.Errorf("append: %v", err)
						return
					}
				}
			})
		}
	}
	writers.Wait()
	if won.Load() != runs*chunks || lost.Load() != runs*chunks {
		t.Errorf("%d appends won and %d lost, want %d each", won.Load(), lost.Load(), runs*chunks)
	}
	for i := range runs {
		a, errA := first.Tail(t.Context(), fmt.Sprintf("run_%d", i))
		b, errB := second.Tail(t.Context(), fmt.Sprintf("run_%d", i))
		if err := errors.Join(errA, errB); err != nil || a.Last != chunks || a.SHA256 != b.SHA256 {
			t.Errorf("run %d: %d and %d, %v", i, a.Last, b.Last, err)
		}
	}
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	if err := second.Append(t.Context(), storetest.MakeChunk("run_after", 1, 1, 1, "eng_1", 0)); err != nil {
		t.Errorf("the second was harmed by the end of the first: %v", err)
	}
}

// TestOpenRefusesALockedFolder: whoever restores a backup has the folder alone.
func TestOpenRefusesALockedFolder(t *testing.T) {
	path := newPath(t)
	openAt(t, Options{Path: path}).Close()
	lock, err := folder.Lock(filepath.Dir(path), lockName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Path: path, Logger: quiet}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "by process") {
		t.Errorf("opening a locked folder: %v", err)
	}
	_ = lock.Close()
	openAt(t, Options{Path: path})
}

func TestOpenProtectsFiles(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	if err := s.Append(t.Context(), storetest.MakeChunk("run_1", 1, 1, 1, "eng_a", 0)); err != nil {
		t.Fatal(err)
	}
	data := filepath.Dir(s.opts.Path)
	if st, err := os.Stat(data); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v %v", st.Mode(), err)
	}
	entries, err := os.ReadDir(data)
	if err != nil || len(entries) < 5 { // database, -wal, -shm, lock, reserve
		t.Fatalf("the folder holds %v (%v)", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestOpenPathsOfEveryKind(t *testing.T) {
	for _, name := range []string{"with space", "100%25", "q?mode=memory", "a#b", "ünï", "x&_pragma=journal_mode(OFF)", "semi;colon"} {
		file := filepath.Join(t.TempDir(), name, name+".db")
		s := openAt(t, Options{Path: file})
		if st, err := os.Stat(file); err != nil || st.Size() == 0 {
			t.Errorf("%s: the database is not there: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(t.Context(), Options{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no path: %v", err)
	}
	if _, err := Open(t.Context(), Options{Path: newPath(t), Readers: 65}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("too many readers: %v", err)
	}
}

func TestOpenRefusesForeignFiles(t *testing.T) {
	other := newPath(t)
	if err := os.MkdirAll(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	runSQL(t, other, "CREATE TABLE theirs (x)")
	text := newPath(t)
	if err := os.MkdirAll(filepath.Dir(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{other, text} {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Options{Path: file, Logger: quiet}); !errors.Is(err, ErrForeignFile) {
			t.Errorf("got %v", err)
		}
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
			t.Errorf("the file was changed: %v", err)
		}
	}
}

// runSQL changes a database that no store has open.
func runSQL(t *testing.T, file, query string) {
	t.Helper()
	db, err := sql.Open(driverName, dsn(file, "", readerCache))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesOtherSchemas(t *testing.T) {
	for _, test := range []struct {
		name, query, text string
		want              error
	}{
		{"newer", "INSERT INTO schema_migrations SELECT max(version) + 1, 'later.sql', 'abc', '2030-01-01' FROM schema_migrations", "later.sql", ErrSchemaNewer},
		{"changed", "UPDATE schema_migrations SET checksum = 'abc' WHERE version = 1", "another build", nil},
	} {
		file := newPath(t)
		s := openAt(t, Options{Path: file})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		runSQL(t, file, test.query)
		_, err := Open(t.Context(), Options{Path: file, Logger: quiet})
		if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: got %v", test.name, err)
		}
	}
}

func TestMigrationsGoForwardWhole(t *testing.T) {
	open := func(file string) *sql.Conn {
		db, err := connect(file, "", readerCache, 1)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(); _ = db.Close() })
		return conn
	}
	steps := []migration{
		{version: 1, name: "0001_a.sql", checksum: "a", sql: "CREATE TABLE a (x); CREATE TABLE b (x);"},
		{version: 2, name: "0002_bad.sql", checksum: "b", sql: "CREATE TABLE c (x); INSERT INTO missing VALUES (1);"},
	}
	conn := open(filepath.Join(t.TempDir(), "m.db"))
	if n, err := migrate(t.Context(), conn, steps); err == nil || n != 1 || !strings.Contains(err.Error(), "0002_bad.sql") {
		t.Fatalf("a broken step: %d applied, %v", n, err)
	}
	steps[1].sql = "CREATE TABLE c (x);" // c is free: the broken step left nothing
	if n, err := migrate(t.Context(), conn, steps); err != nil || n != 1 {
		t.Fatalf("the repaired step: %d applied, %v", n, err)
	}
	if n, err := migrate(t.Context(), conn, steps); err != nil || n != 0 {
		t.Fatalf("again: %d applied, %v", n, err)
	}

	for _, names := range [][]string{{"0002_a.sql"}, {"0001_a.sql", "0003_b.sql"}, {"0001_a.sql", "0001_b.sql"}, {"a.sql"}} {
		files := fstest.MapFS{}
		for _, n := range names {
			files["migrations/"+n] = &fstest.MapFile{Data: []byte("SELECT 1")}
		}
		if _, err := loadMigrations(files); err == nil {
			t.Errorf("%v were accepted", names)
		}
	}
	if ms, err := loadMigrations(migrationFiles); err != nil || len(ms) == 0 {
		t.Errorf("the embedded migrations: %v", err)
	}
}

// TestDurabilitySettings reads the settings back from each connection: a misspelt one would be ignored without a word.
func TestDurabilitySettings(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	check := func(name, setting, want string, row rowQuerier) {
		t.Helper()
		var got string
		if err := row.QueryRowContext(t.Context(), "PRAGMA "+setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %s is %s (%v), want %s", name, setting, got, err, want)
		}
	}
	for name, db := range map[string]*sql.DB{"reader": s.reads, "checkpointer": s.checks} {
		check(name, "journal_mode", "wal", db)
		check(name, "synchronous", "2", db)
		check(name, "wal_autocheckpoint", "0", db)
		check(name, "trusted_schema", "0", db)
	}
	check("reader", "busy_timeout", "5000", s.reads)
	check("checkpointer", "busy_timeout", "100", s.checks)
	check("reader", "query_only", "1", s.reads)
	inWriter(t, s, func(tx *tx) {
		for setting, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "wal_autocheckpoint": "0", "fullfsync": "1", "page_size": "4096"} {
			check("writer", setting, want, tx.conn)
		}
	})
	if _, err := s.reads.ExecContext(t.Context(), "DELETE FROM chunks"); err == nil {
		t.Error("a reading connection can write")
	}
}

// inWriter runs f on the writing connection, inside a group.
func inWriter(t *testing.T, s *Store, f func(tx *tx)) {
	t.Helper()
	err := s.committer.do(context.Background(), &write{apply: func(tx *tx) (refusal, fatal error) { f(tx); return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
}

// TestQueriesUseIndexes asks SQLite for its plan: no listing and no read may walk a table or sort.
func TestQueriesUseIndexes(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	for query, args := range map[string][]any{
		getChunk: {"r", 1}, tailChunk: {"r"}, readChunks: {"r", 1, 1, 10},
		getSession: {"s"}, pinnedSessions: {"e", "a", 10}, busySessions: {"", 10}, sessionsOfOwner: {"e", "s", "", 10}, sessionsOfAgent: {"e", "s", "a", "", 10},
		getRun: {"r"}, sessionRuns: {"s", 1, 0, 10}, allSessionRuns: {"s", 0, 10}, unfinishedRuns: {"", 10},
		getAgent: {"a"}, unsettledAgents: {"", 10}, agentsOfOwner: {"e", "o", "", 10}, getVersion: {"a", 1}, lastVersion: {"a"},
		getValue: {"n"}, getAttachment: {"a"},
	} {
		plan := explain(t, s, query, args)
		if strings.Contains(strings.ReplaceAll(plan, "SCAN (", "("), "SCAN") || strings.Contains(plan, "TEMP B-TREE") && query != sessionRuns {
			t.Errorf("%s\n%s", query, plan)
		}
	}
	query, args := runsQuery(someFilter, spot{"run_1", 1}, 10)
	if plan := explain(t, s, query, args); strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
		t.Errorf("%s\n%s", query, plan)
	}
}

func explain(t *testing.T, s *Store, query string, args []any) string {
	t.Helper()
	rows, err := s.reads.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		out = append(out, detail)
	}
	if len(out) == 0 || rows.Err() != nil {
		t.Fatalf("no plan for %s: %v", query, rows.Err())
	}
	return strings.Join(out, "\n")
}
