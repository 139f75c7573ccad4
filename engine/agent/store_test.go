package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// fault is what happens to one write.
type fault int

const (
	none        fault = iota
	refused           // an ordinary error: nothing is written
	unknownDone       // the outcome is unknown: it was written
	unknownLost       // the outcome is unknown: it was not
	crashBefore       // this and every later call fails, nothing is written
	crashAfter        // it is written, and every later call fails
)

var errCrash = errors.New("the engine is dead")

// memStore is a Store with faults, for tests of what a Service does when writes go wrong. What real stores do is
// proven by store/storetest.
type memStore struct {
	mu       sync.Mutex
	agents   map[string]Agent
	versions map[string]map[int64]Version
	writes   []string // operations that changed something, in order
	calls    int      // write calls so far
	at       int      // the write call that suffers the fault, from 1; 0: none
	fault    fault
	dead     bool
}

func newMemStore() *memStore {
	return &memStore{agents: map[string]Agent{}, versions: map[string]map[int64]Version{}}
}

func (m *memStore) read() error {
	if m.dead {
		return errCrash
	}
	return nil
}

// write runs apply under the fault that is due.
func (m *memStore) write(ctx context.Context, op string, apply func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errCrash
	}
	m.calls++
	f := none
	if m.calls == m.at {
		f = m.fault
	}
	switch f {
	case refused:
		return errors.New("disk says no")
	case unknownLost:
		return ErrUnknownOutcome
	case crashBefore:
		m.dead = true
		return errCrash
	}
	if err := apply(); err != nil {
		return err
	}
	m.writes = append(m.writes, op)
	switch f {
	case unknownDone:
		return ErrUnknownOutcome
	case crashAfter:
		m.dead = true
		return errCrash
	}
	return nil
}

func (m *memStore) slugHolder(a Agent) string {
	for _, other := range m.agents {
		if other.ID != a.ID && other.Environment == a.Environment && other.Owner == a.Owner && other.Slug == a.Slug && other.State != StateDeleted {
			return other.ID
		}
	}
	return ""
}

func (m *memStore) InsertAgent(ctx context.Context, a Agent) error {
	return m.write(ctx, "insert agent", func() error {
		if _, ok := m.agents[a.ID]; ok {
			return ErrExists
		}
		if m.slugHolder(a) != "" {
			return ErrSlugTaken
		}
		m.agents[a.ID] = a
		return nil
	})
}

func (m *memStore) Agent(_ context.Context, id string) (Agent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.agents[id]
	if err := m.read(); err != nil {
		return Agent{}, err
	}
	if !ok {
		return Agent{}, ErrNotFound
	}
	return a, nil
}

func (m *memStore) UpdateAgent(ctx context.Context, a Agent) error {
	return m.write(ctx, "update agent", func() error {
		old, ok := m.agents[a.ID]
		if !ok {
			return ErrNotFound
		}
		if old.Rev != a.Rev-1 {
			return ErrRevision
		}
		if a.State != StateDeleted && m.slugHolder(a) != "" {
			return ErrSlugTaken
		}
		m.agents[a.ID] = a
		return nil
	})
}

func (m *memStore) AgentsOf(_ context.Context, environment, owner, before string, limit int) ([]Agent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Agent
	for _, a := range m.agents {
		if a.State == StateActive && a.Environment == environment && a.Owner == owner && (before == "" || a.ID < before) {
			out = append(out, a)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID > out[j].ID })
	return out[:min(len(out), limit)], m.read()
}

func (m *memStore) UnsettledAgents(_ context.Context, after string, limit int) ([]Agent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Agent
	for _, id := range slices.Sorted(maps.Keys(m.agents)) {
		if a := m.agents[id]; id > after && (a.State == StateCreating || a.State == StateDeleting || a.Authz.Pending()) {
			out = append(out, a)
		}
	}
	return out[:min(len(out), limit)], m.read()
}

func (m *memStore) InsertVersion(ctx context.Context, v Version) error {
	return m.write(ctx, "insert version", func() error {
		if _, ok := m.versions[v.AgentID][v.Number]; ok {
			return ErrExists
		}
		if m.versions[v.AgentID] == nil {
			m.versions[v.AgentID] = map[int64]Version{}
		}
		m.versions[v.AgentID][v.Number] = v
		return nil
	})
}

func (m *memStore) Version(_ context.Context, agentID string, number int64) (Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.versions[agentID][number]
	if err := m.read(); err != nil {
		return Version{}, err
	}
	if !ok {
		return Version{}, ErrNotFound
	}
	return v, nil
}

func (m *memStore) LastVersion(_ context.Context, agentID string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var last int64
	for n := range m.versions[agentID] {
		last = max(last, n)
	}
	return last, m.read()
}

// tupleStore is a Tuples that remembers, and can be down.
type tupleStore struct {
	mu     sync.Mutex
	tuples map[authz.Object][]authz.Tuple
	down   bool
	during func() // runs inside Apply, before anything is applied
}

func newTupleStore() *tupleStore { return &tupleStore{tuples: map[authz.Object][]authz.Tuple{}} }

func (s *tupleStore) Apply(_ context.Context, o authz.Object, desired []authz.Tuple) error {
	if s.during != nil {
		s.during()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return authz.ErrUnavailable
	}
	if len(desired) == 0 {
		delete(s.tuples, o)
		return nil
	}
	s.tuples[o] = desired
	return nil
}

func (s *tupleStore) of(agentID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, t := range s.tuples[authz.Agent(agentID)] {
		out = append(out, t.User+" "+t.Relation)
	}
	return strings.Join(out, ",")
}

// usage is a count of conversations, the same for all agents.
type usage int

func (u usage) PinnedConversations(context.Context, Agent, int) (int, error) { return int(u), nil }

// reviewer accepts everything, unless the description says INVALID.
type reviewer struct{ revision string }

func (r reviewer) Review(_ context.Context, b Blueprint) Report {
	return Report{Valid: !strings.Contains(b.Description, "INVALID"), Normalised: b, CatalogRevision: r.revision}
}
