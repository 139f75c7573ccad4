package integrity

import (
	"context"
	"io"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Source reads everything that a store has. Listings are ascending, id > after, at most limit (1 to 1,000).
type Source interface {
	RunIDs(ctx context.Context, after string, limit int) ([]string, error)
	LogIDs(ctx context.Context, after string, limit int) ([]string, error)
	SessionIDs(ctx context.Context, after string, limit int) ([]string, error)
	AgentIDs(ctx context.Context, after string, limit int) ([]string, error)
	AttachmentIDs(ctx context.Context, after string, limit int) ([]string, error)

	Run(ctx context.Context, id string) (run.Run, error)
	SessionRuns(ctx context.Context, sessionID string, epoch, afterOrd int64, limit int) ([]run.Run, error)
	Session(ctx context.Context, id string) (session.Binding, error)
	Agent(ctx context.Context, id string) (agent.Agent, error)
	Version(ctx context.Context, agentID string, number int64) (agent.Version, error)
	Attachment(ctx context.Context, id string) (file.Attachment, error)
	// Chunks gives a run's chunks as they are stored, whatever has expired or is missing between them: those that begin
	// after first.
	Chunks(ctx context.Context, runID string, first int64, limit int) ([]event.Chunk, error)
}

// Blobs opens stored content; see blob.Store.
type Blobs interface {
	Open(ctx context.Context, space blob.Space, hash string) (io.ReadCloser, int64, error)
}
