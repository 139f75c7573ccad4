package acp

import "encoding/json"

// incoming is one notification or request of the agent.
type incoming struct {
	id     json.RawMessage // of a request
	method string
	params json.RawMessage
}

// notification implements handler.
func (a *agent) notification(method string, params json.RawMessage) {
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	switch {
	case a.turn != nil:
		a.notified(method, params)
	case a.parked != nil:
		a.parked.keep(incoming{method: method, params: params})
	default:
		a.lateUpdates++ // what an agent says between turns belongs to no run
	}
}

// notified takes a notification for the running turn. The caller holds turnMu.
func (a *agent) notified(method string, params json.RawMessage) {
	var p struct {
		SessionID string          `json:"sessionId"`
		RequestID json.RawMessage `json:"requestId"`
		Update    json.RawMessage `json:"update"`
		Usage     *tokens         `json:"usage"`
	}
	if json.Unmarshal(params, &p) != nil {
		a.turn.malformed()
		return
	}
	if method == "$/cancel_request" {
		a.turn.withdraw(p.RequestID)
		return
	}
	if p.SessionID != a.sessionID {
		a.turn.translator.facts.count("acp.other_session", "update")
		return
	}
	switch {
	case method == "session/update":
		a.turn.update(p.Update)
	case method == a.profile.UsageNotification && method != "":
		a.turn.yield(steps(a.turn.translator.tokensUsed(p.Usage, false)))
	default:
		a.turn.translator.facts.count("acp.unknown_notifications", label(method, 64))
	}
}

// request implements handler.
func (a *agent) request(id json.RawMessage, method string, params json.RawMessage) *answer {
	r := incoming{id: id, method: method, params: params}
	serve, offered := requests[method]
	if !offered || method == methodForm && !a.profile.Forms {
		return &answer{err: &RPCError{Code: codeMethodNotFound, Message: "not offered by this client"}}
	}
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	if a.turn == nil && a.parked != nil {
		a.parked.keep(r)
		return nil
	}
	return serve(a, r)
}

const (
	methodPermission = "session/request_permission"
	methodForm       = "elicitation/create"
)

// requests are those of the agent that the driver serves. The caller holds turnMu. There may be no turn.
var requests = map[string]func(*agent, incoming) *answer{
	methodPermission: (*agent).permissionAsked,
	methodForm:       (*agent).formAsked,
}

var malformedRequest = &answer{err: &RPCError{Code: codeInvalidParams, Message: "malformed request"}}

func (a *agent) permissionAsked(r incoming) *answer {
	var p Permission
	if json.Unmarshal(r.params, &p) != nil || p.ToolCall.ID == "" {
		return malformedRequest
	}
	q := &ask{id: r.id, approve: firstOfKind(p, permissions...), reject: firstOfKind(p, refusals...)}
	if a.turn == nil || a.turn.ending.Load() || a.turn.err != nil {
		return q.cancelled() // the protocol's answer while a turn is being cancelled
	}
	c := a.turn.showCall(p.ToolCall)
	if c == nil {
		return q.cancelled()
	}
	p.Tool, p.Workspace, q.call = c.name, a.workspace, c
	decided := a.profile.Permission(a.built, p)
	if !decided.Ask {
		return &answer{result: answerWith(decided.Option)}
	}
	if q.approve == "" && q.reject == "" {
		return q.cancelled()
	}
	return a.turn.ask(q)
}

func (a *agent) formAsked(r incoming) *answer {
	var e elicitation
	if json.Unmarshal(r.params, &e) != nil {
		return malformedRequest
	}
	q := &ask{id: r.id, form: &form{}}
	if a.turn == nil || a.turn.ending.Load() || a.turn.err != nil || e.SessionID != a.sessionID {
		return q.cancelled()
	}
	f, err := newForm(e)
	if err == nil {
		if _, ok := a.turn.translator.showable(f.request()); !ok {
			err = errUnshowable
		}
	}
	if err != nil {
		a.turn.translator.facts.count("acp.declined_forms", label(e.Mode, 64))
		return &answer{result: elicitationAnswer{Action: "decline"}}
	}
	q.form = f
	return a.turn.ask(q)
}
