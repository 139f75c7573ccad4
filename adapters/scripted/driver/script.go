package driver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/harness-engine/harness-engine/engine/event"
)

// Bounds of a script.
const (
	MaxSteps   = 1000      // in one list
	MaxDepth   = 4         // of repeats in repeats
	MaxPlayed  = 1_000_000 // steps in all, with repeats
	MaxDelayMs = 600_000   // of one wait
	MaxHoldMs  = 5_000     // of a turn that has its terminal; a worker gives it twice as long
	maxChunk   = 100_000
)

// step is one step of a script: exactly one of the fields is set.
type step struct {
	Text      *said              `json:"text,omitempty"`
	Reasoning *said              `json:"reasoning,omitempty"`
	Tool      *toolStep          `json:"tool,omitempty"`
	Plan      *[]event.PlanEntry `json:"plan,omitempty"`
	Usage     *usageStep         `json:"usage,omitempty"`
	Warning   *event.Warning     `json:"warning,omitempty"`
	Facts     map[string]string  `json:"facts,omitempty"`
	DelayMs   *int64             `json:"delay_ms,omitempty"`
	Error     *errorStep         `json:"error,omitempty"`
	Finish    *string            `json:"finish,omitempty"`
	Garbage   *string            `json:"garbage,omitempty"`
	Hang      *bool              `json:"hang,omitempty"`
	Exit      *int               `json:"exit,omitempty"`
	Recall    *bool              `json:"recall,omitempty"`
	Repeat    *repeatStep        `json:"repeat,omitempty"`

	Approval      *approvalStep `json:"approval,omitempty"`
	Form          *formStep     `json:"form,omitempty"`
	SnapshotFail  *bool         `json:"snapshot_fail,omitempty"`
	HangBeforeEnd *int64        `json:"hang_before_end,omitempty"`
}

// said is text or reasoning: a plain string, or one with its pace.
type said struct {
	Value   string `json:"value"`
	Chunk   *int   `json:"chunk,omitempty"`    // characters a delta; 0 is one word a delta
	EveryMs *int64 `json:"every_ms,omitempty"` // before each delta
	Until   string `json:"until,omitempty"`    // the last delta waits for this file in the workspace
}

func (s *said) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &s.Value)
	}
	type plain said
	return strict(raw, (*plain)(s))
}

type toolStep struct {
	ID        string          `json:"id,omitempty"` // made when absent
	Name      string          `json:"name"`
	Kind      string          `json:"kind,omitempty"`
	Title     string          `json:"title,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Stream    bool            `json:"stream,omitempty"` // the arguments come as deltas
	Ms        int64           `json:"ms,omitempty"`     // between start and answer
	Until     string          `json:"until,omitempty"`  // the answer waits for this file in the workspace, too
	Result    *string         `json:"result,omitempty"`
	Error     *toolError      `json:"error,omitempty"`
}

type toolError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable,omitempty"`
}

type usageStep struct {
	Input       *int64   `json:"input,omitempty"`
	Output      *int64   `json:"output,omitempty"`
	CachedInput *int64   `json:"cached_input,omitempty"`
	Reasoning   *int64   `json:"reasoning,omitempty"`
	Cost        *float64 `json:"cost,omitempty"`
	Currency    string   `json:"currency,omitempty"`
	Final       bool     `json:"final,omitempty"`
}

type errorStep struct {
	Category     event.Category `json:"category"`
	Code         string         `json:"code"`
	Message      string         `json:"message"`
	Retryable    bool           `json:"retryable,omitempty"`
	RetryAfterMs int64          `json:"retry_after_ms,omitempty"`
}

type repeatStep struct {
	Times int64  `json:"times"`
	Steps []step `json:"steps"`
}

// options are the harness options of a blueprint.
type options struct {
	Steps   []step `json:"steps"`
	Chunk   int    `json:"chunk"`
	EveryMs int64  `json:"every_ms"`
}

// parseOptions reads harness options.
func parseOptions(raw json.RawMessage) (options, error) {
	var o options
	if len(raw) == 0 {
		return o, nil
	}
	if err := strict(raw, &o); err != nil {
		return o, err
	}
	if err := checkPace("chunk", &o.Chunk, &o.EveryMs); err != nil {
		return o, err
	}
	return o, check(o.Steps)
}

// parse reads a message. ok is false when it is not a script but something that a person said: a script is a JSON
// array of objects, or lines of objects. What is one and breaks the grammar is an error.
func parse(text string) (steps []step, ok bool, err error) {
	raws, ok := split(text)
	if !ok {
		return nil, false, nil
	}
	if len(raws) > MaxSteps {
		return nil, true, fmt.Errorf("it has more than %d steps", MaxSteps)
	}
	for i, raw := range raws {
		var s step
		if err := strict(raw, &s); err != nil {
			return nil, true, fmt.Errorf("step %d: %w", i+1, err)
		}
		steps = append(steps, s)
	}
	return steps, true, check(steps)
}

// split takes a script apart without looking into its steps.
func split(text string) ([]json.RawMessage, bool) {
	text = strings.TrimSpace(text)
	var raws []json.RawMessage
	switch {
	case strings.HasPrefix(text, "["):
		if json.Unmarshal([]byte(text), &raws) != nil {
			return nil, false
		}
	case strings.HasPrefix(text, "{"):
		for l := range strings.Lines(text) {
			if l = strings.TrimSpace(l); l != "" {
				raws = append(raws, json.RawMessage(l))
			}
		}
	}
	for _, raw := range raws {
		if len(raw) == 0 || raw[0] != '{' || !json.Valid(raw) {
			return nil, false
		}
	}
	return raws, len(raws) > 0
}

