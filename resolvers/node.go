package resolvers

import (
	"context"
	"strings"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// Node finds what the id's prefix names; @authz has asked about that very object.
func (q queries) Node(ctx context.Context, nodeID string) (model.Node, error) {
	prefix, _, _ := strings.Cut(nodeID, "_")
	switch prefix {
	case id.Agent:
		return orNil[model.Node](q.agentByID(ctx, nodeID))
	case id.Session:
		return orNil[model.Node](q.sessionByID(ctx, nodeID))
	case id.Run:
		return orNil[model.Node](q.runByID(ctx, nodeID))
	}
	return nil, problem.NotFoundf("object")
}

// orNil keeps a nil pointer from becoming an interface that is not nil.
func orNil[I any, P interface{ *T }, T any](p P, err error) (i I, _ error) {
	if err != nil || p == nil {
		return i, err
	}
	return any(p).(I), nil
}
