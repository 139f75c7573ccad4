package acp

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// errTooMuch: a turn holds more than a turn can.
var errTooMuch = fmt.Errorf("turn exceeds the limits: %w", errViolation)

// translator turns the updates of one turn into canonical events. Its output keeps the lifecycle rules of
// event.Validator whatever the agent sends: late, repeated and out-of-order updates are tolerated, and what cannot be
// placed is counted, not guessed. It is not safe for concurrent use.
type translator struct {
	profile Profile
	runID   string
	prefix  string // of message ids: unique in the session

	spans    map[string]*span // open text or reasoning, by namespace; at most one in each
	messages int
	native   map[string]string // native message id to the id of the text that it became last
	calls    map[string]*call  // by native id
	used     map[string]bool   // canonical ids of calls
	open     []*call           // in the order in which they were started
	spaces   []space           // open, parents before children

	inherited map[string]*call // open calls of the run before, by canonical id, until their native ids are seen

	held      []update // synthetic messages that nothing has followed yet
	usage     *tokens
	facts     *facts
	malformed int
}

// span is one open message or thought.
type span struct {
	path    []string
	thought bool
	native  string
	id      string
}

// space is one open namespace.
type space struct {
	path []string
	call *call // the parent; nil where it was started in the run before and is not known
}

func newTranslator(p Profile, runID string) *translator {
	return &translator{
		profile: p, runID: runID, prefix: label(runID, maxID-16), spans: map[string]*span{}, native: map[string]string{},
		calls: map[string]*call{}, used: map[string]bool{}, inherited: map[string]*call{}, facts: newFacts(),
	}
}

// update translates one session update into steps. The error is errTooMuch.
func (t *translator) update(raw json.RawMessage) ([]worker.Step, error) {
	var u update
	if err := json.Unmarshal(raw, &u); err != nil || u.SessionUpdate == "" {
		return nil, t.badForm()
	}
	handle, known := kinds[u.SessionUpdate]
	if !known {
		t.facts.count("acp.unknown_updates", label(u.SessionUpdate, 64))
		return nil, nil
	}
	if u.SessionUpdate == kindMessage && t.profile.Synthetic != nil && t.profile.Synthetic(u.MessageID) && len(t.held) < maxHeld {
		t.held = append(t.held, u)
		return nil, nil
	}
	var out []event.Event
	if shown[u.SessionUpdate] {
		out = t.release()
	}
	events, err := handle(t, u)
	if errors.Is(err, errForm) {
		return steps(out), t.badForm()
	}
	return steps(append(out, events...)), err
}

const kindMessage = "agent_message_chunk"

// shown are the kinds of updates that people see, in front of which a held message is shown.
var shown = map[string]bool{
	kindMessage: true, "agent_thought_chunk": true, "tool_call": true, "tool_call_update": true, "plan": true,
}

// release gives the messages that were held back.
func (t *translator) release() []event.Event {
	var out []event.Event
	for _, u := range t.held {
		events, err := t.chunk(u, false)
		if err != nil {
			t.facts.count("acp.malformed_updates", "message")
			continue
		}
		out = append(out, events...)
	}
	t.held = nil
	return out
}

// withheld takes the text away that was held back and is not shown.
func (t *translator) withheld() string {
	var b strings.Builder
	for _, u := range t.held {
		var c contentBlock
		if json.Unmarshal(u.Content, &c) == nil {
			b.WriteString(cut(c.Text, maxMessage))
		}
		t.facts.count("acp.withheld", "message")
	}
	t.held = nil
	return cut(b.String(), maxMessage)
}

// errForm: an update of a known kind does not have the protocol's form.
var errForm = errors.New("update does not have the protocol's form")

func (t *translator) badForm() error {
	t.malformed++
	t.facts.count("acp.malformed_updates", "update")
	if t.malformed > maxMalformed {
		return errTooMuch
	}
	return nil
}

// kinds are the kinds of updates that the driver understands. A nil result is an update without an event.
var kinds = map[string]func(*translator, update) ([]event.Event, error){
	kindMessage:            func(t *translator, u update) ([]event.Event, error) { return t.chunk(u, false) },
	"agent_thought_chunk":  func(t *translator, u update) ([]event.Event, error) { return t.chunk(u, true) },
	"tool_call":            (*translator).toolCall,
	"tool_call_update":     (*translator).toolCall,
	"plan":                 (*translator).plan,
	"usage_update":         (*translator).contextUsage,
	"notice":               (*translator).notice,
	"user_message_chunk":   ignored, // an echo
	"session_info_update":  ignored, // a title made of what the user said
	"config_option_update": ignored,
	"current_mode_update": func(t *translator, u update) ([]event.Event, error) {
		t.facts.set("acp.mode", u.CurrentModeID)
		return nil, nil
	},
	"available_commands_update": func(t *translator, u update) ([]event.Event, error) {
		t.facts.set("acp.commands", fmt.Sprint(len(u.AvailableCommands)))
		return nil, nil
	},
}

func ignored(*translator, update) ([]event.Event, error) { return nil, nil }

