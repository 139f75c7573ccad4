package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// A document that is damaged costs only itself in the lists that show what there is: pages are filled by others, in order
// and without a gap between them, and it is told once. Who goes through all runs of a session is stopped by it.
func TestDamagedDocumentsAreLeftOutOfLists(t *testing.T) {
	var told bytes.Buffer
	s := openAt(t, Options{Path: newPath(t), Logger: slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelError}))})
	ctx := t.Context()
	const documents = 12
	broken := []int{0, 3, 4, 5, 11}
	var whole []int
	for i := range documents {
		if !slices.Contains(broken, i) {
			whole = append(whole, i)
		}
		at := time.Unix(int64(1000+i/2), 0).UTC() // some have the same time
		for _, err := range []error{
			s.InsertSession(ctx, session.Binding{ID: fmt.Sprintf("ses_%02d", i), Rev: 1, Key: session.Key{Environment: "e", Subject: "s", AgentID: "a", ConversationID: fmt.Sprint(i)}}),
			s.InsertAgent(ctx, agent.Agent{ID: fmt.Sprintf("agt_%02d", i), Rev: 1, State: agent.StateActive, Environment: "e", Owner: "s", Slug: fmt.Sprint("slug", i)}),
			s.InsertRun(ctx, run.Run{ID: fmt.Sprintf("run_%02d", i), Rev: 1, Environment: "e", Subject: "s", SessionID: "ses_00", AgentID: "a",
				Status: run.StatusRunning, Epoch: 1, Ord: int64(i + 1), CreatedAt: at}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	inWriter(t, s, func(tx *tx) {
		for _, i := range broken {
			for table, prefix := range map[string]string{"sessions": "ses", "agents": "agt", "runs": "run"} {
				if _, err := tx.conn.ExecContext(ctx, "UPDATE "+table+" SET body = '{' WHERE id = ?", fmt.Sprintf("%s_%02d", prefix, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	newest := slices.Clone(whole)
	slices.Reverse(newest)
	for name, list := range map[string]struct {
		want []int
		page func(last string, limit int) ([]string, error)
	}{
		"ses": {newest, func(last string, limit int) ([]string, error) {
			page, err := s.SessionsOf(ctx, "e", "s", "", last, limit)
			return ids(page, func(b session.Binding) string { return b.ID }), err
		}},
		"ses of an agent": {newest, func(last string, limit int) ([]string, error) {
			page, err := s.SessionsOf(ctx, "e", "s", "a", last, limit)
			return ids(page, func(b session.Binding) string { return b.ID }), err
		}},
		"agt": {newest, func(last string, limit int) ([]string, error) {
			page, err := s.AgentsOf(ctx, "e", "s", last, limit)
			return ids(page, func(a agent.Agent) string { return a.ID }), err
		}},
		"run": {newest, func(last string, limit int) ([]string, error) {
			var before run.Position
			if last != "" {
				r, err := s.Run(ctx, last)
				if err != nil {
					return nil, err
				}
				before = run.Position{CreatedAt: r.CreatedAt, ID: last}
			}
			page, err := s.Runs(ctx, someFilter, before, limit)
			return ids(page, func(r run.Run) string { return r.ID }), err
		}},
		"run of a session": {whole, func(last string, limit int) ([]string, error) {
			after := 0
			_, _ = fmt.Sscanf(last, "run_%d", &after)
			if last != "" {
				after++
			}
			page, err := s.SessionRuns(ctx, "ses_00", 1, int64(after), limit)
			return ids(page, func(r run.Run) string { return r.ID }), err
		}},
	} {
		for limit := 1; limit <= documents; limit++ {
			var got []string
			for last := ""; ; {
				page, err := list.page(last, limit)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got = append(got, page...)
				if len(page) < limit {
					break
				}
				last = page[len(page)-1]
			}
			want := make([]string, len(list.want))
			for i, n := range list.want {
				want[i] = fmt.Sprintf("%s_%02d", name[:3], n)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %d at a time: %v, want %v", name, limit, got, want)
			}
		}
	}
	if lines := strings.Count(told.String(), "\n"); lines != 3*len(broken) || !strings.Contains(told.String(), "id=run_04") {
		t.Errorf("told %d times:\n%s", lines, told.String())
	}
	if _, err := s.SessionRuns(ctx, "ses_00", 0, 0, 2); !errors.Is(err, integrity.ErrDamaged) {
		t.Errorf("stepped over a run: %v", err)
	}
}

func ids[T any](page []T, id func(T) string) []string {
	out := make([]string, len(page))
	for i, d := range page {
		out[i] = id(d)
	}
	return out
}
