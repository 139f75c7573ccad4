package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// protocolVersion is the version of the Agent Client Protocol that the driver speaks.
const protocolVersion = 1

// closeGrace is how long a process may take to end by itself once its standard input is closed.
const closeGrace = 2 * time.Second

// agent is one process with one open session.
type agent struct {
	profile Profile
	built   harness.Construction

	workspace string
	log       *slog.Logger
	process   worker.Process
	conn      *conn

	version     string // of the agent, as it says
	canResume   bool
	canLoad     bool
	takes       promptCapabilities
	sessionID   string
	turnMu      sync.Mutex // held while a turn's sink is used
	turn        *turn      // the running one, or nil
	parked      *parked    // a turn that waits for a person, or nil
	lateUpdates int
}

// initializeResult is the part of the answer that the driver reads.
type initializeResult struct {
	ProtocolVersion   int `json:"protocolVersion"`
	AgentCapabilities struct {
		LoadSession         bool               `json:"loadSession"`
		PromptCapabilities  promptCapabilities `json:"promptCapabilities"`
		SessionCapabilities struct {
			Resume json.RawMessage `json:"resume"`
		} `json:"sessionCapabilities"`
	} `json:"agentCapabilities"`
	AgentInfo struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	} `json:"agentInfo"`
}

type initializeParams struct {
	ProtocolVersion    int                `json:"protocolVersion"`
	ClientCapabilities clientCapabilities `json:"clientCapabilities"`
	ClientInfo         clientInfo         `json:"clientInfo"`
}

// clientCapabilities: the driver offers neither files nor terminals; an agent's tools work by themselves, inside the
// worker's sandbox.
type clientCapabilities struct {
	FS          fsCapabilities           `json:"fs"`
	Terminal    bool                     `json:"terminal"`
	Elicitation *elicitationCapabilities `json:"elicitation,omitempty"`
}

type elicitationCapabilities struct {
	Form struct{} `json:"form"`
}

type fsCapabilities struct {
	ReadTextFile  bool `json:"readTextFile"`
	WriteTextFile bool `json:"writeTextFile"`
}

type clientInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// launch starts the program and agrees on the protocol.
func launch(ctx context.Context, p Profile, env worker.Environment, c harness.Construction, command worker.Command) (*agent, error) {
	process, err := env.Tree.Start(ctx, command)
	if err != nil {
		return nil, &worker.Failure{
			Category: event.CategoryUnavailable, Code: "harness_not_started", Retryable: true,
			Message: "The harness process could not be started.", Cause: err,
		}
	}
	a := &agent{profile: p, built: c, workspace: env.Workspace, log: env.Log, process: process}
	a.conn = dial(process.Stdin(), process.Stdout(), a, env.Log)
	if err := a.initialize(ctx); err != nil {
		a.kill()
		return nil, err
	}
	return a, nil
}

func (a *agent) initialize(ctx context.Context) error {
	offer := initializeParams{ProtocolVersion: protocolVersion, ClientInfo: clientInfo{Name: "harness-engine", Version: "1"}}
	if a.profile.Forms {
		offer.ClientCapabilities.Elicitation = &elicitationCapabilities{}
	}
	raw, err := a.conn.call(ctx, "initialize", offer)
	if err != nil {
		return fmt.Errorf("failed to initialize agent: %w", err)
	}
	var r initializeResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("failed to read the agent's initialization: %w", errViolation)
	}
	if r.ProtocolVersion != protocolVersion {
		return fmt.Errorf("agent speaks protocol version %d: %w", r.ProtocolVersion, errViolation)
	}
	a.version = label(r.AgentInfo.Version, 64)
	a.canLoad = r.AgentCapabilities.LoadSession
	a.takes = r.AgentCapabilities.PromptCapabilities
	resume := r.AgentCapabilities.SessionCapabilities.Resume
	a.canResume = len(resume) > 0 && string(resume) != "null"
	if a.profile.Authenticate != "" {
		if _, err := a.conn.call(ctx, "authenticate", map[string]string{"methodId": a.profile.Authenticate}); err != nil {
			return fmt.Errorf("failed to authenticate agent: %w", err)
		}
	}
	return nil
}

type sessionParams struct {
	SessionID  string `json:"sessionId,omitempty"`
	Cwd        string `json:"cwd"`
	MCPServers []any  `json:"mcpServers"`
	Meta       any    `json:"_meta,omitempty"`
}

// open opens the stored session, or a new one where none is stored, and gives its id.
func (a *agent) open(ctx context.Context, stored, cwd string, meta any) (string, error) {
	params := sessionParams{SessionID: stored, Cwd: cwd, MCPServers: []any{}, Meta: meta}
	switch {
	case stored == "":
		raw, err := a.conn.call(ctx, "session/new", params)
		if err != nil {
			return "", fmt.Errorf("failed to open session: %w", err)
		}
		var r sessionRecord
		if json.Unmarshal(raw, &r) != nil || !validSessionID(r.SessionID) {
			return "", fmt.Errorf("failed to open session: bad id: %w", errViolation)
		}
		stored = r.SessionID
	case a.canResume:
		if _, err := a.conn.call(ctx, "session/resume", params); err != nil {
			return "", fmt.Errorf("failed to resume session: %w", err)
		}
	case a.canLoad: // replays the conversation, which nobody reads
		if _, err := a.conn.call(ctx, "session/load", params); err != nil {
			return "", fmt.Errorf("failed to load session: %w", err)
		}
	default:
		return "", &worker.Failure{Category: event.CategoryPersistence, Code: codeSessionLost, Message: messageSessionLost}
	}
	a.sessionID = stored
	if a.profile.Mode != "" {
		if _, err := a.conn.call(ctx, "session/set_mode", map[string]string{"sessionId": stored, "modeId": a.profile.Mode}); err != nil {
			return "", fmt.Errorf("failed to set session mode: %w", err)
		}
	}
	return stored, nil
}

// alive reports whether the process can take another turn.
func (a *agent) alive() bool {
	select {
	case <-a.conn.done:
		return false
	case <-a.process.Done():
		return false
	default:
		return true
	}
}

// stop ends the process, gently if it follows, and waits until nothing of it runs.
func (a *agent) stop() {
	_ = a.process.Stdin().Close()
	select {
	case <-a.process.Done():
	case <-time.After(closeGrace):
	}
	a.kill()
}

// kill ends the process and what descends from it at once.
func (a *agent) kill() {
	a.process.Kill()
	<-a.process.Done()
	_ = a.process.Stdin().Close()
	_ = a.process.Stdout().Close()
	a.conn.wait()
}
