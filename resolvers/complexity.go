package resolvers

import (
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/graph"
	"github.com/harness-engine/harness-engine/graph/model"
)

// complexity is the cost of the fields that are dearer than the sum of what is selected in them. Everything else costs
// one and its selection.
func complexity() graph.ComplexityRoot {
	var c graph.ComplexityRoot
	list := func(child int, first int64) int { return 1 + child*int(min(max(first, 1), maxFirst)) }
	c.Query.Agents = func(child int, first int64, _ *string) int { return list(child, first) }
	c.Query.Sessions = func(child int, _ *string, first int64, _ *string) int { return list(child, first) }
	c.Query.Runs = func(child int, _ *model.RunFilter, first int64, _ *string) int { return list(child, first) }
	c.Query.Harnesses = func(child int) int { return 1 + child*10 }
	c.Agent.Versions = func(child int, first int64, _ *string) int { return list(child, first) }
	c.Session.Messages = func(child int, first int64, _ *string, last *int64, _ *string) int {
		if last != nil {
			first = *last
		}
		return list(child, first)
	}
	c.Session.Runs = func(child int, first int64, _ *string) int { return list(child, first) }
	c.Session.Queue = func(child int) int { return 1 + child*session.MaxQueue }
	c.Session.LastActivity = func(int) int { return maxAtOnce } // reads as many runs
	// An event costs a tenth: it is small, and it comes from one read.
	c.Run.Events = func(child int, _ int64, _ *string, first int64) int {
		return 1 + child*int(min(max(first, 1), maxEventsPage))/10
	}
	return c
}
