package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/internal/client"
)

// Marks at the start of a line.
const (
	markTool    = "● "
	markChild   = "↳ "
	markWarning = "! "
	markFailure = "✗ "
	markStopped = "■ "
	markUsage   = "— "
	arrow       = " → "
	indent      = "  "
)

// marks of a plan's steps, by status.
var marks = map[string]string{"completed": "✓ ", "in_progress": "▸ ", "pending": "○ "}

// renderer draws the events of runs. What the agent says goes to say, everything else to tell; they may be one sheet.
type renderer struct {
	say, tell *sheet
	width     func() int // columns of the terminal

	block   string  // what is being written: kind, namespace and message; empty between blocks
	cleaner cleaner // of the block

	calls    map[string]*call // open tool calls, also those that an interrupted run left
	children map[string]string
	pending  *call // whose line is begun and may be finished on that line
	plan     []client.PlanEntry
	usage    *client.Usage
	began    time.Time
}

// call is one tool call.
type call struct {
	name      string
	arguments json.RawMessage
	streamed  strings.Builder // arguments so far, where they stream
	shown     bool            // a line has its name and arguments
	depth     int
	used      int // columns of its line so far
}

func newRenderer(say, tell *sheet, width func() int) *renderer {
	return &renderer{say: say, tell: tell, width: width, calls: map[string]*call{}, children: map[string]string{}}
}

// drawers by type of event. An event of a type that is not here is not drawn.
var drawers = map[string]func(*renderer, client.Event){
	client.RunStarted:         (*renderer).runStarted,
	client.RunRecovered:       (*renderer).recovered,
	client.TextDelta:          (*renderer).text,
	client.TextFinished:       (*renderer).finishBlock,
	client.ReasoningDelta:     (*renderer).reasoning,
	client.ReasoningFinished:  (*renderer).finishBlock,
	client.ToolStarted:        (*renderer).toolStarted,
	client.ToolArgumentsDelta: (*renderer).toolArguments,
	client.ToolFinished:       (*renderer).toolFinished,
	client.ToolError:          (*renderer).toolError,
	client.NamespaceEntered:   (*renderer).entered,
	client.NamespaceExited:    (*renderer).exited,
	client.PlanUpdated:        (*renderer).planUpdated,
	client.Warning:            (*renderer).warning,
	client.UsageUpdated:       (*renderer).usageUpdated,
	client.RunFinished:        (*renderer).finished,
	client.RunInterrupted:     (*renderer).interrupted,
	client.RunCancelled:       (*renderer).cancelled,
	client.RunFailed:          (*renderer).failed,
}

// event draws one event.
func (r *renderer) event(e client.Event) {
	if draw := drawers[e.Type]; draw != nil {
		draw(r, e)
	}
}

func (r *renderer) flush() error {
	err := r.say.flush()
	if r.tell != r.say {
		err = firstOf(err, r.tell.flush())
	}
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) runStarted(e client.Event) {
	r.usage, r.plan, r.began = nil, nil, e.Time
}

func (r *renderer) recovered(client.Event) {
	r.note(faint, "(the engine was started again; the run goes on)")
}

// note writes one line of its own.
func (r *renderer) note(st style, text string) {
	r.close()
	r.tell.line(st, text)
}

// close ends what is being written, so that something else can begin.
func (r *renderer) close() {
	if rest := r.cleaner.end(); rest != "" {
		r.say.write(plain, rest)
	}
	r.block, r.pending = "", nil
	r.say.fresh()
	r.tell.fresh()
}

// open begins a block, or goes on with it.
func (r *renderer) open(e client.Event) {
	block := strings.Join(append([]string{e.Type, e.MessageID}, e.Namespace...), "\x00")
	if r.block != block {
		r.close()
		r.block = block
	}
}

func (r *renderer) finishBlock(client.Event) {
	if r.block != "" {
		r.close()
	}
}

// text is what the agent says. What a delegated agent says is work on the way there, and drawn faint.
func (r *renderer) text(e client.Event) {
	r.open(e)
	if len(e.Namespace) > 0 {
		r.tell.write(faint, r.indented(e, r.cleaner.text(e.Delta)))
		return
	}
	r.say.write(plain, r.cleaner.text(e.Delta))
}

func (r *renderer) reasoning(e client.Event) {
	r.open(e)
	r.tell.write(faint, r.indented(e, r.cleaner.text(e.Delta)))
}

// indented moves the lines of delegated agents to the right.
func (r *renderer) indented(e client.Event, text string) string {
	margin := strings.Repeat(indent, len(e.Namespace))
	if margin == "" || text == "" {
		return text
	}
	body, feed := strings.CutSuffix(text, "\n")
	body = strings.ReplaceAll(body, "\n", "\n"+margin)
	if !r.tell.begun {
		body = margin + body
	}
	if feed {
		body += "\n"
	}
	return body
}

func (r *renderer) toolStarted(e client.Event) {
	c := &call{name: line(e.Name), arguments: e.Arguments, depth: len(e.Namespace)}
	r.calls[e.ToolCallID] = c
	if !isNull(e.Arguments) {
		r.showCall(c)
	}
}

func (r *renderer) toolArguments(e client.Event) {
	c := r.calls[e.ToolCallID]
	if c == nil || c.shown {
		return
	}
	c.streamed.WriteString(e.Delta)
	if strings.HasSuffix(strings.TrimSpace(e.Delta), "}") && json.Valid([]byte(c.streamed.String())) {
		c.arguments = json.RawMessage(c.streamed.String())
		r.showCall(c)
	}
}

