package resolvers

import (
	"context"
	"testing"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/graph/model"
)

type everyRun = Runs // embedded under a name that none of its methods has

// oneRun is a store of one run.
type oneRun struct {
	everyRun
	doc run.Run
}

func (o oneRun) Run(context.Context, string) (run.Run, error) { return o.doc, nil }

// TestBoundRuns: a run that its session's binding holds is admitted, and shown with the session, though its document does not say so
// yet: who watches the session is not told when it does. By itself it is not shown before, and one that was refused never is.
func TestBoundRuns(t *testing.T) {
	for status, want := range map[run.Status]model.RunStatus{
		run.StatusAdmitting: model.RunStatusQueued, run.StatusQueued: model.RunStatusQueued, run.StatusRunning: model.RunStatusRunning, run.StatusRejected: "",
	} {
		id := "run_1"
		r := &Root{Options: Options{Runs: oneRun{doc: run.Run{ID: id, Status: status}}}}
		s := &model.Session{ActiveRunID: &id, QueueIDs: []string{id}}
		active, err := sessions{r}.ActiveRun(t.Context(), s)
		if err != nil || (active == nil) != (want == "") || active != nil && active.Status != want {
			t.Errorf("%s: the active run is %+v, %v; want %q", status, active, err, want)
		}
		queue, err := sessions{r}.Queue(t.Context(), s)
		if err != nil || (len(queue) == 0) != (want == "") || len(queue) > 0 && queue[0].Status != want {
			t.Errorf("%s: the queue is %+v, %v; want %q", status, queue, err, want)
		}
		_, err = queries{r}.Run(t.Context(), id)
		if hidden := status == run.StatusAdmitting || status == run.StatusRejected; problem.Is(err, problem.NotFound) != hidden {
			t.Errorf("%s: by itself it is %v", status, err)
		}
	}
}