// grammarError says what is wrong with JSON text, by the names of fields and never by their values.
type grammarError string

func (e grammarError) Error() string { return string(e) }

// strict decodes one JSON value without unknown fields.
func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return grammarError("something follows the object")
		}
		return nil
	}
	if inner := grammarError(""); errors.As(err, &inner) {
		return inner // of a field that decodes itself
	}
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		return grammarError(cmp.Or(wrong.Field, "a value") + " has the wrong type")
	}
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		return grammarError(m[1] + " is unknown")
	}
	return grammarError("not well-formed JSON")
}

var unknownField = regexp.MustCompile(`unknown field ("[A-Za-z0-9_.-]{1,40}")`)

// check looks for what the types do not say.
func check(steps []step) error {
	n, err := count(steps, 1)
	if err == nil && n > MaxPlayed {
		err = fmt.Errorf("it plays more than %d steps", MaxPlayed)
	}
	return err
}

// count checks steps and returns how many are played.
func count(steps []step, depth int) (int64, error) {
	if len(steps) > MaxSteps {
		return 0, fmt.Errorf("a list has more than %d steps", MaxSteps)
	}
	var total int64
	for i, s := range steps {
		n, err := s.check(depth)
		if err != nil {
			return 0, fmt.Errorf("step %d: %w", i+1, err)
		}
		if total += n; total > MaxPlayed {
			return total, nil
		}
	}
	return total, nil
}

func (s step) check(depth int) (int64, error) {
	kinds := 0
	for _, set := range []bool{
		s.Text != nil, s.Reasoning != nil, s.Tool != nil, s.Plan != nil, s.Usage != nil, s.Warning != nil, s.Facts != nil,
		s.DelayMs != nil, s.Error != nil, s.Finish != nil, s.Garbage != nil, s.Hang != nil, s.Exit != nil, s.Recall != nil,
		s.Repeat != nil, s.Approval != nil, s.Form != nil, s.SnapshotFail != nil, s.HangBeforeEnd != nil,
	} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return 0, fmt.Errorf("must have exactly one key, has %d", kinds)
	}
	switch {
	case s.Text != nil:
		return 1, s.Text.check("text")
	case s.Reasoning != nil:
		return 1, s.Reasoning.check("reasoning")
	case s.Tool != nil:
		return 1, s.Tool.check()
	case s.DelayMs != nil:
		return 1, checkMs("delay_ms", *s.DelayMs)
	case s.Error != nil:
		return 1, checkMs("error.retry_after_ms", s.Error.RetryAfterMs)
	case s.Garbage != nil:
		if _, ok := garbage[*s.Garbage]; !ok {
			return 0, errors.New("garbage: unknown kind")
		}
	case s.Approval != nil:
		return 1, s.Approval.check()
	case s.Form != nil:
		return 1, s.Form.check()
	case s.HangBeforeEnd != nil && (*s.HangBeforeEnd < 1 || *s.HangBeforeEnd > MaxHoldMs):
		return 0, fmt.Errorf("hang_before_end: must be 1 to %d", MaxHoldMs)
	case s.Hang != nil && !*s.Hang, s.Recall != nil && !*s.Recall, s.SnapshotFail != nil && !*s.SnapshotFail:
		return 0, errors.New("must be true")
	case s.Exit != nil && (*s.Exit < 0 || *s.Exit > 255):
		return 0, errors.New("exit: must be 0 to 255")
	case s.Repeat != nil:
		return s.Repeat.check(depth)
	}
	return 1, nil
}

func (s *said) check(field string) error {
	return errors.Join(checkPace(field+".chunk", s.Chunk, s.EveryMs), checkUntil(field+".until", s.Until))
}

// fileName is the name of a file that a script waits for: in the workspace itself, and nowhere else.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkUntil(field, name string) error {
	if name != "" && !fileName.MatchString(name) {
		return fmt.Errorf("%s: must be 1 to 64 letters, digits, dots, dashes and underscores, and begin with none of the last three", field)
	}
	return nil
}

func checkPace(field string, chunk *int, everyMs *int64) error {
	if chunk != nil && (*chunk < 0 || *chunk > maxChunk) {
		return fmt.Errorf("%s: must be 0 to %d", field, maxChunk)
	}
	if everyMs != nil {
		return checkMs("every_ms", *everyMs)
	}
	return nil
}

func checkMs(field string, ms int64) error {
	if ms < 0 || ms > MaxDelayMs {
		return fmt.Errorf("%s: must be 0 to %d", field, MaxDelayMs)
	}
	return nil
}

func (t *toolStep) check() error {
	switch {
	case t.Name == "":
		return errors.New("tool.name: is missing")
	case (t.Result == nil) == (t.Error == nil):
		return errors.New("tool: must have either a result or an error")
	case t.Arguments != nil && !bytes.HasPrefix(bytes.TrimSpace(t.Arguments), []byte("{")):
		return errors.New("tool.arguments: must be an object")
	}
	return errors.Join(checkMs("tool.ms", t.Ms), checkUntil("tool.until", t.Until))
}

func (r *repeatStep) check(depth int) (int64, error) {
	if depth > MaxDepth {
		return 0, fmt.Errorf("repeat: nested deeper than %d", MaxDepth)
	}
	if r.Times < 1 || r.Times > MaxPlayed {
		return 0, fmt.Errorf("repeat.times: must be 1 to %d", MaxPlayed)
	}
	n, err := count(r.Steps, depth+1)
	if err != nil {
		return 0, fmt.Errorf("repeat: %w", err)
	}
	// A repeat of nothing still costs its turns; the product cannot overflow, both sides are at most a million or so.
	return r.Times * max(n, 1), nil
}