// showCall begins the line of a call, which its end completes when nothing comes between.
func (r *renderer) showCall(c *call) {
	r.close()
	label := c.label(r.room(c) * 2 / 3)
	c.shown = true
	r.tell.write(plain, strings.Repeat(indent, c.depth))
	r.tell.write(cyan, markTool+label)
	c.used = columnsOf(label)
	r.pending = c
}

// room is how many columns a call's line has for words.
func (r *renderer) room(c *call) int {
	return max(r.width()-c.depth*len(indent)-columnsOf(markTool)-1, 20)
}

// label is the call in at most n columns; the name alone where a line above has the rest.
func (c *call) label(n int) string {
	if c.shown {
		return fit(c.name, n)
	}
	return fit(c.name+"("+short(c.arguments)+")", n)
}

func (r *renderer) toolFinished(e client.Event) {
	result := line(e.Result)
	if e.Truncated {
		result += ellipsis
	}
	r.endCall(e.ToolCallID, plain, result)
}

func (r *renderer) toolError(e client.Event) {
	r.endCall(e.ToolCallID, red, "ERROR "+line(e.Code)+": "+line(e.Message))
}

func (r *renderer) endCall(id string, st style, result string) {
	c := r.calls[id]
	if c == nil { // of a part of the log that was not drawn
		c = &call{name: "tool"}
	}
	delete(r.calls, id)
	if !c.shown && c.streamed.Len() > 0 {
		c.arguments = json.RawMessage(c.streamed.String())
	}
	if r.pending != c {
		r.showCall(c)
	}
	r.tell.write(plain, arrow)
	r.tell.write(st, fit(result, max(r.room(c)-c.used-columnsOf(arrow), 20)))
	r.close()
}

// waits says that the calls wait for a person; a later run ends them.
func (r *renderer) waits(calls []client.ApprovalCall) {
	for _, c := range calls {
		if r.calls[c.ToolCallID] == nil {
			r.calls[c.ToolCallID] = &call{name: line(c.Name), arguments: c.Arguments, shown: true}
		}
	}
}

func (r *renderer) entered(e client.Event) {
	r.close()
	r.children[e.ChildID] = line(e.Name)
	r.tell.line(faint, strings.Repeat(indent, len(e.Namespace))+markChild+line(e.Name))
}

func (r *renderer) exited(e client.Event) {
	r.close()
	name := r.children[e.ChildID]
	delete(r.children, e.ChildID)
	r.tell.line(faint, strings.Repeat(indent, len(e.Namespace))+markChild+strings.TrimSpace(name+" "+line(e.Outcome)))
}

func (r *renderer) planUpdated(e client.Event) {
	if slices.Equal(e.Entries, r.plan) {
		return
	}
	r.plan = e.Entries
	r.note(bold, "plan")
	for _, s := range e.Entries {
		mark, known := marks[s.Status]
		if !known {
			mark = "? "
		}
		st := plain
		if s.Status == "completed" {
			st = faint
		}
		r.tell.line(st, indent+mark+fit(line(s.Content), max(r.width()-5, 20)))
	}
}

func (r *renderer) warning(e client.Event) {
	r.note(yellow, markWarning+line(e.Code)+": "+line(e.Message))
}

func (r *renderer) usageUpdated(e client.Event) { r.usage = e.Usage }

func (r *renderer) finished(e client.Event) {
	r.close()
	if e.StopReason != "" && e.StopReason != "end_turn" {
		r.note(yellow, markWarning+"stopped: "+line(e.StopReason))
	}
	r.sum(e)
}

func (r *renderer) interrupted(e client.Event) {
	r.close()
	r.sum(e)
}

func (r *renderer) cancelled(e client.Event) {
	r.note(yellow, markStopped+"cancelled ("+line(e.Reason)+"); side effects: "+line(e.SideEffects))
	r.sum(e)
}

func (r *renderer) failed(e client.Event) {
	f := e.Failure
	if f == nil {
		f = &client.Failure{}
	}
	text := markFailure + line(f.Code) + ": " + line(f.Message)
	if f.SideEffects != "" && f.SideEffects != "none" {
		text += " (side effects: " + line(f.SideEffects) + ")"
	}
	if f.Retryable {
		text += " (it may work when tried again)"
	}
	r.note(red, text)
	r.sum(e)
}

// sum writes what a turn took, as far as that is known.
func (r *renderer) sum(e client.Event) {
	var parts []string
	add := func(n *int64, what string) {
		if n != nil {
			parts = append(parts, fmt.Sprintf("%d %s", *n, what))
		}
	}
	if u := r.usage; u != nil {
		add(u.InputTokens, "in")
		add(u.CachedInputTokens, "cached")
		add(u.OutputTokens, "out")
		add(u.ReasoningTokens, "reasoning")
		if u.Cost != nil {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%.4f %s", *u.Cost, line(u.Currency))))
		}
	}
	if took := e.Time.Sub(r.began).Round(100 * time.Millisecond); !r.began.IsZero() && took > 0 {
		parts = append(parts, took.String())
	}
	if len(parts) > 0 {
		r.tell.line(faint, markUsage+strings.Join(parts, " · "))
	}
}
