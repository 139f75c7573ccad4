package transport_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// spy is the store, writing down what is asked of it.
type spy struct {
	*sqlite.Store
	mu   sync.Mutex
	ops  []string
	stop func(op string) // where set, may make an operation wait
}

func (s *spy) note(op string) {
	s.mu.Lock()
	s.ops = append(s.ops, op)
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop(op)
	}
}

// take returns what was asked since the last take.
func (s *spy) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := s.ops
	s.ops = nil
	return ops
}

// writes are those of the operations that change something.
func writes(ops []string) []string {
	return slices.DeleteFunc(slices.Clone(ops), func(op string) bool { return !strings.HasPrefix(op, "+") })
}

func (s *spy) Append(ctx context.Context, c event.Chunk) error {
	s.note("+Append")
	return s.Store.Append(ctx, c)
}
func (s *spy) Get(ctx context.Context, runID string, first int64) (event.Chunk, error) {
	s.note("Get")
	return s.Store.Get(ctx, runID, first)
}
func (s *spy) Tail(ctx context.Context, runID string) (event.Chunk, error) {
	s.note("Tail")
	return s.Store.Tail(ctx, runID)
}
func (s *spy) Read(ctx context.Context, runID string, after int64, n int) ([]event.Chunk, error) {
	s.note("Read")
	return s.Store.Read(ctx, runID, after, n)
}
func (s *spy) InsertSession(ctx context.Context, b session.Binding) error {
	s.note("+InsertSession")
	return s.Store.InsertSession(ctx, b)
}
func (s *spy) Session(ctx context.Context, id string) (session.Binding, error) {
	s.note("Session")
	return s.Store.Session(ctx, id)
}
func (s *spy) UpdateSession(ctx context.Context, b session.Binding) error {
	s.note("+UpdateSession")
	return s.Store.UpdateSession(ctx, b)
}
func (s *spy) SessionsOf(ctx context.Context, environment, subject, agentID, before string, limit int) ([]session.Binding, error) {
	s.note("SessionsOf")
	return s.Store.SessionsOf(ctx, environment, subject, agentID, before, limit)
}
func (s *spy) InsertRun(ctx context.Context, r run.Run) error {
	s.note("+InsertRun")
	return s.Store.InsertRun(ctx, r)
}
func (s *spy) Run(ctx context.Context, id string) (run.Run, error) {
	s.note("Run")
	return s.Store.Run(ctx, id)
}
func (s *spy) UpdateRun(ctx context.Context, r run.Run) error {
	s.note("+UpdateRun")
	return s.Store.UpdateRun(ctx, r)
}
func (s *spy) Runs(ctx context.Context, f run.Filter, before run.Position, limit int) ([]run.Run, error) {
	s.note("Runs")
	return s.Store.Runs(ctx, f, before, limit)
}
func (s *spy) SessionRuns(ctx context.Context, sessionID string, epoch, after int64, limit int) ([]run.Run, error) {
	s.note("SessionRuns")
	return s.Store.SessionRuns(ctx, sessionID, epoch, after, limit)
}
func (s *spy) SessionRunsBefore(ctx context.Context, sessionID string, epoch, before int64, limit int) ([]run.Run, error) {
	s.note("SessionRunsBefore")
	return s.Store.SessionRunsBefore(ctx, sessionID, epoch, before, limit)
}
func (s *spy) InsertAgent(ctx context.Context, a agent.Agent) error {
	s.note("+InsertAgent")
	return s.Store.InsertAgent(ctx, a)
}
func (s *spy) Agent(ctx context.Context, id string) (agent.Agent, error) {
	s.note("Agent")
	return s.Store.Agent(ctx, id)
}
func (s *spy) UpdateAgent(ctx context.Context, a agent.Agent) error {
	s.note("+UpdateAgent")
	return s.Store.UpdateAgent(ctx, a)
}
func (s *spy) AgentsOf(ctx context.Context, environment, owner, before string, limit int) ([]agent.Agent, error) {
	s.note("AgentsOf")
	return s.Store.AgentsOf(ctx, environment, owner, before, limit)
}
func (s *spy) InsertVersion(ctx context.Context, v agent.Version) error {
	s.note("+InsertVersion")
	return s.Store.InsertVersion(ctx, v)
}
func (s *spy) Version(ctx context.Context, agentID string, n int64) (agent.Version, error) {
	s.note("Version")
	return s.Store.Version(ctx, agentID, n)
}
func (s *spy) LastVersion(ctx context.Context, agentID string) (int64, error) {
	s.note("LastVersion")
	return s.Store.LastVersion(ctx, agentID)
}
func (s *spy) InsertAttachment(ctx context.Context, a file.Attachment) error {
	s.note("+InsertAttachment")
	return s.Store.InsertAttachment(ctx, a)
}
func (s *spy) Attachment(ctx context.Context, id string) (file.Attachment, error) {
	s.note("Attachment")
	return s.Store.Attachment(ctx, id)
}