// chunk continues a message or a thought, or begins one when the kind or the native id changes.
func (t *translator) chunk(u update, thought bool) ([]event.Event, error) {
	var c contentBlock
	if json.Unmarshal(u.Content, &c) != nil || c.Type == "" {
		return nil, errForm
	}
	if c.Type != "text" {
		t.facts.count("acp.skipped_content", label(c.Type, 64))
		return nil, nil
	}
	if c.Text == "" {
		return nil, nil
	}
	path, out, ok := t.enter(u.Meta)
	if !ok {
		return nil, nil
	}
	key := pathKey(path)
	s := t.spans[key]
	if s == nil || s.thought != thought || (u.MessageID != "" && u.MessageID != s.native) {
		if t.messages >= maxMessages {
			return nil, errTooMuch
		}
		out = append(out, t.closeSpan(key)...)
		t.messages++
		s = &span{path: path, thought: thought, native: u.MessageID, id: fmt.Sprintf("%s-m%d", t.prefix, t.messages)}
		t.spans[key] = s
		if u.MessageID != "" && !thought {
			t.native[u.MessageID] = s.id
		}
		out = append(out, s.started())
	}
	for _, piece := range pieces(c.Text, maxDelta) {
		out = append(out, s.delta(piece))
	}
	return out, nil
}

func (s *span) event(d event.Data) event.Event { return event.Event{Namespace: s.path, Data: d} }

func (s *span) started() event.Event {
	if s.thought {
		return s.event(event.ReasoningStarted{MessageID: s.id})
	}
	return s.event(event.TextStarted{MessageID: s.id, Role: "assistant"})
}

func (s *span) delta(text string) event.Event {
	if s.thought {
		return s.event(event.ReasoningDelta{MessageID: s.id, Delta: text})
	}
	return s.event(event.TextDelta{MessageID: s.id, Delta: text})
}

func (s *span) finished() event.Event {
	if s.thought {
		return s.event(event.ReasoningFinished{MessageID: s.id})
	}
	return s.event(event.TextFinished{MessageID: s.id})
}

func (t *translator) closeSpan(key string) []event.Event {
	s := t.spans[key]
	if s == nil {
		return nil
	}
	delete(t.spans, key)
	return []event.Event{s.finished()}
}

// pathKey is a map key for a namespace. Ids hold no control characters.
func pathKey(path []string) string { return strings.Join(path, "\x00") }

var planStatus = map[string]bool{"pending": true, "in_progress": true, "completed": true}
var planPriority = map[string]bool{"high": true, "medium": true, "low": true}

func (t *translator) plan(u update) ([]event.Event, error) {
	if len(u.Entries) > maxPlan {
		t.facts.count("acp.plan_cut", "entries")
		u.Entries = u.Entries[:maxPlan]
	}
	var p event.PlanUpdated
	room := min(maxTitle, maxPlanBytes/max(len(u.Entries), 1))
	for _, e := range u.Entries {
		if !planStatus[e.Status] {
			return nil, errForm
		}
		entry := event.PlanEntry{Content: cut(e.Content, room), Status: e.Status}
		if planPriority[e.Priority] && !t.profile.NoPlanPriority {
			entry.Priority = e.Priority
		}
		p.Entries = append(p.Entries, entry)
	}
	path, out, ok := t.enter(u.Meta)
	if !ok {
		return nil, nil
	}
	return append(out, event.Event{Namespace: path, Data: p}), nil
}

// contextUsage keeps how full the context is, and what the session has cost so far, as facts: none of it is the
// turn's own.
func (t *translator) contextUsage(u update) ([]event.Event, error) {
	for key, n := range map[string]*float64{"acp.context_used": u.Used, "acp.context_size": u.Size} {
		if n != nil && *n >= 0 {
			t.facts.set(key, fmt.Sprintf("%.0f", *n))
		}
	}
	if u.Cost != nil && u.Cost.Amount >= 0 {
		t.facts.set("acp.session_cost", fmt.Sprintf("%g %s", u.Cost.Amount, u.Cost.Currency))
	}
	return nil, nil
}

// noticePattern is the form of a warning's code.
var noticePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

func (t *translator) notice(u update) ([]event.Event, error) {
	if u.Title == "" {
		return nil, errForm
	}
	w := event.Warning{Code: "harness_notice", Message: cut(u.Title, maxTitle)}
	if t.profile.Notice == nil {
		return []event.Event{{Data: w}}, nil
	}
	code := t.profile.Notice(u.Meta)
	if !noticePattern.MatchString(code) {
		return []event.Event{{Data: w}}, nil
	}
	path, out, ok := t.enter(u.Meta)
	if !ok {
		return nil, nil
	}
	w.Code = code
	return append(append(out, t.closeSpan(pathKey(path))...), event.Event{Namespace: path, Data: w}), nil
}

// tokensUsed takes counts that the agent gave for the turn so far. Impossible counts are not taken.
func (t *translator) tokensUsed(u *tokens, final bool) []event.Event {
	if u == nil {
		u = t.usage
	}
	if u == nil {
		return nil
	}
	known := false
	for _, n := range []*int64{u.Input, u.Output, u.Cached, u.Reason} {
		if n == nil {
			continue
		}
		if *n < 0 {
			return nil
		}
		known = true
	}
	if !known {
		return nil
	}
	t.usage = u
	return []event.Event{{Data: event.UsageUpdated{
		InputTokens: u.Input, OutputTokens: u.Output, CachedInputTokens: u.Cached, ReasoningTokens: u.Reason, Final: final,
	}}}
}

// finish closes what is open in front of a run.finished: a call whose outcome the agent never told ends as an error
// that says so.
func (t *translator) finish() []event.Event {
	var out []event.Event
	for len(t.spaces) > 0 {
		out = append(out, t.leave(t.spaces[len(t.spaces)-1].path, "error")...)
	}
	out = append(out, t.closeInside(nil)...)
	return out
}

// steps groups events so that none of the steps is large.
func steps(events []event.Event) []worker.Step {
	var out []worker.Step
	for chunk := range slices.Chunk(events, maxStepDeltas) {
		out = append(out, worker.Step{Events: chunk})
	}
	return out
}
