package resolvers

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/vikstrous/dataloadgen"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

const (
	agentList   = "agents"
	versionList = "versions"
)

// Agent reads one agent.
func (q queries) Agent(ctx context.Context, id string) (*model.Agent, error) {
	return q.agentByID(ctx, id)
}

func (r *Root) agentByID(ctx context.Context, id string) (*model.Agent, error) {
	load := r.loaders(ctx)
	a, err := load.agent.Load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("failed to read agent %s: %w", id, err)
	}
	v, err := load.version.Load(ctx, versionKey{a.ID, a.Version})
	if err != nil {
		return nil, fmt.Errorf("failed to read version %d of agent %s: %w", a.Version, id, err)
	}
	return agentModel(a, v), nil
}

// agentEdge reads an agent that may be gone.
func (r *Root) agentEdge(ctx context.Context, id string) (*model.Agent, error) {
	a, err := r.agentByID(ctx, id)
	if problem.Is(err, problem.NotFound) || errors.Is(err, agent.ErrNotFound) {
		return nil, nil
	}
	return a, err
}

// Agents pages the viewer's agents by owner and shows those that the viewer may see.
func (q queries) Agents(ctx context.Context, first int64, after *string) (*model.AgentConnection, error) {
	size, err := checkFirst(first, maxFirst)
	if err != nil {
		return nil, err
	}
	parts, err := decodeCursor(agentList, after, 1)
	if err != nil {
		return nil, err
	}
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	var start *agent.Agent
	if parts != nil {
		start = &agent.Agent{ID: parts[0]}
	}
	page, last, more, err := collect(size, start, func(after *agent.Agent, limit int) ([]agent.Agent, error) {
		before := ""
		if after != nil {
			before = after.ID
		}
		as, _, err := q.Root.Agents.Agents(ctx, who, before, limit)
		if err != nil {
			return nil, fmt.Errorf("failed to list agents of %s: %w", who.Subject, err)
		}
		return as, nil
	}, func(as []agent.Agent) ([]agent.Agent, error) {
		return allowedOnly(ctx, q.Root, authz.CanView, as, func(a agent.Agent) authz.Object { return authz.Agent(a.ID) })
	})
	if err != nil {
		return nil, err
	}
	keys := make([]versionKey, len(page))
	for i, a := range page {
		keys[i] = versionKey{a.ID, a.Version}
	}
	versions, err := q.loaders(ctx).version.LoadAll(ctx, keys)
	var each dataloadgen.ErrorSlice
	if err != nil && !errors.As(err, &each) {
		return nil, fmt.Errorf("failed to read versions of agents: %w", err)
	}
	conn := &model.AgentConnection{Edges: make([]model.AgentEdge, 0, len(page))}
	for i, a := range page {
		switch {
		case each == nil || each[i] == nil:
			conn.Edges = append(conn.Edges, model.AgentEdge{Cursor: encodeCursor(agentList, a.ID), Node: *agentModel(a, versions[i])})
		case isDamaged(each[i]):
			q.leftOut(ctx, "agent", a.ID, each[i])
		default:
			return nil, fmt.Errorf("failed to read the version of agent %s: %w", a.ID, each[i])
		}
	}
	conn.PageInfo = connectionInfo(conn.Edges, func(e model.AgentEdge) string { return e.Cursor }, more, after != nil)
	if more && last != nil {
		conn.PageInfo.EndCursor = optional(encodeCursor(agentList, last.ID))
	}
	return conn, nil
}

// Harness is null when it is not registered.
func (a agents) Harness(_ context.Context, obj *model.Agent) (*model.Harness, error) {
	return a.harnessEdge(&obj.HarnessID), nil
}

// Config is behind can_view_config.
func (a agents) Config(ctx context.Context, obj *model.Agent) (*model.Blueprint, error) {
	v, err := a.loaders(ctx).version.Load(ctx, versionKey{obj.ID, obj.Version})
	if err != nil {
		return nil, fmt.Errorf("failed to read version %d of agent %s: %w", obj.Version, obj.ID, err)
	}
	b := blueprintModel(v.Blueprint)
	return &b, nil
}

// ViewerCan asks for each permission.
func (a agents) ViewerCan(ctx context.Context, obj *model.Agent) (*model.AgentPermissions, error) {
	o := authz.Agent(obj.ID)
	can, err := a.loaders(ctx).allowed.LoadAll(ctx, []question{{authz.CanUse, o}, {authz.CanViewConfig, o}, {authz.CanEdit, o}})
	if err != nil {
		return nil, fmt.Errorf("failed to check permissions on agent %s: %w", obj.ID, err)
	}
	return &model.AgentPermissions{Use: can[0], ViewConfig: can[1], Edit: can[2]}, nil
}

// Versions walks from the current version back.
func (a agents) Versions(ctx context.Context, obj *model.Agent, first int64, after *string) (*model.AgentVersionConnection, error) {
	size, err := checkFirst(first, maxFirst)
	if err != nil {
		return nil, err
	}
	parts, err := decodeCursor(versionList, after, 1)
	if err != nil {
		return nil, err
	}
	var before int64
	if parts != nil {
		if before, err = decodeNumber(parts[0]); err != nil {
			return nil, err
		}
	}
	page, more, err := a.Agents.Versions(ctx, obj.ID, before, size)
	if err != nil {
		return nil, fmt.Errorf("failed to list versions of agent %s: %w", obj.ID, err)
	}
	conn := &model.AgentVersionConnection{Edges: make([]model.AgentVersionEdge, len(page))}
	for i, v := range page {
		conn.Edges[i] = model.AgentVersionEdge{Cursor: encodeCursor(versionList, strconv.FormatInt(v.Number, 10)), Node: versionModel(v)}
	}
	conn.PageInfo = connectionInfo(conn.Edges, func(e model.AgentVersionEdge) string { return e.Cursor }, more, after != nil)
	return conn, nil
}

func agentModel(a agent.Agent, v agent.Version) *model.Agent {
	return &model.Agent{
		ID: a.ID, Name: v.Blueprint.Name, Slug: a.Slug, Owner: a.Owner, Revision: a.Rev, Version: a.Version,
		HarnessID: v.Blueprint.HarnessID(), CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt,
	}
}

func versionModel(v agent.Version) model.AgentVersion {
	return model.AgentVersion{
		Number: v.Number, Config: blueprintModel(v.Blueprint), Fingerprint: v.Fingerprint,
		CatalogRevision: v.CatalogRevision, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt,
	}
}
