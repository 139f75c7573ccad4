package resolvers

import (
	"context"
	"time"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/catalog"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Guard decides what the caller in the context may do; see authz.Guard.
type Guard interface {
	Require(ctx context.Context, permission string, o authz.Object) error
	Allowed(ctx context.Context, permission string, objects []authz.Object) ([]bool, error)
	Recheck(ctx context.Context, permission string, o authz.Object) (until time.Time, err error)
}

// Agents validates, saves and reads agents; see agent.Service.
type Agents interface {
	Validate(ctx context.Context, caller authz.Caller, agentID string, b agent.Blueprint) (agent.Report, error)
	Save(ctx context.Context, req agent.SaveRequest) (agent.SaveResult, error)
	Agent(ctx context.Context, id string) (agent.Agent, error)
	Agents(ctx context.Context, owner authz.Caller, before string, limit int) (page []agent.Agent, more bool, err error)
	Version(ctx context.Context, agentID string, number int64) (agent.Version, error)
	Versions(ctx context.Context, agentID string, before int64, limit int) (page []agent.Version, more bool, err error)
}

// Catalog tells what agents can run on; see catalog.Catalog.
type Catalog interface {
	Entries() []catalog.Entry
	Entry(harnessID string) (catalog.Entry, bool)
	Revision() string
	Latest() catalog.Change
	Watch(f func()) (release func())
}

// Sessions reads binding documents; see session.Store.
type Sessions interface {
	Session(ctx context.Context, id string) (session.Binding, error)
	SessionsOf(ctx context.Context, environment, subject, agentID, before string, limit int) ([]session.Binding, error)
}

// Runs reads run documents; see run.Store.
type Runs interface {
	Run(ctx context.Context, id string) (run.Run, error)
	Runs(ctx context.Context, f run.Filter, before run.Position, limit int) ([]run.Run, error)
	SessionRuns(ctx context.Context, sessionID string, epoch, afterOrd int64, limit int) ([]run.Run, error)
	SessionRunsBefore(ctx context.Context, sessionID string, epoch, beforeOrd int64, limit int) ([]run.Run, error)
}

// Control starts, resumes, cancels and clears; see run.Coordinator.
type Control interface {
	Start(ctx context.Context, req run.StartRequest) (run.Run, error)
	Resume(ctx context.Context, req run.ResumeRequest) (run.ResumeResult, error)
	Cancel(ctx context.Context, runID string) (run.Run, error)
	Clear(ctx context.Context, sessionID string) (session.Binding, error)
}

// Events reads a run's log as it is now; see event.Log.
type Events interface {
	Tail(ctx context.Context, runID string) (event.Chunk, error)
	Read(ctx context.Context, runID string, after int64, maxEvents int) ([]event.Chunk, error)
}

// Hub follows a run's log; see event.Hub.
type Hub interface {
	Subscribe(runID string, after int64) *event.Subscription
}

// SessionFeed follows the runs of a session; see run.SessionFeed.
type SessionFeed interface {
	Subscribe(sessionID string, after run.SessionCursor) *run.SessionReader
}

// Changes tells which sessions of a subject change; see session.Changes.
type Changes interface {
	Subscribe(ctx context.Context, environment, subject string) (*session.Subscription, error)
}

// Files finds the caller's attachments; see file.Service.
type Files interface {
	Check(ctx context.Context, caller authz.Caller, path string, ids []string) ([]file.Attachment, error)
}
