package client

import (
	"context"
	"fmt"
	"strings"
)

// pageNodes is the size of a page of a connection, the most that the API gives.
const pageNodes = 100

// Agent is an agent as a client sees it.
type Agent struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Slug      string `json:"slug"`
	Revision  int64  `json:"revision"`
	Version   int64  `json:"version"`
	HarnessID string `json:"harnessId"`
}

// AgentFields selects what Agent holds.
const AgentFields = `
fragment AgentFields on Agent { id name slug revision version harnessId }`

// agentPrefix begins the id of an agent.
const agentPrefix = "agt_"

// Agent finds an agent by its id, or one of the caller's own by its slug. An error has the code NOT_FOUND when there is
// none that the caller may know of.
func (c *Client) Agent(ctx context.Context, name string) (Agent, error) {
	if strings.HasPrefix(name, agentPrefix) {
		var data struct {
			Agent *Agent `json:"agent"`
		}
		if err := c.Do(ctx, `query($id: ID!) { agent(id: $id) { ...AgentFields } }`+AgentFields, Variables{"id": name}, &data); err != nil {
			return Agent{}, err
		}
		if data.Agent == nil {
			return Agent{}, notFound("agent", name)
		}
		return *data.Agent, nil
	}
	const query = `query($first: Int!, $after: String) { agents(first: $first, after: $after) {
	  edges { node { ...AgentFields } } pageInfo { hasNextPage endCursor }
	} }` + AgentFields
	for after := (*string)(nil); ; {
		var data struct {
			Agents Connection[Agent] `json:"agents"`
		}
		if err := c.Do(ctx, query, Variables{"first": pageNodes, "after": after}, &data); err != nil {
			return Agent{}, err
		}
		for _, a := range data.Agents.Nodes() {
			if a.Slug == name {
				return a, nil
			}
		}
		if after = data.Agents.next(); after == nil {
			return Agent{}, notFound("agent", name)
		}
	}
}

func notFound(noun, name string) error {
	return Errors{{Message: fmt.Sprintf("no %s %s", noun, name), Extensions: ErrorExtensions{Code: CodeNotFound}}}
}

// Connection is a page of a list.
type Connection[T any] struct {
	Edges []struct {
		Node T `json:"node"`
	} `json:"edges"`
	PageInfo PageInfo `json:"pageInfo"`
}

// PageInfo is where a page stands.
type PageInfo struct {
	HasPreviousPage bool    `json:"hasPreviousPage"`
	HasNextPage     bool    `json:"hasNextPage"`
	EndCursor       *string `json:"endCursor"`
}

// Nodes lists what is in the page.
func (c Connection[T]) Nodes() []T {
	out := make([]T, len(c.Edges))
	for i, e := range c.Edges {
		out[i] = e.Node
	}
	return out
}

// next is the cursor of the next page, nil when there is none.
func (c Connection[T]) next() *string {
	if !c.PageInfo.HasNextPage {
		return nil
	}
	return c.PageInfo.EndCursor
}
